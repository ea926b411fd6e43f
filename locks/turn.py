"""Whose turn it is: decisions on the records of a queue, without clock or I/O.

A rule looks at all records of a queue, oldest first, and at the position of
one of them. Whoever stands at it may enter, or waits for one record to change:
the nearest one that is in its way, so that a release wakes no more than those
it concerns. Positions past the end ask what somebody who came now would find.

Only creation, release and loss of strength change a queue, and whoever comes
later stands behind. What a rule allows therefore stays allowed, even when the
records were read at slightly different moments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliska.locks.backends.base import Check, Record
from pliska.locks.claim import Claim


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; look again when `path`, a record or a directory, has changed."""

    path: str


@dataclass(frozen=True, slots=True)
class Enter:
    """It is our turn.

    Attributes:
        claim: What our record has to say from now on, written before we are
            inside; None when it may stay as it is.
        checks: What has to hold at that moment.
    """

    claim: Claim | None = None
    checks: tuple[Check, ...] = ()


Turn = Wait | Enter
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
