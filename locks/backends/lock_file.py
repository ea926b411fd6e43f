"""One file of POSIX record locks: whose turn it is to write, and which sessions' processes live.

Record locks belong to a process: the kernel frees them the moment it dies, and
a forked child does not inherit them (an flock it would). Each lock is one byte
of the file, which stays empty. Two bytes queue the writers of the embedded
store; each session locks one more, at the offset that is its id.

A process loses all its record locks on a file when it closes any descriptor of
it. So there is one `LockFile` a process and file, and one descriptor for it.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreUnavailableError

TURN_BYTE = 0
NEXT_BYTE = 1
SESSION_BYTE_MIN = 1 << 16
SESSION_BYTE_MAX = 1 << 62

QUEUE_POLL_S = 0.0003
"""How often the next writer looks whether its turn has come; the wait in the kernel has no
deadline, and every call of ours has one."""

NEXT_PATIENCE_S = 0.02
"""How long to queue behind another waiting writer, which may have been stopped."""


class LockFile:
    """The record locks of one store, shared by all that uses it in this process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.identity = _identity(os.fstat(self._descriptor))
        self._clock = SystemClock()
        self._next = threading.Lock()
        self._turn = threading.Lock()
        self._sessions: set[int] = set()
        self.users = 0

    @classmethod
    def shared(cls, path: Path) -> "LockFile":
        """The lock file at `path`, opened once in this process. Pair with `close`."""
        with _registry_lock:
            # Looked up before it is opened: one descriptor too many, and closing it frees all.
            lock_file = _registry.get(_identity(path.stat())) if path.exists() else None
            if lock_file is None:
                lock_file = cls(path)
                _registry[lock_file.identity] = lock_file
            lock_file.users += 1
            return lock_file

    def close(self) -> None:
        """Leave the file; the last one to leave closes it unless a session still holds a byte."""
        with _registry_lock:
            self.users -= 1
            self._close_if_unused()

    @contextmanager
    def turn(self, until_s: float) -> Iterator[None]:
        """Hold the right to write; first come, first served as far as the kernel tells.

        Whoever waits next holds a second lock, so that a writer in a tight loop
        queues behind it instead of overtaking.

        Raises:
            StoreUnavailableError: The turn did not come before `until_s`.
        """
        with self._thread_turn(until_s):
            is_next = self._poll(NEXT_BYTE, min(until_s, self._clock.now_s() + NEXT_PATIENCE_S))
            try:
                has_turn = self._poll(TURN_BYTE, until_s)
            finally:
                if is_next:
                    self._unlock(NEXT_BYTE)
            if not has_turn:
                raise StoreUnavailableError(_BUSY)
            try:
                yield
            finally:
                self._unlock(TURN_BYTE)

    def hold_session(self, byte: int) -> None:
        """Show that this process lives, for as long as it does."""
        with _registry_lock:
            self._sessions.add(byte)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)

    def release_session(self, byte: int) -> None:
        """Give up a session's byte."""
        with _registry_lock:
            if byte in self._sessions:
                self._sessions.discard(byte)
                self._unlock(byte)
                self._close_if_unused()

    def is_abandoned(self, byte: int) -> bool:
        """Whether the process that held a session's byte has died."""
        with _registry_lock:
            if byte in self._sessions:
                return False
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)
            except OSError:
                return False
            self._unlock(byte)
            return True

    @contextmanager
    def _thread_turn(self, until_s: float) -> Iterator[None]:
        if not self._next.acquire(timeout=self._left_s(until_s)):
            raise StoreUnavailableError(_BUSY)
        try:
            has_turn = self._turn.acquire(timeout=self._left_s(until_s))
        finally:
            self._next.release()
        if not has_turn:
            raise StoreUnavailableError(_BUSY)
        try:
            yield
        finally:
            self._turn.release()

    def _poll(self, byte: int, until_s: float) -> bool:
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except (BlockingIOError, PermissionError):
                if self._clock.now_s() >= until_s:
                    return False
                time.sleep(QUEUE_POLL_S)
            else:
                return True

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def _left_s(self, until_s: float) -> float:
        return max(0.0, until_s - self._clock.now_s())

    def _close_if_unused(self) -> None:
        if self.users == 0 and not self._sessions:
            _registry.pop(self.identity, None)
            os.close(self._descriptor)


_BUSY = (
    "the embedded store is busy: other processes kept writing, or one was stopped in the middle "
    "of a write; continue or kill it, then try again"
)

_registry: dict[tuple[int, int], LockFile] = {}
_registry_lock = threading.Lock()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _forget_in_child() -> None:
    # The child owns none of these locks; it opens files of its own.
    global _registry_lock  # noqa: PLW0603 - another thread may have held it while we forked
    _registry_lock = threading.Lock()
    _registry.clear()


os.register_at_fork(after_in_child=_forget_in_child)
