import itertools
import math
import threading

import numpy as np
import pytest
import torch

from pliska.aggregation import GradientBuffer, Krum, MultiKrum, TrimmedMean, WorkerNameError
from pliska.aggregation import distances as distances_module
from pliska.aggregation.engine.threads import SPAN_COLUMNS
from pliska.aggregation.measured_buffer import MeasuredBuffer

N, D = 7, 3 * SPAN_COLUMNS + 11


@pytest.fixture(scope="module")
def gradients() -> torch.Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1))


def fill(buffer: GradientBuffer, gradients: torch.Tensor, order: list[int], chunk: int) -> None:
    """Write the rows in this order, one chunk of each at a time."""
    places = {i: buffer.claim(f"w{i}") for i in order}
    for start in range(0, D, chunk):
        for i in order:
            stop = min(start + chunk, D)
            buffer.row(places[i])[start:stop] = gradients[i, start:stop]
            if isinstance(buffer, MeasuredBuffer):
                buffer.arrived(places[i], stop)
    for i in order:
        buffer.mark_filled(places[i])


def test_rows_measured_on_arrival_give_the_same_choice_as_all_at_once(
    gradients: torch.Tensor,
) -> None:
    plain, measured = GradientBuffer(N, D), MeasuredBuffer(N, D)
    fill(plain, gradients, list(range(N)), D)
    fill(measured, gradients, list(range(N)), 100_000)
    for rule in (Krum(f=2), MultiKrum(f=2), TrimmedMean(f=2)):
        at_once, streamed = rule(plain), rule(measured)
        assert torch.equal(at_once.vector, streamed.vector)
        assert [e.weight for e in at_once.report] == [e.weight for e in streamed.report]
        assert [e.score for e in streamed.report] == pytest.approx(
            [e.score for e in at_once.report], rel=1e-5
        )


@pytest.mark.parametrize("chunk", [D, 65_536, 50_000])
def test_products_are_the_same_bytes_for_any_order_of_arrival(
    gradients: torch.Tensor, chunk: int
) -> None:
    workers = [f"w{i}" for i in range(N)]
    grams = []
    for order in ([0, 1, 2, 3, 4, 5, 6], [6, 2, 4, 0, 5, 1, 3]):
        buffer = MeasuredBuffer(N, D)
        fill(buffer, gradients, order, chunk)
        grams.append(buffer.seen(workers).gram)
    assert torch.equal(*grams)
    exact = gradients.double() @ gradients.double().T
    assert np.allclose(grams[0], exact, atol=1e-6 * float(exact.max()))


def test_nothing_is_read_again_after_the_last_chunk(
    gradients: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = MeasuredBuffer(N, D)
    fill(buffer, gradients, list(range(N)), 65_536)

    def refuse(*_: object) -> None:
        raise AssertionError("the rows were multiplied again")

    monkeypatch.setattr(distances_module.grams, "products", refuse)
    assert len(MultiKrum(f=2)(buffer).report) == N


def test_row_given_back_leaves_no_products(gradients: torch.Tensor) -> None:
    buffer = MeasuredBuffer(N, D)
    fill(buffer, gradients, list(range(N)), D)
    buffer.keep(["w0", "w1", "w3", "w4", "w6"])
    for i in (2, 5):
        index = buffer.claim(f"late{i}")
        buffer.row(index).copy_(-gradients[i])
        buffer.arrived(index, D)
        buffer.mark_filled(index)
    names = ["w0", "w1", "w3", "w4", "w6", "late2", "late5"]
    seen = buffer.seen(names).gram
    rows = torch.stack([*gradients[[0, 1, 3, 4, 6]], -gradients[2], -gradients[5]]).double()
    assert seen is not None
    assert np.allclose(seen, rows @ rows.T, atol=0.5)


def test_row_that_was_not_announced_is_measured_later(gradients: torch.Tensor) -> None:
    buffer = MeasuredBuffer(N, D)
    fill(buffer, gradients, list(range(N - 1)), D)
    index = buffer.claim("quiet")
    buffer.row(index).copy_(gradients[N - 1])
    buffer.mark_filled(index)
    assert buffer.seen(["w0", "quiet"]).gram is None
    assert len(Krum(f=2)(buffer).report) == N


def test_nan_on_arrival_is_refused_by_the_gate(gradients: torch.Tensor) -> None:
    poisoned = gradients.clone()
    poisoned[3, 70_000] = math.nan
    buffer = MeasuredBuffer(N, D)
    fill(buffer, poisoned, list(range(N)), 65_536)
    result = MultiKrum(f=2)(buffer)
    assert result.report[3].verdict == "refused"
    assert result.vector.isfinite().all()


def test_centre_changes_no_choice(gradients: torch.Tensor) -> None:
    offset = gradients + 50.0
    results = []
    for centre in (None, offset.mean(dim=0)):
        buffer = MeasuredBuffer(N, D, centre)
        fill(buffer, offset, list(range(N)), 65_536)
        results.append(MultiKrum(f=2)(buffer))
    assert torch.equal(results[0].vector, results[1].vector)
    scores = [[entry.score for entry in result.report] for result in results]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_rows_may_arrive_from_several_threads(gradients: torch.Tensor) -> None:
    buffer = MeasuredBuffer(N, D)
    places = {i: buffer.claim(f"w{i}") for i in range(N)}

    def receive(i: int) -> None:
        for start, stop in itertools.pairwise([*range(0, D, 65_536), D]):
            buffer.row(places[i])[start:stop] = gradients[i, start:stop]
            buffer.arrived(places[i], stop)

    threads = [threading.Thread(target=receive, args=(i,)) for i in range(N)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = MeasuredBuffer(N, D)
    fill(alone, gradients, list(range(N)), D)
    workers = [f"w{i}" for i in range(N)]
    first, second = buffer.seen(workers).gram, alone.seen(workers).gram
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


def test_unclaimed_row_cannot_arrive() -> None:
    with pytest.raises(WorkerNameError, match="row 0"):
        MeasuredBuffer(2, 10).arrived(0, 10)
