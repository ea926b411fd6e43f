"""What happens in one run, drawn from a seed alone: the same seed, the same plan."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

RECIPES = ("mutex", "read", "write", "semaphore", "leader", "barrier")
NAMES = {
    "mutex": "locks/m",
    "read": "locks/rw",
    "write": "locks/rw",
    "semaphore": "semaphores/s",
    "leader": "elections/e",
    "barrier": "barriers/b",
}
"""The name that a history gives to what a recipe locks."""

SHORT_RUN_LEASES = (1.0, 2.5)
LONG_RUN_LEASES = (5.0, 12.0)
LONG_SHARE = 0.1
"""How long runs are; some are long enough to outlive leases several times."""
TURNS_PER_S = 50
FAULTS_MAX = 6


class FaultKind(StrEnum):
    """What may be done to whom."""

    PAUSE = "pause"
    """A process is stopped for a while."""
    KILL = "kill"
    """A process is killed, and another takes its place."""
    STEAL = "steal"
    """Another client ends the session of an actor."""
    BREAK = "break"
    """An administrator takes a lock from its holders."""
    RESIZE = "resize"
    """An administrator changes the size of the semaphore."""
    BLACKHOLE = "blackhole"
    """An actor's line to the store lets nothing pass for a while."""
    RESET = "reset"
    """All connections of an actor break."""
    FREEZE = "freeze"
    """A server is stopped for a while."""
    CRASH = "crash"
    """A server is killed and started again; one after the other where there are several."""


AMONG_THREADS = {FaultKind.STEAL: 3, FaultKind.BREAK: 2, FaultKind.RESIZE: 1}
AMONG_PROCESSES = {**AMONG_THREADS, FaultKind.PAUSE: 3, FaultKind.KILL: 3}
ON_A_SERVER = {
    **AMONG_PROCESSES,
    FaultKind.BLACKHOLE: 2,
    FaultKind.RESET: 2,
    FaultKind.FREEZE: 1,
    FaultKind.CRASH: 0.1,
}
ON_SERVERS = {**ON_A_SERVER, FaultKind.FREEZE: 2, FaultKind.CRASH: 2}
"""Where one of several may be missing."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan is for.

    Attributes:
        actors: How many clients use the store at a time.
        threads: How many threads each has.
        lease_s: Of their sessions; pauses are shorter and longer than this.
        faults: What may happen, and how often in comparison.
    """

    actors: int
    threads: int
    lease_s: float
    faults: Mapping[FaultKind, float]


@dataclass(frozen=True, slots=True)
class Turn:
    """One acquire of one thread.

    Attributes:
        rest_s: Pause before it.
        forgets: Whether it leaves the grant to the end of its session, or of its process.
    """

    recipe: str
    rest_s: float
    is_try: bool
    timeout_s: float
    hold_s: float
    downgrades: bool
    forgets: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is done at a time after the start."""

    kind: FaultKind
    at_s: float
    victim: int
    length_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        turns: For each actor and each of its threads.
        faults: In the order of their time.
    """

    seed: int
    shape: Shape
    length_s: float
    turns: tuple[tuple[tuple[Turn, ...], ...], ...]
    faults: tuple[Fault, ...]


def plan(seed: int, shape: Shape) -> Plan:
    """Draw a plan."""
    random_ = random.Random(seed)
    is_long = random_.random() < LONG_SHARE
    length_s = shape.lease_s * random_.uniform(*(LONG_RUN_LEASES if is_long else SHORT_RUN_LEASES))
    # A run with few recipes has more rivals for each, one with many more of them at a time.
    recipes = random_.sample(RECIPES, random_.randint(1, len(RECIPES)))
    turns = tuple(
        tuple(_turns(random_, recipes, length_s, shape.lease_s) for _ in range(shape.threads))
        for _ in range(shape.actors)
    )
    return Plan(seed, shape, length_s, turns, _faults(random_, shape, length_s))


def _faults(random_: random.Random, shape: Shape, length_s: float) -> tuple[Fault, ...]:
    kinds = random_.choices(
        list(shape.faults), list(shape.faults.values()), k=random_.randint(1, FAULTS_MAX)
    )
    faults = [
        Fault(
            kind,
            random_.uniform(0.1, 0.9) * length_s,
            random_.randrange(shape.actors),
            random_.uniform(0.2, 2.0) * shape.lease_s,
        )
        for kind in kinds
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _turns(
    random_: random.Random, recipes: list[str], length_s: float, lease_s: float
) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            random_.choice(recipes),
            random_.choice((0.0, random_.uniform(0, 0.02))),
            random_.random() < 0.2,
            random_.choice((0.0, 0.05, lease_s, 10.0)),
            random_.choice((0.0, 0.0, random_.uniform(0, 0.05), random_.uniform(0, lease_s / 2))),
            random_.random() < 0.3,
            random_.random() < 0.05,
        )
        for _ in range(int(TURNS_PER_S * length_s))
    )
