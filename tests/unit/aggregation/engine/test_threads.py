import random
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pliska.aggregation.engine.threads import over_spans, sum_over_spans


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_results_come_in_column_order() -> None:
    found = over_spans(lambda first, end: (first, end), 5, 40, width=8)
    assert found == [(5, 13), (13, 21), (21, 29), (29, 37), (37, 40)]
    assert over_spans(lambda first, end: (first, end), 7, 7) == []


def test_the_caller_works_along_and_others_help() -> None:
    meet = threading.Barrier(3, timeout=30)

    def work(first: int, end: int) -> str:
        meet.wait()
        return threading.current_thread().name

    names = over_spans(work, 0, 3, width=1)
    assert threading.current_thread().name in names
    assert len(set(names)) == 3


@pytest.mark.parametrize("broken", range(4))
def test_what_work_raises_reaches_the_caller(broken: int) -> None:
    def work(first: int, end: int) -> None:
        if first == broken:
            raise ValueError(first)

    with pytest.raises(ValueError, match=str(broken)):
        over_spans(work, 0, 4, width=1)


def test_work_may_share_out_work_of_its_own() -> None:
    def work(first: int, end: int) -> int:
        return sum(over_spans(lambda a, b: b - a, first, end, width=1))

    assert over_spans(work, 0, 60, width=10) == [10] * 6


def test_parts_are_added_in_column_order_whoever_is_done_first() -> None:
    parts = [random.Random(number).uniform(-1, 1) * 10.0 ** (number % 17) for number in range(200)]
    in_order = 0.5
    for part in parts:
        in_order = in_order + part
    assert sum_over_spans(lambda first, _end: parts[first], 0.5, 0, 200, width=1) == in_order
    assert sum_over_spans(lambda first, _end: parts[first], 0.5, 7, 7) == 0.5


def test_a_part_is_forgotten_once_it_is_added() -> None:
    torch.set_num_threads(1)
    made: list[weakref.ref[NDArray[np.float64]]] = []

    def work(first: int, end: int) -> NDArray[np.float64]:
        assert sum(part() is not None for part in made) == 0
        part = np.full(3, float(end - first))
        made.append(weakref.ref(part))
        return part

    total = sum_over_spans(work, np.zeros(3), 0, 100, width=8)
    assert total.tolist() == [100.0] * 3
    assert len(made) == 13
