"""The demonstration as one picture: accuracy over the rounds of the three runs, events marked.

matplotlib is imported when the chart is drawn, and draws without a display.
Colours are Okabe and Ito's, which colour-blind people tell apart; each run has
a line style of its own besides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pliska.trainer.demo.errors import MissingExtraError
from pliska.trainer.demo.facts import DemoFacts, Event, EventKind
from pliska.trainer.demo.jobs import RunName

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES = 10.0
CURVES_INCHES = 4.6
ROW_INCHES = 0.24
"""One row of the lane of events below the curves."""
DPI = 150

LABEL_GAP_POINTS = 5.0
"""Least distance of the labels of two curves that end close together, in percentage points."""
MARKS_MAX = 10
"""Rows of the lane; of more events the first are drawn, and the rest counted."""

BLUE, VERMILION, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"


@dataclass(frozen=True, slots=True)
class Mark:
    """One vertical line of the chart, with its row in the lane below."""

    round: int
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class _Style:
    """How the curve of one run is drawn."""

    colour: str
    line: str
    width: float


_STYLES = {
    RunName.CLEAN: _Style(BLACK, "--", 1.6),
    RunName.ROBUST: _Style(BLUE, "-", 2.4),
    RunName.MEAN: _Style(VERMILION, "-.", 2.0),
}

_COLOURS = {
    EventKind.FLAGGED: VERMILION,
    EventKind.LEADER_KILLED: BLACK,
    EventKind.TAKEN_OVER: BLUE,
    EventKind.PROMOTED: GREEN,
    EventKind.ROLLED_BACK: GREEN,
}
"""The kinds of event that are marked, of the robust run and of the registry."""


def draw_chart(facts: DemoFacts, path: Path) -> None:
    """Draw the three accuracy curves and the marked events to a PNG.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "drawing the chart") from error
    drawn = marks(facts.events)
    lane_inches = ROW_INCHES * max(1, len(drawn)) + 0.1
    figure = Figure(
        figsize=(WIDTH_INCHES, CURVES_INCHES + lane_inches), dpi=DPI, layout="constrained"
    )
    curves, lane = figure.subplots(2, sharex=True, height_ratios=[CURVES_INCHES, lane_inches])
    _draw_curves(curves, facts)
    _draw_lane(curves, lane, drawn, facts.options.rounds)
    figure.savefig(path, format="png")


def marks(events: Iterable[Event]) -> list[Mark]:
    """Return the events worth a mark; those of one kind and round are joined."""
    chosen = [
        event for event in events if event.kind in _COLOURS and event.run in (RunName.ROBUST, None)
    ]
    joined = [
        Mark(at_round, "; ".join(event.text for event in group), _COLOURS[kind])
        for (at_round, kind), group in groupby(chosen, key=lambda each: (each.round, each.kind))
    ]
    if len(joined) <= MARKS_MAX:
        return joined
    last = joined[MARKS_MAX - 1]
    rest = Mark(last.round, f"and {len(joined) - MARKS_MAX + 1} more events", BLACK)
    return [*joined[: MARKS_MAX - 1], rest]


def spread(wanted: Sequence[float], gap: float, least: float, most: float) -> list[float]:
    """Move positions apart until neighbours have `gap` between them, in the same order.

    Args:
        wanted: Where each label would like to be.
        gap: Least distance of two labels.
        least: No label lies below this.
        most: Nor above this, as far as there is room for all.

    Returns:
        One position for each wanted one.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    top = most
    for i in reversed(order):
        placed[i] = min(placed[i], top)
        top = placed[i] - gap
    bottom = least
    for i in order:
        placed[i] = max(placed[i], bottom)
        bottom = placed[i] + gap
    return placed


def _draw_curves(axes: "Axes", facts: DemoFacts) -> None:
    options = facts.options
    names = {
        RunName.CLEAN: "no attack",
        RunName.ROBUST: options.rule,
        RunName.MEAN: "mean",
    }
    drawn = [run for run in _STYLES if facts.curves.get(run)]
    for run in drawn:
        style, curve = _STYLES[run], facts.curves[run]
        axes.plot(
            [measurement.round for measurement in curve],
            [100 * measurement.accuracy for measurement in curve],
            color=style.colour,
            linestyle=style.line,
            linewidth=style.width,
        )
    ends = [100 * facts.curves[run][-1].accuracy for run in drawn]
    for run, end, height in zip(drawn, ends, spread(ends, LABEL_GAP_POINTS, 0, 100), strict=True):
        axes.annotate(
            f"{names[run]} {end:.1f} %",
            (1.01, height),
            xycoords=axes.get_yaxis_transform(),
            color=_STYLES[run].colour,
            va="center",
            fontweight="bold",
        )
    axes.set_title(options.attack_text, loc="left")
    axes.set_ylabel("test images read right, %")
    axes.set_ylim(0, 102)
    axes.grid(visible=True, color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_lane(curves: "Axes", lane: "Axes", drawn: Sequence[Mark], rounds: int) -> None:
    """Draw each mark through the curves down to its own row, where its text stands."""
    for row, mark in enumerate(drawn):
        curves.axvline(mark.round, color=mark.colour, linewidth=0.9, linestyle=":")
        lane.plot([mark.round] * 2, [-1, row], color=mark.colour, linewidth=0.9, linestyle=":")
        lane.plot([mark.round], [row], marker="o", markersize=5, color=mark.colour, clip_on=False)
        is_early = mark.round <= rounds / 2
        lane.annotate(
            mark.text,
            (mark.round, row),
            xytext=(6 if is_early else -6, 0),
            textcoords="offset points",
            ha="left" if is_early else "right",
            va="center",
            fontsize="small",
        )
    lane.set_ylim(max(1, len(drawn)) - 0.5, -1)
    lane.set_xlim(0, rounds)
    lane.set_yticks([])
    lane.set_xlabel("round")
    lane.spines[["top", "right", "left"]].set_visible(False)
