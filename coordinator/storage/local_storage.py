"""Storage in a directory: files that are written beside their place, synced and renamed.

Called through `storage.Storage`; nobody else knows that objects are files.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from pliska.coordinator.errors import (
    LinkedObjectError,
    MissingObjectError,
    ObjectTooLargeError,
    StorageError,
    StorageFullError,
)
from pliska.coordinator.storage.name import is_name, require_name, require_prefix

TEMPORARY_AGE_MAX_S = 3600.0
"""A temporary file untouched for so long was left by a crash and is swept away."""

FOLDER_TRIES = 16
"""How often a folder is made that others remove because it is empty."""

_TEMPORARY_SUFFIX = ".tmp"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalStorage:
    """A directory of files. See `Storage` for what each method promises.

    A file is written beside its final place, fsynced, renamed, and then the
    directory is fsynced. A crash leaves at most a temporary file, which no
    method shows and `sweep` removes. Symbolic links below the directory are refused.
    """

    def __init__(self, directory: Path) -> None:
        """Make the directory where it is missing and keep its real path."""
        with _translated(str(directory), "open"):
            _make_directories(directory)
            self._root = directory.resolve(strict=True)

    def __str__(self) -> str:
        return str(self._root)

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks under `name`; see `Storage.write`."""
        path = self._path(name)
        with _translated(name, "write"):
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}")
            descriptor = _create_in_folder(temporary)
            try:
                _write_durably(descriptor, chunks)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            sync_directory(path.parent)

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object; see `Storage.read`."""
        with self._opened(name) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > bytes_max:
                raise ObjectTooLargeError(
                    f"{name}: {size} bytes, more than the {bytes_max} that are read here"
                )
            return _read_exactly(name, descriptor, 0, size)

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return a part of the object; see `Storage.read_range`."""
        with self._opened(name) as descriptor:
            return _read_exactly(name, descriptor, offset, count)

    def size(self, name: str) -> int | None:
        """Return the length of the object in bytes, or None where there is none."""
        path = self._path(name)
        with _translated(name, "read"):
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`, sorted."""
        require_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        top = self._path(folder) if folder else self._root
        with _translated(prefix, "list"):
            found = (path.relative_to(self._root).as_posix() for path in _files(top))
            return sorted(name for name in found if name.startswith(prefix) and is_name(name))

    def delete(self, name: str) -> bool:
        """Remove the object durably, and folders that it leaves empty; False where there was none.

        An empty folder that a crash leaves behind goes with the next object beside it.
        """
        path = self._path(name)
        with _translated(name, "delete"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return False
            self._tidy(path)
            return True

    def move(self, name: str, target: str) -> bool:
        """Give the object another name, and remove folders that it leaves empty."""
        path, place = self._path(name), self._path(target)
        with _translated(name, "move"):
            for _ in range(FOLDER_TRIES):
                if self.size(name) is None or self.size(target) is not None:
                    return False
                with contextlib.suppress(FileNotFoundError):  # or the folder just went away
                    _make_directories(place.parent)
                    path.rename(place)
                    _sync_if_there(place.parent)
                    self._tidy(path)
                    return True
        raise StorageError(f"the folder {place.parent} vanishes as often as it is made")

    def sweep(self, now: float) -> list[Path]:
        """Remove temporary files that a crash left behind; return them.

        Args:
            now: seconds since 1970, compared with the files' own times.
        """
        removed = []
        with _translated(str(self._root), "sweep"):
            for path in _files(self._root):
                if not (path.name.startswith(".") and path.name.endswith(_TEMPORARY_SUFFIX)):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if now - path.lstat().st_mtime > TEMPORARY_AGE_MAX_S:
                        path.unlink()
                        removed.append(path)
        return removed

    def _tidy(self, path: Path) -> None:
        """Make durable that a file is no longer at `path`; remove folders that are empty now."""
        _sync_if_there(path.parent)
        for folder in path.parents:
            if folder == self._root or not _remove_if_empty(folder):
                break

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        path = self._path(name)
        with _translated(name, "read"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MissingObjectError(f"{name}: nothing is stored under this name") from error
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _path(self, name: str) -> Path:
        """Return where `name` lies; a link on the way there is refused."""
        require_name(name)
        path = self._root / name
        for place in (path, *path.parents):
            if place == self._root:
                break
            if place.is_symlink():
                raise LinkedObjectError(
                    f"{name}: {place} is a symbolic link, which storage never follows"
                )
        return path


def _files(top: Path) -> Iterator[Path]:
    """Yield the files below `top`; links to folders are not followed."""
    for folder, _, files in os.walk(top):
        for file in files:
            yield Path(folder, file)


def _create_in_folder(path: Path) -> int:
    """Create a new file, and its folder where it is missing; return its descriptor.

    A folder that somebody empties at this moment may go away before the file is in it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(FOLDER_TRIES):
        with contextlib.suppress(FileNotFoundError):
            _make_directories(path.parent)
            return os.open(path, flags, 0o644)
    raise StorageError(f"the folder {path.parent} vanishes as often as it is made")


def _write_durably(descriptor: int, chunks: Iterable[bytes | memoryview]) -> None:
    """Write the chunks, sync, and close the descriptor in any case."""
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            rest = view.cast("B") if view.nbytes else view
            while rest.nbytes:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_exactly(name: str, descriptor: int, offset: int, count: int) -> bytes:
    pieces: list[bytes] = []  # one, unless it is larger than the system reads at once
    missing = count
    while missing:
        piece = os.pread(descriptor, missing, offset + count - missing)
        if not piece:
            raise StorageError(f"{name}: cut short: {missing} of {count} bytes are missing")
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder durably; False where something is in it or it is gone already."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    _sync_if_there(folder.parent)
    return True


def _sync_if_there(directory: Path) -> None:
    """Make what was removed from a folder durable, unless the folder was removed itself."""
    with contextlib.suppress(FileNotFoundError):
        sync_directory(directory)


def _make_directories(directory: Path) -> None:
    """Make what is missing on the way to `directory`, each entry durable in its parent."""
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make durable which entries a folder has."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translated(name: str, action: str) -> Iterator[None]:
    """Turn an error of the operating system into one of ours that names the object."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError(
                f"cannot {action} {name}: {error.strerror}; nothing was stored, make room"
            ) from error
        raise StorageError(f"cannot {action} {name}: {error.strerror or error}") from error
