"""The names of locks, semaphores, barriers and elections."""

import re

from pliska.locks.errors import LockUsageError

NAME_CHARACTERS_MAX = 200

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_RESERVED = frozenset(
    {".", "..", "contenders", "generation", "leader", "leases", "members", "passed-over", "size"}
)


def check_name(name: str) -> None:
    """Refuse a name that would not make a key, or would collide with our own records.

    Raises:
        LockUsageError: Empty, longer than `NAME_CHARACTERS_MAX`, or a segment
            that is reserved or has other characters than letters, digits and "_.-".
    """
    if len(name) > NAME_CHARACTERS_MAX or _NAME.fullmatch(name) is None:
        raise LockUsageError(
            f"{name[:80]!r} is no name for a lock or an election: use letters, digits and _.- , "
            f"with slashes between segments, at most {NAME_CHARACTERS_MAX} characters"
        )
    reserved = _RESERVED.intersection(name.split("/"))
    if reserved:
        raise LockUsageError(f"the name {name!r} has the reserved segment {min(reserved)!r}")
