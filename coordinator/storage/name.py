"""Names of stored objects: what is one, and that no other is used.

A name is parts of letters, digits, `.`, `_` and `-` joined by `/`; no part begins
with a dot or a dash, so no name leaves a storage or hides in it.
"""

import re

from pliska.coordinator.errors import StorageUsageError

NAME_CHARACTERS_MAX = 512
"""Longest object name, slashes included."""
SEGMENT_CHARACTERS_MAX = 128
"""Longest part of a name between two slashes; a temporary file's name is 22 longer."""

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def is_name(text: str) -> bool:
    """Say whether `text` is a valid object name."""
    return len(text) <= NAME_CHARACTERS_MAX and all(
        len(part) <= SEGMENT_CHARACTERS_MAX and _SEGMENT.fullmatch(part) is not None
        for part in text.split("/")
    )


def require_name(text: str) -> None:
    """Raise `StorageUsageError` unless `text` is a valid object name."""
    if not is_name(text):
        raise StorageUsageError(
            f"not an object name: {text[:80]!r}; use letters, digits, '.', '_' and '-' "
            f"in parts of at most {SEGMENT_CHARACTERS_MAX} joined by '/'"
        )


def require_prefix(text: str) -> None:
    """Raise `StorageUsageError` unless an object name can begin with `text`."""
    folder, _, start = text.rpartition("/")
    if start and not _SEGMENT.fullmatch(start):
        raise StorageUsageError(f"not a prefix of object names: {text!r}")
    if folder:
        require_name(folder)
