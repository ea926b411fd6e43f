"""Drawn gradients are computed again, one by one, and no more wait than there is room for."""

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from training.records import contribution, lease_of
from training.signed import KEYS, LEADER, commit, header, signer
from training.toy_job import toy_job

from pliska.coordinator.recomputer import WAITING_MAX, Drawn, Recomputer
from pliska.coordinator.records.evidence import charge
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Float32Codec, seal

ROUND = commit(5, contribution("w1", 5))
COMPUTATION = Computation(toy_job())
PARAMETERS = COMPUTATION.parameters.copy()


@pytest.fixture
def recomputer() -> Iterator[Recomputer]:
    recomputer = Recomputer(toy_job(), signer(LEADER))
    yield recomputer
    recomputer.close()


def drawn(
    gradient: NDArray[np.float32],
    parameters: Callable[[], NDArray[np.float32]] = lambda: PARAMETERS,
) -> Drawn:
    message = header("w1", payload_root=seal(Float32Codec(), gradient).root)
    return Drawn(ROUND, signer("w1").sign(message), message, gradient, parameters)


def test_lie_makes_evidence_and_truth_makes_none(recomputer: Recomputer) -> None:
    honest = COMPUTATION.gradient(lease_of("w1", 5)).numpy()
    truth, lie = recomputer.submit(drawn(honest)), recomputer.submit(drawn(-honest))
    assert truth is not None
    assert truth.result(20) is None
    assert lie is not None
    evidence = lie.result(20)
    assert evidence is not None
    assert charge(evidence, KEYS).offender == "w1"


def test_what_does_not_fit_is_passed_over_and_room_comes_back(recomputer: Recomputer) -> None:
    go_on = threading.Event()

    def held() -> NDArray[np.float32]:
        go_on.wait(20)
        return PARAMETERS

    gradient = COMPUTATION.gradient(lease_of("w1", 5)).numpy()
    waiting = [recomputer.submit(drawn(gradient, held)) for _ in range(WAITING_MAX)]
    assert None not in waiting
    assert recomputer.submit(drawn(gradient)) is None
    go_on.set()
    for future in waiting:
        assert future is not None
        assert future.result(20) is None
    assert recomputer.submit(drawn(gradient)) is not None


def test_failure_takes_no_room_away(recomputer: Recomputer) -> None:
    def missing() -> NDArray[np.float32]:
        raise OSError("gone")

    gradient = COMPUTATION.gradient(lease_of("w1", 5)).numpy()
    for _ in range(WAITING_MAX + 1):
        future = recomputer.submit(drawn(gradient, missing))
        assert future is not None
        assert isinstance(future.exception(20), OSError)
