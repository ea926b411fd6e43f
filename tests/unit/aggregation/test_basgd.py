import math

import pytest
import torch

from pliska.aggregation import BASGD, BoundError, BufferState, CoordinateMedian, ShapeError


def gradient(value: float) -> torch.Tensor:
    return torch.full((3,), value)


def test_workers_share_buffers_and_means_are_running() -> None:
    rule = BASGD(rule=CoordinateMedian(f=0), buffers=2)
    state = BufferState.empty(2)
    for worker, value in ((0, 1.0), (2, 3.0), (4, 8.0)):
        state = rule.offer(state, worker, gradient(value))
    assert state.counts == (3, 0)
    assert state.means[0] is not None
    assert torch.allclose(state.means[0], gradient(4.0))
    assert not state.is_full
    state = rule.offer(state, 1, gradient(6.0))
    assert state.is_full
    assert torch.allclose(rule.aggregate(state).vector, gradient(5.0))


def test_a_liar_spoils_its_own_buffer_only_however_often_it_sends() -> None:
    rule = BASGD(rule=CoordinateMedian(f=1), buffers=3)
    state = BufferState.empty(3)
    for _ in range(50):
        state = rule.offer(state, 0, gradient(-1e30))
    state = rule.offer(rule.offer(state, 1, gradient(1.0)), 2, gradient(2.0))
    assert float(rule.aggregate(state).vector.min()) >= 1


def test_the_state_before_stays_as_it_was() -> None:
    rule = BASGD(rule=CoordinateMedian(f=0), buffers=1)
    first = rule.offer(BufferState.empty(1), 0, gradient(1.0))
    rule.offer(first, 0, gradient(9.0))
    assert first.means[0] is not None
    assert torch.equal(first.means[0], gradient(1.0))


def test_empty_buffers_cannot_be_combined() -> None:
    rule = BASGD(rule=CoordinateMedian(f=1), buffers=3)
    state = rule.offer(BufferState.empty(3), 0, gradient(1.0))
    with pytest.raises(BoundError, match="n=1"):
        rule.aggregate(state)


def test_rule_must_bear_f_among_the_buffers() -> None:
    with pytest.raises(BoundError):
        BASGD(rule=CoordinateMedian(f=2), buffers=4)


def test_gradients_that_do_not_fit_are_refused() -> None:
    rule = BASGD(rule=CoordinateMedian(f=0), buffers=1)
    state = rule.offer(BufferState.empty(1), 0, gradient(1.0))
    for bad in (torch.zeros(4), torch.full((3,), math.nan), torch.zeros(1, 3)):
        with pytest.raises(ShapeError):
            rule.offer(state, 0, bad)
