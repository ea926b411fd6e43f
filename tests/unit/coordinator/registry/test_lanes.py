import os
import threading

import pytest

from pliska.coordinator.registry.lanes import LANES_MAX, in_lanes


def test_results_come_in_the_order_of_the_items() -> None:
    assert in_lanes(lambda number: number * number, range(100)) == [n * n for n in range(100)]
    assert in_lanes(str, ()) == []


def test_several_items_are_worked_on_at_once() -> None:
    lanes = min(LANES_MAX, len(os.sched_getaffinity(0)))
    together = threading.Barrier(lanes)
    in_lanes(lambda _: together.wait(20.0), range(lanes))


def test_the_first_error_is_raised_and_what_has_not_begun_does_not() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        raise KeyError(number)

    with pytest.raises(KeyError, match="0"):
        in_lanes(work, range(10_000))
    assert len(begun) < 10_000


def test_lanes_are_named_after_who_asked() -> None:
    names = in_lanes(lambda _: threading.current_thread().name, range(3))
    assert all(name.startswith(threading.current_thread().name) for name in names)
