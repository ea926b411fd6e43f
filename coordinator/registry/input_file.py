"""A file that somebody names, read whole and bounded: no pipe, no device, no surprise."""

import os
import stat
from pathlib import Path

from pliska.coordinator.registry.errors import (
    NotFoundError,
    RegistryUsageError,
    TensorFormatError,
)


def open_input(path: Path) -> int:
    """Open a plain file for reading and return its descriptor.

    Raises:
        NotFoundError: There is no such file.
        RegistryUsageError: It cannot be opened.
        TensorFormatError: It is not a plain file.
    """
    try:
        # Non-blocking, so that a pipe of that name does not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise RegistryUsageError(f"cannot read {str(path)!r}: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TensorFormatError(f"{path}: not a file")
    return descriptor


def read_input(path: Path, bytes_max: int) -> bytes:
    """Return a file's bytes. Raises as `open_input`, also where they are more than `bytes_max`."""
    with os.fdopen(open_input(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > bytes_max:
            raise TensorFormatError(f"{path}: {size} bytes, more than {bytes_max}")
        return file.read(size)
