"""Checks of a job that need torch, the rules and the user's code, before anything starts.

The job file's own reader has checked keys, types and ranges; here every
mistake that would only show in the first round becomes a `JobFileError` with
its line and what to write instead.
"""

from pliska.aggregation.catalog import rule_named, rule_names
from pliska.aggregation.errors import BoundError, RuleUsageError, UnknownNameError
from pliska.coordinator.errors import OptimizerError
from pliska.coordinator.optimizer import optimizer_parameters
from pliska.coordinator.training_module import build_module, load_data
from pliska.coordinator.user_code import load_function, mistake
from pliska.coordinator.wire.job import Job


def check_job(job: Job) -> None:
    """Refuse a job that cannot run as it is written.

    Checks the rule with its parameters and its bound on n and f, the
    optimizer's parameters, and that the user's functions can be imported and
    make a module and two datasets.

    Raises:
        JobFileError: Something is wrong; the first mistake is named.
    """
    _check_rule(job)
    _check_optimizer(job)
    build_module(job)
    load_data(job)
    load_function(job, "data.loss")


def _check_rule(job: Job) -> None:
    parameters = job.rule.parameters
    try:
        rule = rule_named(job.rule.name, **parameters)
    except UnknownNameError as error:
        raise mistake(
            job, "rule.name", f"there is no rule {error.name!r}", _one_of(rule_names())
        ) from error
    except RuleUsageError as error:
        named = next((name for name in parameters if repr(name) in str(error)), None)
        key = f"rule.{named}" if named else "rule.name"
        raise mistake(job, key, str(error), f"write what {job.rule.name} takes") from error
    for count, key in (
        (job.rounds.workers, "rounds.workers"),
        (job.rounds.quorum, "rounds.quorum"),
    ):
        try:
            rule.check(count)
        except BoundError as error:
            raise mistake(
                job,
                key,
                f"{key} is {count}, but {error.rule} with f = {error.f} needs {error.bound}",
                f"write at least {error.rows_min}, or lower rule.f",
            ) from error


def _check_optimizer(job: Job) -> None:
    try:
        optimizer_parameters(job.optimizer.name, job.optimizer.parameters)
    except OptimizerError as error:
        key = f"optimizer.{error.parameter or 'name'}"
        raise mistake(job, key, error.message, error.advice) from error


def _one_of(names: tuple[str, ...]) -> str:
    return "write one of " + ", ".join(names)
