"""Who is computed again cannot be known before, and lies are told from rounding."""

import numpy as np
import pytest
import torch
from training.records import contribution, lease_of
from training.signed import commit, header
from training.toy_job import toy_job

from pliska.aggregation import flipped_labels
from pliska.coordinator.records.standing import Standing, StandingState
from pliska.coordinator.rounds.recomputation import (
    DEVIATION_MAX,
    compare,
    computed_with,
    deviation,
    drawn,
    finding,
)
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Float32Codec, GradientHeader, seal

WORKERS = [f"w{number:03d}" for number in range(200)]
ROUND = commit(5, *(contribution(worker, 5) for worker in WORKERS))
SUSPECTS = {
    worker: Standing(worker=worker, state=StandingState.PROBATION) for worker in WORKERS[:100]
}


def test_share_of_the_gradients_is_drawn() -> None:
    assert drawn(ROUND, {}, 0.0) == ()
    assert drawn(ROUND, {}, 1.0) == tuple(WORKERS)
    rounds = [commit(number, *ROUND.record.contributions) for number in range(1, 21)]
    count = sum(len(drawn(each, {}, 0.1)) for each in rounds)
    assert 300 < count < 500  # of 4000; five standard deviations are 95


def test_lots_depend_on_the_whole_record_that_nobody_knows_before() -> None:
    once = drawn(ROUND, {}, 0.1)
    assert once == drawn(ROUND, {}, 0.1)
    assert once != drawn(commit(5, *ROUND.record.contributions, issued_at=1.0), {}, 0.1)
    last = contribution(WORKERS[-1], 5, payload_root=bytes(32))
    assert once != drawn(commit(5, *ROUND.record.contributions[:-1], last), {}, 0.1)


def test_suspects_are_drawn_ten_times_as_often() -> None:
    rounds = [commit(number, *ROUND.record.contributions) for number in range(1, 21)]
    chosen = [worker for each in rounds for worker in drawn(each, SUSPECTS, 0.02)]
    suspected = sum(worker in SUSPECTS for worker in chosen)
    assert 300 < suspected < 500
    assert 10 < len(chosen) - suspected < 80


def test_refused_gradients_are_not_drawn() -> None:
    refused = commit(5, contribution("w1", 5, verdict="refused"), contribution("w2", 5))
    assert drawn(refused, {}, 1.0) == ("w2",)


@pytest.fixture(scope="module")
def computation() -> Computation:
    return Computation(toy_job())


def claimed(gradient: torch.Tensor) -> GradientHeader:
    return header("w1", 5, payload_root=seal(Float32Codec(), gradient.numpy()).root)


def test_honest_gradient_is_equal_bit_for_bit(computation: Computation) -> None:
    parameters = computation.parameters.copy()
    gradient = computation.gradient(lease_of("w1", 5))
    found = compare(computation, parameters, claimed(gradient), gradient.numpy())
    assert found.is_equal
    assert found.deviation == 0.0


def test_rounding_is_no_lie(computation: Computation) -> None:
    parameters = computation.parameters.copy()
    gradient = computation.gradient(lease_of("w1", 5)) * (1 + 1e-6)
    found = compare(computation, parameters, claimed(gradient), gradient.numpy())
    assert not found.is_equal
    assert found.deviation < 1e-5


def test_flipped_labels_another_batch_and_other_parameters_are_lies(
    computation: Computation,
) -> None:
    parameters = computation.parameters.copy()
    flipped = computation.gradient(lease_of("w1", 5), lambda targets: flipped_labels(targets, 3))
    stolen = computation.gradient(lease_of("w2", 5))
    computation.parameters[:] = parameters + 0.1
    stale = computation.gradient(lease_of("w1", 5))
    for lie in (flipped, stolen, stale, -computation.gradient(lease_of("w1", 5))):
        found = compare(computation, parameters, claimed(lie), lie.numpy())
        assert found.deviation > toy_job().audit.tolerance
    computation.parameters[:] = parameters


def test_finding_states_what_was_compared(computation: Computation) -> None:
    lie = computation.gradient(lease_of("w2", 5))
    found = compare(computation, computation.parameters.copy(), claimed(lie), lie.numpy())
    stated = finding(ROUND, claimed(lie), found, 0.01)
    assert stated.record_digest == ROUND.digest
    assert stated.payload_root == claimed(lie).payload_root
    assert (
        stated.recomputed_root
        == seal(Float32Codec(), computation.gradient(lease_of("w1", 5)).numpy()).root
    )
    assert stated.deviation == found.deviation
    assert torch.__version__ in computed_with()


def test_deviation_is_finite_whatever_the_gradients_hold() -> None:
    one = np.ones(3, dtype=np.float32)
    assert deviation(one, torch.ones(3)) == 0.0
    assert deviation(one, torch.zeros(3)) == DEVIATION_MAX
    assert deviation(np.zeros(3, dtype=np.float32), torch.zeros(3)) == 0.0
    assert deviation(one, torch.full((3,), torch.nan)) == 0.0
    assert deviation(one * 3e38, torch.full((3,), 1e-38)) == DEVIATION_MAX
    assert deviation(one * 2, torch.ones(3)) == pytest.approx(1.0)
