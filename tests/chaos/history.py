"""What happened to locks, as the processes that used them saw it: one JSON object a line.

Times are seconds of the clock that all processes of one boot share. An event
names the interval in which it happened where one moment cannot be told.
"""

import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

from pliska.locks import SystemClock

Event = dict[str, Any]

_clock = SystemClock()


def now_s() -> float:
    return _clock.now_s()


class Recorder:
    """Appends events to a file that many threads and processes share."""

    def __init__(self, path: Path, who: str) -> None:
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self.who = who
        self._numbers = itertools.count()

    def record(self, kind: str, **fields: object) -> None:
        line = json.dumps({"kind": kind, "who": self.who, "at_s": now_s(), **fields}) + "\n"
        with self._lock:
            if self._file is not None:  # a session that was lost may have something to say later
                os.write(self._file, line.encode())  # at once: no other line comes in between

    def new_handle(self) -> str:
        return f"{self.who}/{next(self._numbers)}"

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None


def read_history(path: Path) -> list[Event]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
