"""Hands leadership to a named successor, past those who stand before it.

The order of candidates is the order of epochs and cannot be changed; so the
leader removes those before the successor from the queue, in one transaction,
notes down who they were, and resigns. Whoever finds itself removed and noted
down stands again, behind the others. Called by `Leadership.transfer`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pliska.locks.backends.base import (
    Absent,
    Backend,
    Check,
    Create,
    Delete,
    Existing,
    Record,
    Unmodified,
    Update,
)
from pliska.locks.contender import Contender
from pliska.locks.errors import ConflictError, StoreFormatError, TransferFailedError
from pliska.locks.leader import candidate_of, candidates_directory, leader_key

PASSED_OVER_MAX = 50
"""How many one transfer may pass over; a transaction takes no more deletions."""
PASSED_OVER_KEPT = 500
"""How many of those passed over are remembered, until each has noticed."""


@dataclass(frozen=True, slots=True)
class Step:
    """The first step of a transfer: the changes after which the successor is next in line.

    Attributes:
        successor: The successor's place in the queue.
        passed_over: The keys of those who stood before it.
    """

    successor: Record
    passed_over: tuple[str, ...]


def plan(queue: Sequence[Record], own_key: str, to: str) -> Step:
    """Decide whom to remove so that the candidate called `to` follows the holder of `own_key`.

    Raises:
        TransferFailedError: There is no such candidate, or too many stand before it.
    """
    places = [record.key for record in queue]
    behind = queue[places.index(own_key) + 1 :] if own_key in places else ()
    for index, record in enumerate(behind):
        if candidate_of(record).candidate_id == to:
            if index > PASSED_OVER_MAX:
                raise TransferFailedError(
                    f"{index} candidates stand before {to!r} and at most {PASSED_OVER_MAX} can be "
                    "passed over: nothing has changed"
                )
            return Step(record, tuple(each.key for each in behind[:index]))
    raise TransferFailedError(f"{to!r} is no candidate who waits to lead: nothing has changed")


def make_next(backend: Backend, name: str, leader: Contender, to: str) -> Record:
    """Let the candidate called `to` stand right behind the leader.

    Returns:
        Its record; the epoch of the successor is the revision that created it.

    Raises:
        TransferFailedError: It cannot be done; nothing has changed.
        GrantLostError: The leader leads no more.
    """
    while True:
        leader.check()
        step = plan(backend.list(candidates_directory(name)).records, leader.key, to)
        if not step.passed_over:
            return step.successor
        checks: list[Check] = [leader.guard, Existing(step.successor.key, step.successor.created)]
        note_check, note_change = _note(backend.get(_note_key(name)), name, step.passed_over)
        deletions = [Delete(key) for key in step.passed_over]
        try:
            backend.transact([*checks, note_check], [note_change, *deletions])
        except ConflictError:
            continue  # somebody came or went: look again
        return step.successor


def was_passed_over(backend: Backend, name: str, key: str) -> bool:
    """Whether a candidate's record was removed by a transfer rather than by an administrator."""
    record = backend.get(_note_key(name))
    return record is not None and _place(key) in _read_note(record)


def _note(
    before: Record | None, name: str, passed_over: Sequence[str]
) -> tuple[Check, Create | Update]:
    key, places = _note_key(name), [_place(each) for each in passed_over]
    if before is None:
        return Absent(key), Create(key, json.dumps(places).encode())
    kept = [*_read_note(before), *places][-PASSED_OVER_KEPT:]
    return Unmodified(key, before.modified), Update(key, json.dumps(kept).encode())


def _read_note(record: Record) -> list[str]:
    try:
        places = json.loads(record.value)
    except (ValueError, RecursionError):
        places = None
    if not isinstance(places, list):
        raise StoreFormatError(
            f"{record.key!r} is no list of candidates: it was not written by an election of Pliska"
        )
    return [str(place) for place in places]


def _note_key(name: str) -> str:
    return f"{leader_key(name).rpartition('/')[0]}/passed-over"


def _place(key: str) -> str:
    return key.rpartition("/")[2]
