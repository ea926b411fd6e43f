"""The rules for keys, values and transactions that hold on every store."""

from collections.abc import Iterable, Sequence

from pliska.locks.backends.base import (
    RECORD_BYTES_MAX,
    TRANSACTION_OPERATIONS_MAX,
    Change,
    Check,
    Delete,
)
from pliska.locks.errors import LockUsageError

KEY_BYTES_MAX = 512


def check_key(key: str) -> None:
    """Refuse a key that some store could not hold or would read as another.

    Raises:
        LockUsageError: Empty, too long, an empty, "." or ".." segment, or a
            character that is not printable.
    """
    if not key or len(key.encode(errors="replace")) > KEY_BYTES_MAX:
        raise LockUsageError(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}: {key[:80]!r}")
    if not key.isprintable():
        raise LockUsageError(f"the key {key!r} has a character that is not printable")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise LockUsageError(f"the key {key!r} has a segment {segment!r}")


def check_operations(checks: Sequence[Check], changes: Sequence[Change]) -> None:
    """Refuse a transaction that some store could not take.

    Raises:
        LockUsageError: A bad key, a value above `RECORD_BYTES_MAX`, no change,
            or more than `TRANSACTION_OPERATIONS_MAX` operations.
    """
    count = len(checks) + len(changes)
    if not changes or count > TRANSACTION_OPERATIONS_MAX:
        raise LockUsageError(
            f"a transaction has at least one change and at most {TRANSACTION_OPERATIONS_MAX} "
            f"operations, not {len(changes)} changes and {count} operations"
        )
    for check in checks:
        check_key(check.key)
    for change in changes:
        check_key(change.key)
        if not isinstance(change, Delete) and len(change.value) > RECORD_BYTES_MAX:
            raise LockUsageError(
                f"the value of {change.key!r} has {len(change.value)} bytes; "
                f"a record holds at most {RECORD_BYTES_MAX}"
            )


def directory_of(key: str) -> str:
    """The directory that lists `key`; empty for a key at the top."""
    return key.rpartition("/")[0]


def child_directories(directory: str, directories: Iterable[str]) -> tuple[str, ...]:
    """The first segment below `directory` of each of `directories` that has one, sorted."""
    prefix = f"{directory}/"
    below = (each.removeprefix(prefix) for each in directories if each.startswith(prefix))
    return tuple(sorted({each.partition("/")[0] for each in below}))
