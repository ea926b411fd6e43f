import threading
from collections.abc import Iterator

import pytest
import torch

from pliska.aggregation.engine.threads import over_spans


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
