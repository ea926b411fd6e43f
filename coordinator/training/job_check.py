"""Checks of a job that need torch, the rules and the user's code, before anything starts.

The job file's own reader has checked keys, types and ranges; here every
mistake that would only show in the first round becomes a `JobFileError` with
its line and what to write instead.
"""

from torch import nn
from torch.utils.data import Dataset, default_collate

from pliska.aggregation import Rule
from pliska.aggregation.catalog import pre_names, rule_named, rule_names
from pliska.aggregation.errors import BoundError, RuleUsageError, SearchLimitError, UnknownNameError
from pliska.coordinator.errors import OptimizerError
from pliska.coordinator.training.floor import FILTER, filter_faults
from pliska.coordinator.training.optimizer import optimizer_parameters
from pliska.coordinator.training.training_module import Example, build_module, load_data
from pliska.coordinator.training.user_code import described, load_function, mistake
from pliska.coordinator.wire.job import Job


def check_job(job: Job) -> None:
    """Refuse a job that cannot run as it is written.

    Checks the rule with its parameters and its bound on n and f, the
    optimizer's parameters, and that the user's functions can be imported and
    make a module and two datasets that go together.

    Raises:
        JobFileError: Something is wrong; the first mistake is named.
    """
    _check_rule(job)
    _check_optimizer(job)
    module = build_module(job)
    train, _ = load_data(job)
    _check_fit(job, module, train)


def _check_rule(job: Job) -> None:
    parameters = job.rule.parameters
    try:
        rule = rule_named(job.rule.name, **parameters)
    except UnknownNameError as error:
        key, names = (
            ("rule.name", rule_names()) if error.kind == "rule" else ("rule.pre", pre_names())
        )
        raise mistake(
            job, key, f"there is no {error.kind} {error.name!r}", _one_of(names)
        ) from error
    except RuleUsageError as error:
        text = str(error)
        named = (each for each in parameters if repr(each) in text or text.startswith(f"{each} "))
        key = f"rule.{next(named, 'name')}"
        raise mistake(job, key, text, f"write what {job.rule.name} takes") from error
    if "reference" in rule.uses:
        raise mistake(
            job,
            "rule.name",
            f"{rule.name} compares with a trusted gradient, and a coordinator has none",
            "write another rule",
        )
    if "memory" in rule.uses and not rule.rebuilds_memory:
        raise mistake(
            job,
            "rule.name",
            f"{rule.name} remembers the gradients of every worker, which no log keeps",
            "write another rule",
        )
    _check_counts(job, rule)
    _check_modes(job, rule)


def _check_counts(job: Job, rule: Rule) -> None:
    """Check the rule's bound with every number of gradients that a round may have.

    With f as a fraction of them, more gradients may need more than they are.
    """
    rounds = job.rounds
    _check_count(job, rule, "rounds.workers", rounds.workers)
    for count in range(rounds.quorum, rounds.workers):
        _check_count(job, rule, "rounds.quorum", count)


def _check_modes(job: Job, rule: Rule) -> None:
    """Check what a switch to another mode would bring."""
    buffers = job.asynchronous.buffers
    if job.hybrid.buffer:
        _check_count(job, rule, "hybrid.buffer", job.hybrid.buffer)
    if buffers > 1:
        _check_count(job, rule, "asynchronous.buffers", buffers)
    workers = job.rounds.workers
    faults = filter_faults(rule.f, workers)
    if buffers == 1 and workers < 3 * faults + 1:
        raise mistake(
            job,
            "asynchronous.buffers",
            f"with one buffer {FILTER} protects the rounds, and with f = {faults} it needs "
            f"n >= 3f + 1, more than rounds.workers ({workers})",
            "write 0, more workers, or lower rule.f",
        )


def _check_count(job: Job, rule: Rule, key: str, count: int) -> None:
    stands = f"{key} is {count}" if count == _stands_at(job, key) else f"{key} allows {count}"
    try:
        rule.check(count)
    except BoundError as error:
        raise mistake(
            job,
            key,
            f"{stands}, but {error.rule} with f = {error.f} needs {error.bound}",
            f"write at least {error.rows_min}, or lower rule.f",
        ) from error
    except SearchLimitError as error:
        raise mistake(job, key, str(error), "change rule.name or rule.f") from error


def _stands_at(job: Job, key: str) -> int:
    table, name = key.split(".")
    return int(getattr(getattr(job, table), name))


def _check_optimizer(job: Job) -> None:
    try:
        optimizer_parameters(job.optimizer.name, job.optimizer.parameters)
    except OptimizerError as error:
        key = f"optimizer.{error.parameter or 'name'}"
        raise mistake(job, key, error.message, error.advice) from error


def _check_fit(job: Job, module: nn.Module, train: Dataset[Example]) -> None:
    """Make one gradient, so that shapes that do not match show here."""
    loss_function = load_function(job, "data.loss")
    # Two examples, because some layers refuse a batch of one.
    inputs, targets = default_collate([train[0], train[len(train) - 1]])  # type: ignore[arg-type]
    try:
        outputs = module(inputs)
    except Exception as error:
        raise mistake(
            job,
            "model.factory",
            f"the model cannot take the inputs of data.factory: {described(error)}",
            "make the two fit each other",
        ) from error
    try:
        loss = loss_function(outputs, targets)
        loss.backward()
    except Exception as error:
        raise mistake(
            job,
            "data.loss",
            f"the loss of the model's output and a target fails: {described(error)}",
            "name a function of (output, target) that returns one number with a gradient",
        ) from error


def _one_of(names: tuple[str, ...]) -> str:
    return "write one of " + ", ".join(names)
