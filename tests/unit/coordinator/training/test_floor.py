"""Which numbers are too few for what protects a round."""

import pytest

from pliska.aggregation import rule_named
from pliska.coordinator.training.floor import Floor, filter_faults


def too_few(floor: Floor, n_max: int) -> list[int]:
    return [n for n in range(n_max + 1) if floor.shortage(n) is not None]


def test_rule_is_asked_about_every_number() -> None:
    floor = Floor.of_rule(rule_named("multi-krum", f=1), 9)
    assert too_few(floor, 9) == [0, 1, 2, 3, 4]
    assert floor.least() == 5
    shortage = floor.shortage(4)
    assert shortage is not None
    assert "n >= 2f + 3" in shortage


def test_with_f_as_a_fraction_more_may_be_too_few() -> None:
    floor = Floor.of_rule(rule_named("krum", f=0.2), 12)
    assert floor.shortage(5) is None  # f = 1
    assert floor.shortage(6) is not None  # f = 2 needs 7
    assert floor.shortage(7) is None
    assert floor.shortage(11) is None  # f = 3 needs 9


def test_with_f_auto_one_fault_is_to_be_borne() -> None:
    assert too_few(Floor.of_rule(rule_named("trimmed-mean", f="auto"), 5), 5) == [0, 1, 2]


@pytest.mark.parametrize(("f", "least"), [(0, 1), (1, 4), (2, 7), (0.2, 1), ("auto", 1)])
def test_filter_needs_more_than_three_workers_for_each_liar(f: int | float, least: int) -> None:
    floor = Floor.of_filter(f, 12)
    enough = [n for n in range(1, 13) if floor.shortage(n) is None]
    assert min(enough) >= least
    for n in enough:
        assert n >= 3 * filter_faults(f, n) + 1


def test_nothing_is_too_few_where_nothing_is_asked() -> None:
    assert Floor({}).shortage(0) is None
    assert Floor({}).least() == 0
