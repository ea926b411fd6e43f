"""What happens in one run, drawn from a seed alone: the same seed, the same plan."""

import random
from dataclasses import dataclass

RECIPES = ("mutex", "read", "write", "semaphore", "leader")
NAMES = {
    "mutex": "locks/m",
    "read": "locks/rw",
    "write": "locks/rw",
    "semaphore": "semaphores/s",
    "leader": "elections/e",
}
"""The name that a history gives to what a recipe locks."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One acquire of one thread."""

    recipe: str
    is_try: bool
    timeout_s: float
    hold_s: float
    downgrades: bool
    forgets: bool
    """Whether it leaves the grant to the end of its session, or of its process."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing done to a process, or to what it holds, at a time after the start."""

    kind: str
    at_s: float
    victim: int
    length_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        turns: For each process and each of its threads.
        faults: In the order of their time.
    """

    seed: int
    length_s: float
    turns: tuple[tuple[tuple[Turn, ...], ...], ...]
    faults: tuple[Fault, ...]


def plan(seed: int, processes: int, threads: int, length_s: float, lease_s: float) -> Plan:
    """Draw a plan.

    Args:
        seed: All that decides.
        processes: How many processes use the store at a time.
        threads: How many threads each has.
        length_s: When they stop.
        lease_s: Of their sessions; pauses are shorter and longer than this.
    """
    random_ = random.Random(seed)
    # A run with few recipes has more rivals for each, one with many more of them at a time.
    recipes = random_.sample(RECIPES, random_.randint(1, len(RECIPES)))
    turns = tuple(
        tuple(_turns(random_, recipes, length_s, lease_s) for _ in range(threads))
        for _ in range(processes)
    )
    kinds = random_.choices(("pause", "kill", "break", "resize", "end"), k=random_.randint(1, 6))
    faults = sorted(
        (
            Fault(
                kind,
                random_.uniform(0.1, 0.9) * length_s,
                random_.randrange(processes),
                random_.uniform(0.2, 2.0) * lease_s,
            )
            for kind in kinds
        ),
        key=lambda fault: fault.at_s,
    )
    return Plan(seed, length_s, turns, tuple(faults))


def _turns(
    random_: random.Random, recipes: list[str], length_s: float, lease_s: float
) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            random_.choice(recipes),
            random_.random() < 0.2,
            random_.choice((0.0, 0.05, lease_s, 10.0)),
            random_.choice((0.0, 0.0, random_.uniform(0, 0.05), random_.uniform(0, lease_s / 2))),
            random_.random() < 0.3,
            random_.random() < 0.05,
        )
        for _ in range(int(200 * length_s))
    )
