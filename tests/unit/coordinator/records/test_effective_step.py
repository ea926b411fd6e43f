"""What a step amounted to."""

import pytest
from training.records import contribution, record

from pliska.coordinator.records.effective_step import EffectiveStep


def test_damped_gradients_step_less_far_and_those_outvoted_do_not_count() -> None:
    made = record(
        5,
        [
            contribution("a", 5, weight=0.5),
            contribution("b", 5, lag=3, damping=0.5, weight=0.5),
            contribution("c", 5, verdict="outvoted", weight=0.0),
        ],
        learning_rate=0.2,
    )
    step = EffectiveStep.of(made, batch=32)
    assert step.learning_rate == pytest.approx(0.2 * 0.75)
    assert step.batch == 64


def test_round_that_kept_nobody_is_shown_all_the_same() -> None:
    assert EffectiveStep.of(record(5, learning_rate=0.2), 32) == EffectiveStep(0.2, 0)
