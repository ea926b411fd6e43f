"""The chart is drawn from any facts, and its labels never lie on each other."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pliska.trainer.demo.chart import MARKS_MAX, draw_chart, marks, spread
from pliska.trainer.demo.facts import DemoFacts, Event, EventKind
from pliska.trainer.demo.jobs import RunName


def test_chart_is_a_picture_of_a_readable_size(facts: DemoFacts, tmp_path: Path) -> None:
    draw_chart(facts, tmp_path / "chart.png")
    with Image.open(tmp_path / "chart.png") as picture:
        assert picture.format == "PNG"
        assert picture.width >= 1200
        assert picture.height >= 600


@pytest.mark.parametrize("curves", [True, False])
def test_chart_is_drawn_of_a_run_that_went_wrong(
    facts: DemoFacts, tmp_path: Path, curves: bool
) -> None:
    failed = replace(facts, curves=facts.curves if curves else {}, events=())
    draw_chart(failed, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 0


def test_marks_are_those_of_the_robust_run_and_the_registry(facts: DemoFacts) -> None:
    assert [(mark.round, mark.text) for mark in marks(facts.events)] == [
        (4, "w7 suspected; w8 suspected"),
        (10, "leader c1 killed"),
        (10, "c2 leads"),
        (20, "prod rolled back to version 1"),
    ]


def test_more_events_than_there_are_rows_for_are_counted() -> None:
    events = [
        Event(EventKind.FLAGGED, RunName.ROBUST, k, float(k), f"event {k}")
        for k in range(MARKS_MAX + 3)
    ]
    assert len(marks(events[:MARKS_MAX])) == MARKS_MAX
    drawn = marks(events)
    assert len(drawn) == MARKS_MAX
    assert drawn[-1].text == "and 4 more events"


@given(st.lists(st.floats(0, 100), max_size=6))
def test_labels_keep_their_distance_and_their_order(wanted: list[float]) -> None:
    placed = spread(wanted, gap=5, least=0, most=100)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    assert all(placed[b] - placed[a] >= 5 - 1e-9 for a, b in pairwise(order))
    assert all(0 <= position <= 100 for position in placed)


@given(st.lists(st.integers(0, 10), max_size=6, unique=True))
def test_labels_that_have_room_stay_where_they_are(tenths: list[int]) -> None:
    wanted = [10.0 * tenth for tenth in tenths]
    assert spread(wanted, gap=5, least=0, most=100) == wanted
