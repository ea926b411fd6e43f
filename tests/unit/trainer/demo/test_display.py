"""What is shown while the demonstration runs, on a terminal and elsewhere."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from pliska.trainer.demo.display import (
    EVENTS_SHOWN,
    DemoSnapshot,
    LiveDisplay,
    PlainDisplay,
    RunSnapshot,
    new_lines,
    open_display,
    render,
)
from pliska.trainer.demo.facts import Event, EventKind
from pliska.trainer.demo.jobs import RunName

RUN = RunSnapshot(
    RunName.ROBUST,
    "multi-krum",
    round=57,
    rounds=120,
    accuracy=0.912,
    leader="c1",
    suspects=("w8",),
)
EVENT = Event(EventKind.LEADER_KILLED, RunName.ROBUST, 60, 12.25, "leader c1 killed")
BEGINNING = DemoSnapshot((), ())


def console(*, terminal: bool) -> tuple[Console, StringIO]:
    output = StringIO()
    return Console(file=output, force_terminal=terminal, width=110, no_color=True), output


def test_terminal_gets_a_table_and_anything_else_gets_lines() -> None:
    with open_display(console(terminal=True)[0]) as display:
        assert isinstance(display, LiveDisplay)
    with open_display(console(terminal=False)[0]) as display:
        assert isinstance(display, PlainDisplay)


def test_table_shows_rounds_accuracy_leader_and_suspects() -> None:
    screen, output = console(terminal=True)
    screen.print(render(DemoSnapshot((RUN,), (EVENT,))))
    text = output.getvalue()
    for part in ("robust", "multi-krum", "57/120", "91.2 %", "c1", "w8", "leader c1 killed"):
        assert part in text


def test_table_fits_the_screen_however_many_events_there_are() -> None:
    screen, output = console(terminal=True)
    events = tuple(replace(EVENT, text=f"event {number}.") for number in range(40))
    screen.print(render(DemoSnapshot((RUN,), events)))
    assert output.getvalue().count("event ") == EVENTS_SHOWN
    assert "event 39." in output.getvalue()


def test_terminal_keeps_the_last_table() -> None:
    screen, output = console(terminal=True)
    with open_display(screen) as display:
        display.show(DemoSnapshot((RUN,), ()))
        display.show(DemoSnapshot((replace(RUN, round=58),), ()))
    assert "58/120" in output.getvalue().rpartition("RUN")[2]


def test_event_is_printed_once() -> None:
    screen, output = console(terminal=False)
    with open_display(screen) as display:
        for _ in range(3):
            display.show(DemoSnapshot((), (EVENT,)))
    assert output.getvalue() == "  12.2 s  robust: leader c1 killed\n"


def test_run_gets_a_line_for_each_tenth() -> None:
    lines, before = [], BEGINNING
    for round_number in range(121):
        after = DemoSnapshot((replace(RUN, round=round_number),), ())
        lines += new_lines(before, after)
        before = after
    assert len(lines) == 10
    last = "robust: round 120/120, accuracy 91.2 %, leader c1, suspected w8"
    assert lines[-1].strip() == last


def test_run_before_its_first_measurement_can_be_shown() -> None:
    bare = RunSnapshot(RunName.MEAN, "mean", round=0, rounds=120)
    screen, output = console(terminal=True)
    screen.print(render(DemoSnapshot((bare,), ())))
    assert "0/120" in output.getvalue()


def test_text_of_an_event_is_not_read_as_markup() -> None:
    screen, output = console(terminal=True)
    screen.print(render(DemoSnapshot((), (replace(EVENT, text="[bold]as it is[/bold]"),))))
    assert "[bold]as it is[/bold]" in output.getvalue()
