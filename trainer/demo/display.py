"""What the person watching the demonstration sees while it runs.

On a terminal a table that is redrawn in place; elsewhere plain lines, one for
each event and one for each tenth of a run. Shows snapshots and decides nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pliska.trainer.demo.facts import Event
from pliska.trainer.demo.jobs import RunName

EVENTS_SHOWN = 8
"""The newest events, below the table."""

BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """One training at one moment.

    Attributes:
        run: Which of the three.
        rule: The rule that combines its gradients.
        round: The last committed round.
        rounds: How many there will be.
        accuracy: The newest measurement, 0 to 1; None before the first.
        leader: Who leads; None while nobody does.
        suspects: Workers under suspicion now.
    """

    run: RunName
    rule: str
    round: int
    rounds: int
    accuracy: float | None = None
    leader: str | None = None
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The demonstration at one moment: its runs, and its events so far in order."""

    runs: tuple[RunSnapshot, ...]
    events: tuple[Event, ...]


class Display(Protocol):
    """Something that shows snapshots to a person."""

    def show(self, snapshot: DemoSnapshot) -> None:
        """Show the newest snapshot."""


@contextmanager
def open_display(console: Console) -> Iterator[Display]:
    """Return what fits the console; leaving the block leaves the last snapshot on it."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield LiveDisplay(live)
    else:
        yield PlainDisplay(console)


class LiveDisplay:
    """Redraws the table in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, snapshot: DemoSnapshot) -> None:
        """Draw the snapshot over the one before."""
        self._live.update(render(snapshot), refresh=True)


class PlainDisplay:
    """Prints what is new as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = DemoSnapshot((), ())

    def show(self, snapshot: DemoSnapshot) -> None:
        """Print what the snapshot before did not have."""
        for line in new_lines(self._shown, snapshot):
            self._console.print(Text(line), soft_wrap=True)
        self._shown = snapshot


def render(snapshot: DemoSnapshot) -> Group:
    """Return the snapshot as a table with the newest events below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("RUN", "RULE", "PROGRESS", "ROUND", "ACCURACY", "LEADER", "SUSPECTED"):
        table.add_column(column, no_wrap=column != "SUSPECTED")
    for run in snapshot.runs:
        table.add_row(
            run.run.value,
            Text(run.rule),
            ProgressBar(total=run.rounds, completed=run.round, width=BAR_WIDTH),
            f"{run.round}/{run.rounds}",
            _percent(run.accuracy),
            Text(run.leader or "-"),
            Text(", ".join(run.suspects) or "-"),
        )
    events = (Text(_event_line(event), "dim") for event in snapshot.events[-EVENTS_SHOWN:])
    return Group(table, Text(), *events)


def new_lines(before: DemoSnapshot, after: DemoSnapshot) -> list[str]:
    """Return a line for each new event, and for each run that entered another tenth."""
    lines = [_event_line(event) for event in after.events[len(before.events) :]]
    tenths = {run.run: _tenths(run) for run in before.runs}
    lines += [_run_line(run) for run in after.runs if _tenths(run) != tenths.get(run.run, 0)]
    return lines


def _tenths(run: RunSnapshot) -> int:
    return 10 * run.round // run.rounds


def _event_line(event: Event) -> str:
    run = "" if event.run is None else f"{event.run}: "
    return f"{event.elapsed_s:6.1f} s  {run}{event.text}"


def _run_line(run: RunSnapshot) -> str:
    return (
        f"          {run.run}: round {run.round}/{run.rounds}, accuracy {_percent(run.accuracy)}, "
        f"leader {run.leader or '-'}, suspected {_names(run.suspects)}"
    )


def _percent(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{100 * accuracy:.1f} %"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "nobody"
