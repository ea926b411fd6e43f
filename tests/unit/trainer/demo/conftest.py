"""Facts of a demonstration in which everything held."""

from dataclasses import replace

import pytest

from pliska.trainer.demo.facts import (
    CommittedRound,
    DemoFacts,
    Event,
    EventKind,
    Measurement,
    Rollback,
    Takeover,
)
from pliska.trainer.demo.jobs import RunName
from pliska.trainer.demo.options import DemoOptions

ROUNDS = 20
COMMITTED = tuple(CommittedRound(round=k, digest=f"{k:064x}") for k in range(1, ROUNDS + 1))


def curve(last: float) -> tuple[Measurement, ...]:
    return tuple(Measurement(k, last * (k / ROUNDS)) for k in range(2, ROUNDS + 1, 2))


@pytest.fixture
def facts() -> DemoFacts:
    return DemoFacts(
        options=DemoOptions(rounds=ROUNDS),
        curves={
            RunName.ROBUST: curve(0.95),
            RunName.MEAN: curve(0.11),
            RunName.CLEAN: curve(0.96),
        },
        committed=COMMITTED,
        takeover=Takeover(
            killed="c1", successor="c2", round=10, takeover_s=1.5, before=COMMITTED[:10]
        ),
        flagged=frozenset({"w7", "w8"}),
        suspected_at_end=frozenset({"w7", "w8"}),
        rollback=Rollback(good=1, poisoned=2, restored=1, duration_s=0.5),
        elapsed_s=60.0,
        memory_bytes_max=2_900_000_000,
        events=(
            Event(EventKind.STARTED, RunName.ROBUST, 0, 1.0, "the robust run begins"),
            Event(EventKind.FLAGGED, RunName.ROBUST, 4, 5.0, "w7 suspected"),
            Event(EventKind.FLAGGED, RunName.ROBUST, 4, 5.0, "w8 suspected"),
            Event(EventKind.FLAGGED, RunName.MEAN, 6, 5.0, "w1 suspected"),
            Event(EventKind.LEADER_KILLED, RunName.ROBUST, 10, 9.0, "leader c1 killed"),
            Event(EventKind.TAKEN_OVER, RunName.ROBUST, 10, 10.5, "c2 leads"),
            Event(EventKind.ROLLED_BACK, None, 20, 30.0, "prod rolled back to version 1"),
        ),
    )


@pytest.fixture
def other_facts(facts: DemoFacts) -> DemoFacts:
    """The same under another attack, where nothing is claimed of the accuracy."""
    from pliska.aggregation import AttackName

    return replace(facts, options=replace(facts.options, attack=AttackName.ALIE))
