"""Keeps a local copy of something in the store true, in a thread of its own.

Read, hand over what was read, wait until it changes, read again. A read that
fails is reported and repeated with growing, jittered pauses; whoever holds the
copy keeps it. What is read is the whole state, so whatever was missed during an
outage is made up by the first read after it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from pliska.discovery.retry import retry_pause_s
from pliska.locks import Clock, LockError, Revision
from pliska.locks.errors import ForkedProcessError

CONFIRM_S = 5.0
"""Read anew after so long without a change: an outage is noticed, and the copy's age is small."""
SETTLE_S = 0.01
"""Pause after each read, so that a burst of changes costs few reads."""
READ_TIMEOUT_S = 5.0
BACKWARD_PATIENCE_S = 3.0
"""How long answers may be older than what was seen before they are believed."""


BEGINNING = Revision(0)
"""Before everything."""


class Versioned(Protocol):
    """An answer of the store."""

    @property
    def revision(self) -> Revision:
        """How new it is."""


AnswerT = TypeVar("AnswerT", bound=Versioned)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy has come.

    Attributes:
        revision: Of the newest answer that was taken.
        backward_since_s: When answers began to be older than that; None while they are not.
    """

    revision: Revision = BEGINNING
    backward_since_s: float | None = None


def admit(now_s: float, progress: Progress, revision: Revision) -> tuple[bool, str, Progress]:
    """Whether to take an answer, why, and the progress after it.

    An older answer comes from a server that lags behind, and the copy must not
    go back in time. If it stays older, the store itself has gone back (it was
    restored, or its counter started anew), and the copy follows.

    Args:
        now_s: The time.
        progress: How far the copy has come.
        revision: The answer's.
    """
    if revision >= progress.revision:
        return True, "not older than what was seen", Progress(revision)
    since_s = now_s if progress.backward_since_s is None else progress.backward_since_s
    if now_s - since_s >= BACKWARD_PATIENCE_S:
        return True, f"the store has gone back to revision {revision}", Progress(revision)
    reason = f"revision {revision} is older than {progress.revision}, which was seen before"
    return False, reason, Progress(progress.revision, since_s)


class Follower(Generic[AnswerT]):
    """The thread. It begins with `start` and ends soon after `close`."""

    def __init__(
        self,
        name: str,
        read: Callable[[], AnswerT],
        wait: Callable[[Revision, float], bool],
        take: Callable[[AnswerT], None],
        miss: Callable[[str], None],
        clock: Clock,
        random: Random,
    ) -> None:
        """Name what to do; nothing happens yet.

        Args:
            name: Of the thread.
            read: Reads the whole state.
            wait: Waits for a change after a revision, up to some seconds.
            take: Gets each answer that `admit` lets through.
            miss: Gets the reason when there is no such answer.
            clock: Where the time comes from.
            random: Spreads retries.
        """
        self._read = read
        self._wait = wait
        self._take = take
        self._miss = miss
        self._clock = clock
        self._random = random
        self._closed = threading.Event()
        self._progress = Progress()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Take and miss nothing from now on, except what is being handed over just now."""
        self._closed.set()

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                failures = 0 if self._step() else failures + 1
            except ForkedProcessError:
                return
            except LockError as error:
                failures += 1
                self._report(str(error))
            if failures:
                self._closed.wait(retry_pause_s(failures, self._random))

    def _step(self) -> bool:
        """Read once and wait for the next change; False when the answer was not taken."""
        answer = self._read()
        is_taken, reason, self._progress = admit(
            self._clock.now_s(), self._progress, answer.revision
        )
        if self._closed.is_set():
            return True
        if not is_taken:
            self._report(reason)
            return False
        self._take(answer)
        self._closed.wait(SETTLE_S)
        # Confirming reads of many copies do not all come at once.
        self._wait(answer.revision, CONFIRM_S * (0.75 + 0.25 * self._random.random()))
        return True

    def _report(self, reason: str) -> None:
        if not self._closed.is_set():
            self._miss(reason)
