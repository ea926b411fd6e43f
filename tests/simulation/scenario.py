"""What the run of a seed is about: the mode, what is kept and where, who lies, what burns."""

from dataclasses import dataclass
from random import Random

from training.toy_job import toy_job

from pliska.coordinator.wire.job import Job

MODES = (
    "",
    "",
    '[mode]\nstart = "hybrid"\n',
    '[mode]\nstart = "asynchronous"\n[asynchronous]\nbuffers = 0\n',
    '[mode]\nstart = "asynchronous"\n[asynchronous]\nbuffers = 1\n',
)
"""Tables of the job file; rounds are synchronous where there is none."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One case.

    Attributes:
        liars: The workers that attack.
        may_burn: Whether one machine may be lost for good, disk included.
        target: The version that an operator puts the job back on, without the liars;
            None where nobody does.
        shares_storage: Whether the coordinators have one storage in common.
    """

    job: Job
    liars: frozenset[str] = frozenset()
    may_burn: bool = False
    target: int | None = None
    shares_storage: bool = False


def draw_scenario(seed: int) -> Scenario:
    """Draw it; not from the lots of the run, so that a mode can be tried with the same faults."""
    lots = Random(f"scenario {seed}")
    replicas = lots.choice(["", "replicas = 1\n"])
    liars = frozenset({"w4"}) if lots.random() < 0.3 else frozenset()
    mode = lots.choice(MODES)
    target = lots.randint(1, 10) if lots.random() < 0.4 else None
    shares_storage = not replicas and lots.random() < 0.6
    keep_rounds = lots.choice(["", "keep_rounds = 2\n"])
    kept = f"[durable]\n{replicas}{keep_rounds}[audit]\n{keep_rounds}"
    return Scenario(
        small_job(mode + kept),
        liars,
        may_burn=bool(replicas),
        target=target,
        shares_storage=shares_storage,
    )


def small_job(more: str = "") -> Job:
    """Return a job of 25 rounds that bears one liar; `more` are further tables of its file."""
    return toy_job(
        count=25,
        workers=4,
        quorum=3,
        rule='name = "trimmed-mean", f = 1',
        soft_deadline_s=1.0,
        deadline_s=3.0,
        more=more,
    )
