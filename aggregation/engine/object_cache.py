"""Compiled kernels on disk, so that a later process need not compile them again.

What is read here is executed. So the folder must belong to this user and be
closed to everyone else, an entry must be a plain file of this user that nobody
else can write, and it carries the digest of its key and of its contents.
Anything else is not used: a damaged entry is made anew, a folder that others
could have written to is left alone. The cache is never needed, only faster.
"""

import hashlib
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

DIRECTORY_VARIABLE = "PLISKA_CACHE"
"""Environment variable that names another folder; empty turns the cache off."""

ENTRY_BYTES_MAX = 1 << 22
"""No kernel comes near 4 MiB of machine code."""

ENTRIES_MAX = 1024
"""More kernels than any program uses; the oldest make room."""

MAGIC = b"pliska-kernel-1\n"
HEAD_BYTES = len(MAGIC) + 2 * hashlib.sha256().digest_size
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """Object files by key in one private folder.

    Attributes:
        directory: The folder; made with mode 0700 when first written to.
    """

    directory: Path

    def get(self, key: bytes) -> bytes | None:
        """Return the object stored under `key`, or None if there is none that can be trusted."""
        try:
            with self._opened() as folder:
                entry = _read_private(folder, _name(key))
        except OSError as error:
            logger.debug("no cached kernel: reason=%s", error)
            return None
        head, body = entry[:HEAD_BYTES], entry[HEAD_BYTES:]
        if not hmac.compare_digest(head, _head(key, body)):
            logger.warning("a cached kernel is damaged and is compiled anew: name=%s", _name(key))
            return None
        return body

    def put(self, key: bytes, body: bytes) -> None:
        """Store `body` under `key` in one step; say so and go on if that is not possible."""
        partial = f"{_name(key)}.{secrets.token_hex(8)}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._opened() as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    with os.fdopen(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as file:
                        file.write(_head(key, body) + body)
                    os.replace(partial, _name(key), src_dir_fd=folder, dst_dir_fd=folder)
                    _make_room(folder)
                except OSError:
                    with _absence_allowed():
                        os.unlink(partial, dir_fd=folder)
                    raise
        except OSError as error:
            logger.warning("a compiled kernel was not kept for later: reason=%s", error)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Hold the folder open, having checked that it is ours alone."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self.directory, flags)
        try:
            found = os.fstat(folder)
            if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(
                    f"{self.directory} must belong to this user and have mode 0700; "
                    "kernels in it are not trusted"
                )
            yield folder
        finally:
            os.close(folder)


def default_cache() -> ObjectCache | None:
    """Return the cache of this user, or None if it is turned off or there is no home."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named is not None:
        return ObjectCache(Path(named)) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        return None
    return ObjectCache(root / "pliska" / "kernels") if root.is_absolute() else None


@contextmanager
def _absence_allowed() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return


def _read_private(folder: int, name: str) -> bytes:
    """Return the contents of a plain file that only this user can have written."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{name} is not a plain file of this user")
        if found.st_mode & OTHERS_MAY_WRITE or found.st_nlink != 1:
            raise PermissionError(f"{name} can be written by others")
        if found.st_size > ENTRY_BYTES_MAX:
            raise PermissionError(f"{name} is larger than any kernel")
        return file.read(found.st_size)


def _make_room(folder: int) -> None:
    """Delete the oldest entries above `ENTRIES_MAX`."""
    names = os.listdir(folder)
    if len(names) <= ENTRIES_MAX:
        return
    ages = {}
    for name in names:
        with _absence_allowed():
            ages[name] = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    for name in sorted(ages, key=lambda name: (ages[name], name))[: len(names) - ENTRIES_MAX]:
        with _absence_allowed():
            os.unlink(name, dir_fd=folder)


def _name(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest() + ".o"


def _head(key: bytes, body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(key).digest() + hashlib.sha256(key + body).digest()
