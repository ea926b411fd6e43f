"""Whose turn it is: decisions on the records of a queue, without clock or I/O.

A rule looks at all records of a directory, oldest first, and at the position
of one of them. Whoever stands at it may enter, has something to change first,
or waits for one path to change: the nearest record that is in its way, so that
a release wakes no more than those it concerns. A position past the end asks
what somebody who came now would find.

The rules of mutex and read/write lock are here; semaphore and barrier, which
keep a record of their own in the directory, bring theirs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliska.locks.backends.base import Change, Check, Record
from pliska.locks.claim import Claim


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; look again when `path`, a record or a directory, has changed."""

    path: str


@dataclass(frozen=True, slots=True)
class Act:
    """Make `changes` if `checks` hold, in one transaction, and look again in any case."""

    checks: tuple[Check, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Enter:
    """It is our turn, if `changes` can be made while `checks` hold; else look again."""

    checks: tuple[Check, ...] = ()
    changes: tuple[Change, ...] = ()


Turn = Wait | Act | Enter
Rule = Callable[[Sequence[Record], int], Turn]


def exclusive(records: Sequence[Record], position: int) -> Turn:
    """Alone: everybody who came before is in the way."""
    return Wait(records[position - 1].key) if position > 0 else Enter()


def shared(records: Sequence[Record], position: int) -> Turn:
    """Beside others: only who wants to be alone and came before is in the way."""
    for record in reversed(records[:position]):
        if not Claim.from_bytes(record.value).is_shared:
            return Wait(record.key)
    return Enter()


def of_record(records: Sequence[Record], position: int) -> Turn:
    """The turn of the record at `position`, by its own claim."""
    is_shared = Claim.from_bytes(records[position].value).is_shared
    return (shared if is_shared else exclusive)(records, position)
