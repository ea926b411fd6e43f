"""Disks of simulated processes: what was written survives the process, which may die at any write.

Implements `pliska.coordinator.storage.storage.Storage`. A disk outlives its process
unless it is destroyed with the machine. A process can be killed before a write
has taken effect and after, before it hears of that: these are the two sides of
every fsync.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from simulation.virtual_loop import CURRENT, Killed, Process

from pliska.coordinator.errors import MissingObjectError, ObjectTooLargeError, StorageError

MayKill = Callable[[Process, str], None]
"""Asked before and after each write whether the process dies here."""
MayStop = Callable[[Process, str], None]
"""Asked before each access to a name whether the process is stopped here for a while."""


class Disk:
    """What one machine has stored.

    Attributes:
        changed: Names under which something else was stored than before.
        deleted: Names under which something was removed.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.changed: list[str] = []
        self.deleted: list[str] = []

    def store(self, name: str, content: bytes) -> None:
        """Store an object."""
        if self.objects.get(name, content) != content:
            self.changed.append(name)
        self.objects[name] = content

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(KeyError):
            del self.objects[name]
            self.deleted.append(name)


class DiskStorage:
    """A disk as whoever has it in hand sees it; see `storage.Storage`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks."""
        content = b"".join(bytes(chunk) for chunk in chunks)
        self._change("writing", name, lambda: self._disk.store(name, content))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object."""
        content = self._content(name)
        if len(content) > bytes_max:
            raise ObjectTooLargeError(f"{name} has {len(content)} bytes, over {bytes_max}")
        return content

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return exactly the `count` bytes from `offset` on."""
        part = self._content(name)[offset : offset + count]
        if len(part) != count:
            raise StorageError(f"{name} ends before byte {offset + count}")
        return part

    def size(self, name: str) -> int | None:
        """Return the length of the object."""
        self._require_access(name)
        content = self._disk.objects.get(name)
        return None if content is None else len(content)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`, sorted."""
        self._require_access(prefix)
        return sorted(name for name in self._disk.objects if name.startswith(prefix))

    def delete(self, name: str) -> bool:
        """Remove the object."""
        was_there = self.size(name) is not None
        self._change("deleting", name, lambda: self._disk.remove(name))
        return was_there

    def move(self, name: str, target: str) -> bool:
        """Give the object another name."""
        if self.size(name) is None or target in self._disk.objects:
            return False
        content = self._content(name)
        self._change("moving", target, lambda: self._disk.store(target, content))
        self._change("moving", name, lambda: self._disk.remove(name))
        return True

    def _content(self, name: str) -> bytes:
        self._require_access(name)
        try:
            return self._disk.objects[name]
        except KeyError as error:
            raise MissingObjectError(f"there is no {name}") from error

    def _change(self, _how: str, name: str, change: Callable[[], object]) -> None:
        self._require_access(name)
        change()

    def _require_access(self, name: str) -> None:
        """Raise where nothing can be read or written."""


class SimulatedStorage(DiskStorage):
    """A process's hold on a disk: it ends with the process.

    That may die at each write, and be stopped before each access.
    """

    def __init__(self, disk: Disk, process: Process, may_kill: MayKill, may_stop: MayStop) -> None:
        super().__init__(disk)
        self._process = process
        self._may_kill = may_kill
        self._may_stop = may_stop

    def _change(self, how: str, name: str, change: Callable[[], object]) -> None:
        self._require_access(name)
        self._may_kill(self._process, f"before {how} {name}")
        change()
        self._may_kill(self._process, f"after {how} {name}")

    def _require_access(self, name: str) -> None:
        if self._process.is_dead or CURRENT.get() is not self._process:
            raise Killed
        self._may_stop(self._process, name)
