import time

import numpy as np
import pytest
import torch

from pliska.aggregation import BufferFullError, GradientBuffer, ParameterError, WorkerNameError


def test_rows_are_views_of_one_matrix() -> None:
    buffer = GradientBuffer(3, 4)
    index = buffer.claim("w1")
    buffer.array(index)[:] = [1, 2, 3, 4]
    assert buffer.row(index).tolist() == [1, 2, 3, 4]
    assert buffer.array(index).dtype == np.float32
    memoryview(buffer.array(index)).cast("B")[:4] = np.float32(9).tobytes()
    assert buffer.row(index)[0] == 9


def test_only_filled_rows_are_read() -> None:
    buffer = GradientBuffer(3, 2)
    first, second = buffer.claim("w2"), buffer.claim("w1")
    buffer.row(second).fill_(5)
    buffer.mark_filled(second)
    assert buffer.workers == ("w2", "w1")
    assert [row.worker for row in buffer.filled()] == ["w1"]
    assert torch.equal(buffer.filled()[0].values, torch.full((2,), 5.0))
    buffer.mark_filled(first)
    assert [row.worker for row in buffer.filled()] == ["w2", "w1"]


def test_buffer_is_full_at_n_max_and_not_before() -> None:
    buffer = GradientBuffer(2, 1)
    buffer.claim("a")
    buffer.claim("b")
    with pytest.raises(BufferFullError, match="all 2 rows"):
        buffer.claim("c")


def test_released_row_is_free_again_and_no_longer_read() -> None:
    buffer = GradientBuffer(1, 1)
    index = buffer.claim("a")
    buffer.mark_filled(index)
    buffer.release(index)
    assert buffer.filled() == ()
    assert buffer.claim("b") == index
    assert buffer.filled() == ()


def test_rows_that_were_given_back_are_claimed_before_untouched_ones() -> None:
    buffer = GradientBuffer(10, 1)
    for worker in "abc":
        buffer.claim(worker)
    buffer.keep("b")
    assert {buffer.claim("d"), buffer.claim("e")} == {0, 2}
    assert buffer.claim("f") == 3


def test_a_claim_takes_as_long_among_many_rows_as_among_few() -> None:
    def claims_s(n: int) -> float:
        buffer = GradientBuffer(n, 1)
        began = time.perf_counter()
        for number in range(n):
            buffer.claim(f"w{number}")
        return (time.perf_counter() - began) / n

    # A search would take a hundred times as long.
    few, many = (min(claims_s(n) for _ in range(5)) for n in (200, 20_000))
    assert many < 10 * few


def test_one_worker_holds_one_row() -> None:
    buffer = GradientBuffer(2, 1)
    buffer.claim("a")
    with pytest.raises(WorkerNameError, match="'a'"):
        buffer.claim("a")


def test_next_round_keeps_the_memory_and_the_rows_it_names() -> None:
    buffer = GradientBuffer(3, 3)
    address = buffer.row(0).data_ptr()
    for worker in ("a", "b", "c"):
        buffer.mark_filled(buffer.claim(worker))
    buffer.keep(["b", "gone"])
    assert [row.worker for row in buffer.filled()] == ["b"]
    assert buffer.row(buffer.claim("d")).data_ptr() == address
    buffer.keep(())
    assert buffer.workers == ()


@pytest.mark.parametrize("act", ["mark_filled", "release"])
def test_row_that_nobody_claimed_cannot_be_filled_or_released(act: str) -> None:
    with pytest.raises(WorkerNameError, match="no worker holds row 1"):
        getattr(GradientBuffer(2, 1), act)(1)


@pytest.mark.parametrize(("n_max", "d"), [(0, 1), (1, 0), (-1, 5)])
def test_empty_buffer_is_refused(n_max: int, d: int) -> None:
    with pytest.raises(ParameterError, match="n_max >= 1 and d >= 1"):
        GradientBuffer(n_max, d)
