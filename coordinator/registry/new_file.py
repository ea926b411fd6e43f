"""A file that is made whole and durable, or not at all, where no file was before."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.storage.local_storage import sync_directory


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path`, which becomes `path` when the caller has written it.

    Raises:
        RegistryUsageError: The file exists, or cannot be made or written there.
    """
    if path.exists():
        raise RegistryUsageError(f"{path} exists; remove it or choose another path")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise RegistryUsageError(f"cannot write {path}: {error.strerror or error}") from error
