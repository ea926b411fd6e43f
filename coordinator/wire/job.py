"""The job file: what to train, with which rule, and when a round closes.

A person writes it as TOML; the coordinator publishes its text in the store and
workers parse the same text. Its tables are in `job_tables.py`. This module
imports none of the user's code, no torch and no rule: the coordinator checks
the rule's bound on n and f and the optimizer's parameters, and names their line
with `Job.line_of`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.expectations import Whole
from pliska.coordinator.wire.job_reader import JOB_FILE_BYTES_MAX, read_values
from pliska.coordinator.wire.job_tables import (
    NAME,
    Asynchronous,
    Audit,
    Checkpoint,
    Data,
    Durable,
    Evaluate,
    Hybrid,
    ModeChoice,
    Model,
    Optimizer,
    Reputation,
    Rounds,
    Rule,
)
from pliska.coordinator.wire.toml_lines import TomlLines


@dataclass(frozen=True, slots=True)
class Job:
    """One job file, every value checked.

    Attributes:
        name: Names the job in the store, in commands and in paths.
        seed: Where the model's first parameters and the rounds' seeds come from.
        model: What is trained.
        data: What it is trained on.
        rule: How the workers' gradients become one.
        optimizer: How the model takes a step.
        rounds: How many rounds there are, and when one closes.
        mode: How gradients meet a version.
        hybrid: What the hybrid mode takes.
        asynchronous: What the asynchronous mode takes.
        checkpoint: When the whole state is written.
        durable: What must have happened before a round is committed.
        evaluate: When the model is measured.
        audit: What is kept and repeated so that rounds can be checked.
        reputation: What a worker's conduct means for its next gradients.
        text: The file itself, as it is published for the workers.
        source: Where the text came from, for messages.
    """

    name: Annotated[str, NAME]
    model: Model
    data: Data
    rule: Rule
    optimizer: Optimizer
    rounds: Rounds
    mode: ModeChoice
    hybrid: Hybrid
    asynchronous: Asynchronous
    checkpoint: Checkpoint
    durable: Durable
    evaluate: Evaluate
    audit: Audit
    reputation: Reputation
    text: str = field(repr=False)
    source: str
    seed: Annotated[int, Whole(0, 2**63 - 1)] = 0

    def line_of(self, key: str) -> int:
        """The line of a dotted key such as `rule.f`; that of its table when it is absent."""
        return TomlLines(self.text).line_of(tuple(key.split(".")))


def load_job(path: str | Path) -> Job:
    """Read and check a job file.

    Raises:
        JobFileError: It cannot be read, or something in it is wrong.
    """
    source = str(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(JOB_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise JobFileError(
            source, None, f"cannot read the job file: {error.strerror}", "name a file that exists"
        ) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise JobFileError(source, line, "this is not UTF-8", "save the file as UTF-8") from error
    return parse_job(text, source)


def parse_job(text: str, source: str) -> Job:
    """Check the text of a job file.

    Args:
        text: TOML, at most `JOB_FILE_BYTES_MAX` bytes.
        source: Where it came from; errors name it.

    Raises:
        JobFileError: Something in it is wrong.
    """
    job = Job(**read_values(Job, text, source), text=text, source=source)
    _require_order(job)
    return job


def _require_order(job: Job) -> None:
    """Refuse values that are fine alone and wrong together."""
    rounds = job.rounds
    if rounds.quorum > rounds.workers:
        raise JobFileError(
            job.source,
            job.line_of("rounds.quorum"),
            f"rounds.quorum is {rounds.quorum}, more than rounds.workers ({rounds.workers})",
            f"write a whole number from 1 to {rounds.workers}",
        )
    if rounds.soft_deadline_s > rounds.deadline_s:
        raise JobFileError(
            job.source,
            job.line_of("rounds.soft_deadline_s"),
            f"rounds.soft_deadline_s is {rounds.soft_deadline_s:g}, "
            f"after rounds.deadline_s ({rounds.deadline_s:g})",
            f"write at most {rounds.deadline_s:g}, or a later deadline_s",
        )
    _require_buffers(job)
    _require_hysteresis(job)


def _require_buffers(job: Job) -> None:
    """Refuse buffers that no round could fill, or that fill before the quorum is there."""
    rounds, buffer, buffers = job.rounds, job.hybrid.buffer, job.asynchronous.buffers
    if buffer and not rounds.quorum <= buffer <= rounds.workers:
        raise JobFileError(
            job.source,
            job.line_of("hybrid.buffer"),
            f"hybrid.buffer is {buffer}, not between rounds.quorum ({rounds.quorum}) "
            f"and rounds.workers ({rounds.workers})",
            f"write a whole number from {rounds.quorum} to {rounds.workers}, or 0",
        )
    if buffers > rounds.workers:
        raise JobFileError(
            job.source,
            job.line_of("asynchronous.buffers"),
            f"asynchronous.buffers is {buffers}, more than rounds.workers ({rounds.workers})",
            f"write a whole number from 0 to {rounds.workers}",
        )


def _require_hysteresis(job: Job) -> None:
    """Refuse thresholds in an order in which a worker would go to and fro."""
    reputation = job.reputation
    in_order = (
        ("clear_below", reputation.clear_below, "probation_above", reputation.probation_above),
        (
            "probation_above",
            reputation.probation_above,
            "quarantine_above",
            reputation.quarantine_above,
        ),
    )
    for low, low_value, high, high_value in in_order:
        if low_value > high_value:
            raise JobFileError(
                job.source,
                job.line_of(f"reputation.{low}"),
                f"reputation.{low} is {low_value:g}, above reputation.{high} ({high_value:g})",
                f"write at most {high_value:g}, or a higher {high}",
            )
