"""The events of a demonstration in the order in which they happened, with their times."""

import time

from pliska.trainer.demo.facts import Event, EventKind
from pliska.trainer.demo.jobs import RunName


class Journal:
    """Notes events; begins to count time when it is made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._events: list[Event] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demonstration began."""
        return time.monotonic() - self._began_s

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far."""
        return tuple(self._events)

    def note(self, kind: EventKind, run: RunName | None, round_number: int, text: str) -> None:
        """Write down what just happened."""
        self._events.append(Event(kind, run, round_number, self.elapsed_s, text))
