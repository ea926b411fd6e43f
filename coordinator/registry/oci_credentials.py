"""A user's name and password for an OCI registry: from the environment or a private file."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliska.coordinator.registry.errors import NotFoundError, RegistryUsageError

USERNAME = "PLISKA_OCI_USERNAME"
PASSWORD = "PLISKA_OCI_PASSWORD"  # noqa: S105 - the variable's name
FILE_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class OciCredentials:
    """Who we are to a registry. The password is never printed."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"OciCredentials({self.username!r}, '***')"


def credentials_in(environment: Mapping[str, str], file: Path | None) -> OciCredentials | None:
    """Return the credentials that a file or else the environment holds; None where neither does.

    Args:
        environment: May have `PLISKA_OCI_USERNAME` and `PLISKA_OCI_PASSWORD`.
        file: Holds `USERNAME:PASSWORD`; nobody but its owner may read it.

    Raises:
        NotFoundError: There is no such file.
        RegistryUsageError: Others can read it, it holds something else, or one of
            the two variables is missing.
    """
    if file is not None:
        username, colon, password = _content(file).rstrip("\r\n").partition(":")
        if not colon or not username or not (username + password).isprintable():
            raise RegistryUsageError(f"{file} does not hold USERNAME:PASSWORD in one line")
        return OciCredentials(username, password)
    username, password = environment.get(USERNAME, ""), environment.get(PASSWORD, "")
    if not username and not password:
        return None
    if not username or not password or ":" in username:
        raise RegistryUsageError(f"set both {USERNAME}, without a colon, and {PASSWORD}")
    return OciCredentials(username, password)


def _content(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {file}") from error
    except (OSError, ValueError) as error:
        raise RegistryUsageError(f"cannot read {str(file)!r}: {error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
            raise RegistryUsageError(f"{file} can be read by others: chmod 600 {file}")
        content = os.read(descriptor, FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RegistryUsageError(f"{file} is not a text") from error
    if len(content) > FILE_BYTES_MAX:
        raise RegistryUsageError(f"{file} is longer than {FILE_BYTES_MAX} bytes")
    return text
