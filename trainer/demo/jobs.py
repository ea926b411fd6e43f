"""The three job files of the demonstration, made from its options.

The same model, data and optimizer three times: under attack with the robust
rule, under attack with the plain mean, and with honest workers only. The
numbers are those of `jobs/digits.toml`; a test holds the two together.
"""

from dataclasses import dataclass
from enum import StrEnum

from pliska.trainer.demo.digits import PIXELS, source_kind
from pliska.trainer.demo.options import DemoOptions
from pliska.trainer.demo.toml_text import Value, toml_text

HIDDEN = 128
BATCH = 128
LEARNING_RATE = 0.2
MOMENTUM = 0.9
EVALUATE_EVERY = 2


class RunName(StrEnum):
    """The three trainings that the demonstration compares."""

    ROBUST = "robust"
    """Under attack, with the robust rule; its leader is killed half way."""
    MEAN = "mean"
    """Under attack, with the plain mean."""
    CLEAN = "clean"
    """No attack, plain mean: as good as it gets."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One training of the demonstration.

    Attributes:
        run: Which of the three.
        name: The job's name in the store.
        rule: Name of its rule.
        rounds: How many rounds it has.
        text: The job file.
        workers: Names of its workers.
        byzantine: Those of them that attack.
    """

    run: RunName
    name: str
    rule: str
    rounds: int
    text: str
    workers: tuple[str, ...]
    byzantine: tuple[str, ...]


def demo_jobs(options: DemoOptions) -> tuple[DemoJob, DemoJob, DemoJob]:
    """Return the robust, the mean and the clean job.

    The clean one has as many honest workers as the others have workers, so
    that the comparison tells what the attack costs, and what leaving gradients
    out costs.
    """
    return (
        _job(options, RunName.ROBUST, options.rule, options.byzantine_names),
        _job(options, RunName.MEAN, "mean", options.byzantine_names),
        _job(options, RunName.CLEAN, "mean", ()),
    )


def _job(options: DemoOptions, run: RunName, rule: str, byzantine: tuple[str, ...]) -> DemoJob:
    name = f"demo-{run}"
    text = toml_text(_document(options, name, rule))
    return DemoJob(run, name, rule, options.rounds, text, options.worker_names, byzantine)


def _document(options: DemoOptions, name: str, rule: str) -> dict[str, Value]:
    kind = source_kind(options.data)
    return {
        "name": name,
        "seed": options.seed,
        "model": {
            "factory": "pliska.trainer.demo.digits:model",
            "arguments": {"pixels": PIXELS[kind], "hidden": HIDDEN},
        },
        "data": {
            "factory": "pliska.trainer.demo.digits:data",
            "arguments": {"source": options.data_source, "seed": options.seed},
            "batch": BATCH,
            "loss": "torch.nn.functional:cross_entropy",
        },
        # The mean bears nothing; its f lets it go on without rows that hold NaN.
        "rule": {"name": rule, "f": options.byzantine},
        "optimizer": {"name": "sgd", "lr": LEARNING_RATE, "momentum": MOMENTUM},
        "rounds": {
            "count": options.rounds,
            "workers": options.workers,
            "quorum": _quorum(options),
            "soft_deadline_s": 2.0,
            "deadline_s": 10.0,
        },
        "checkpoint": {"every": 10, "keep": 3},
        "evaluate": {"every": EVALUATE_EVERY},
    }


def _quorum(options: DemoOptions) -> int:
    """Enough for the rule, and one missing worker at most."""
    return max(options.robust_rule().rows_min, options.workers - 1)
