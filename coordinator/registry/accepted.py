"""What a node has accepted of an alias, kept on its own disk across restarts.

Whoever controls the store could show a restarted node an older state of the alias,
which is as well signed as any. The node compares with the newest history entry
that it ever accepted, and refuses what is older or does not descend from it.
"""

import fcntl
import os
from pathlib import Path

from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.registry.errors import RefusedError
from pliska.coordinator.registry.history import HISTORY_ENTRY_BYTES_MAX, HistoryEntry
from pliska.coordinator.storage.storage import LocalStorage


class AcceptedEntry:
    """The newest accepted entry of one alias, in a directory of this node. One process at a time.

    Args:
        directory: Made where it is missing.
        namespace: Where the alias is.
        model: Its model.
        alias: Its name.

    Raises:
        RefusedError: Another process of this machine uses it.
        StorageError: The directory cannot be used.
        IntegrityError: What is kept there is damaged: remove it only if you know why.
    """

    def __init__(self, directory: Path, namespace: str, model: str, alias: str) -> None:
        self._storage = LocalStorage(directory)
        self._name = f"{namespace}/{model}/{alias}.json"
        self._lock: int | None = _locked(directory / f"{namespace}.{model}.{alias}.lock")
        try:
            self._entry = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def entry(self) -> HistoryEntry | None:
        """The entry; None before the first."""
        return self._entry

    def accept(self, entry: HistoryEntry) -> None:
        """Keep a newer entry; it is on disk when this returns. Raises `StorageError`."""
        self._storage.write(self._name, (entry.to_bytes(),))
        self._entry = entry

    def close(self) -> None:
        """Let another process use it. Harmless when that happened before."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _read(self) -> HistoryEntry | None:
        try:
            content = self._storage.read(self._name, HISTORY_ENTRY_BYTES_MAX)
        except MissingObjectError:
            return None
        return HistoryEntry.from_bytes(content, self._name)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RefusedError(
            f"another process serves with {path.parent}: give each a directory of its own"
        ) from error
    return descriptor
