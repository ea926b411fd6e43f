"""Leader election: one leader at a time, each with a greater epoch than all before.

Candidates queue as contenders; the first leads. Before it acts it writes the
leader record, in one transaction that fails unless its own contender record
still stands. The leader record outlives leaders and says who led last.
"""

import base64
import binascii
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from pliska.locks.backends.base import (
    Absent,
    Backend,
    Create,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.clock import SystemClock
from pliska.locks.contender import Contender, deadline_of
from pliska.locks.errors import ConflictError, GrantLostError, LockUsageError, StoreFormatError
from pliska.locks.grant import Grant
from pliska.locks.name import check_name
from pliska.locks.session import Session
from pliska.locks.turn import exclusive

VALUE_BYTES_MAX = 64 * 1024
CANDIDATE_ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Who leads.

    Attributes:
        epoch: Strictly increasing from leader to leader, for ever.
        candidate_id: Who it is.
        value: What the leader wants known, an address perhaps.
        revision: When it took over; pass it to `wait_for_leader_change`.
    """

    epoch: int
    candidate_id: str
    value: bytes
    revision: Revision


@dataclass(frozen=True, slots=True)
class Candidate:
    """One who leads or waits to lead."""

    candidate_id: str
    value: bytes


class Leadership(Grant):
    """A `Grant` to lead. Act only while it is held, and put `epoch` on everything."""

    @property
    def epoch(self) -> int:
        """The fencing token, under the name that elections give it."""
        return self.token

    def resign(self) -> bool:
        """Stop leading; the next candidate leads at once. False when it was over already."""
        return self.release()


class Election:
    """One candidate's part in an election."""

    def __init__(self, session: Session, name: str, candidate_id: str, value: bytes = b"") -> None:
        """Name the election and the candidate; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed, or id or value are too large.
        """
        check_name(name)
        if not 0 < len(candidate_id) <= CANDIDATE_ID_CHARACTERS_MAX:
            raise LockUsageError(
                f"a candidate id has 1 to {CANDIDATE_ID_CHARACTERS_MAX} characters, "
                f"not {len(candidate_id)}"
            )
        if len(value) > VALUE_BYTES_MAX:
            raise LockUsageError(
                f"a candidate's value has at most {VALUE_BYTES_MAX} bytes, not {len(value)}"
            )
        self.name = name
        self.candidate_id = candidate_id
        self._session = session
        self._value = value

    def campaign(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Leadership:
        """Wait to lead. Whoever is behind in the queue stands by.

        Args:
            timeout_s: How long to wait; None waits for as long as the session lives.
            cancelled: Set it from another thread to call the campaign off.

        Raises:
            AcquireTimeoutError: It did not come to lead in time.
            AcquireCancelledError: `cancelled` was set.
            SessionLostError: The session ended.
            StoreError: The store could not take the candidacy or the leader record.
        """
        candidacy = {"candidate_id": self.candidate_id, "value": _to_text(self._value)}
        contender = Contender(
            self._session, _candidates_directory(self.name), _to_json(candidacy), exclusive
        )
        contender.acquire(deadline_of(self._session, timeout_s), cancelled)
        try:
            self._write_leader_record(contender)
        except BaseException:
            contender.release()
            raise
        return Leadership(contender)

    def _write_leader_record(self, contender: Contender) -> None:
        backend = self._session.backend
        key = _leader_key(self.name)
        value = _to_json(
            {
                "candidate_id": self.candidate_id,
                "contender": contender.key,
                "epoch": contender.token,
                "value": _to_text(self._value),
            }
        )
        while True:
            previous = backend.get(key)
            try:
                if previous is None:
                    backend.transact([contender.guard, Absent(key)], [Create(key, value)])
                else:
                    _check_order(previous, contender.token)
                    unmodified = Unmodified(key, previous.modified)
                    backend.transact([contender.guard, unmodified], [Update(key, value)])
            except ConflictError as error:
                record = backend.get(contender.key)
                if record is None or record.created != contender.created:
                    reason = "the candidacy was removed before it could lead"
                    raise GrantLostError(f"{self.name!r}: {reason}") from error
            else:
                return


def current_leader(backend: Backend, name: str) -> LeaderRecord | None:
    """Who leads now; None while nobody does.

    Raises:
        StoreFormatError: The leader record is not ours.
    """
    check_name(name)
    record = backend.get(_leader_key(name))
    if record is None:
        return None
    leader, contender_key = _parse_leader(record)
    contender = backend.get(contender_key)
    return leader if contender is not None and contender.created == leader.epoch else None


def candidates(backend: Backend, name: str) -> tuple[Candidate, ...]:
    """All who lead or wait to lead, in the order in which they will; the first leads.

    Raises:
        StoreFormatError: A candidate's record is not ours.
    """
    check_name(name)
    return tuple(
        Candidate(_text(fields, "candidate_id", record), _value(fields, record))
        for record in backend.list(_candidates_directory(name)).records
        for fields in [_fields(record)]
    )


def wait_for_leader_change(
    backend: Backend, name: str, after: Revision, timeout_s: float
) -> LeaderRecord | None:
    """Wait for a leader that took over after `after`.

    Observers see epochs in order and may miss some. That a leader went without
    a successor is no change; `current_leader` tells.

    Args:
        backend: The store.
        name: The election.
        after: `LeaderRecord.revision` of the last one known; 0 for any.
        timeout_s: How long to wait.

    Returns:
        The newest leader record, or None when the time passed.
    """
    check_name(name)
    clock = SystemClock()
    until_s = clock.now_s() + timeout_s
    while True:
        listing = backend.list(f"elections/{name}")
        for record in listing.records:
            if record.key == _leader_key(name) and record.modified > after:
                return _parse_leader(record)[0]
        left_s = until_s - clock.now_s()
        if left_s <= 0:
            return None
        backend.wait_for_change(_leader_key(name), listing.revision, left_s)


def _candidates_directory(name: str) -> str:
    return f"elections/{name}/contenders"


def _leader_key(name: str) -> str:
    return f"elections/{name}/leader"


def _check_order(previous: Record, epoch: int) -> None:
    leader, _ = _parse_leader(previous)
    if leader.epoch >= epoch:
        raise StoreFormatError(
            f"{previous.key!r} holds epoch {leader.epoch} and the store gave out {epoch} after it: "
            "the store was restored from an old copy; remove the record only if nothing uses it"
        )


def _parse_leader(record: Record) -> tuple[LeaderRecord, str]:
    fields = _fields(record)
    epoch = fields.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise _not_ours(record, "epoch")
    leader = LeaderRecord(
        epoch, _text(fields, "candidate_id", record), _value(fields, record), record.modified
    )
    return leader, _text(fields, "contender", record)


def _to_json(fields: Mapping[str, str | int]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()


def _to_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _fields(record: Record) -> dict[str, object]:
    try:
        fields = json.loads(record.value)
    except (ValueError, RecursionError) as error:
        raise _not_ours(record, "JSON") from error
    if not isinstance(fields, dict):
        raise _not_ours(record, "JSON object")
    return fields


def _text(fields: dict[str, object], name: str, record: Record) -> str:
    text = fields.get(name)
    if not isinstance(text, str) or not text:
        raise _not_ours(record, name)
    return text


def _value(fields: dict[str, object], record: Record) -> bytes:
    text = fields.get("value")
    if not isinstance(text, str):
        raise _not_ours(record, "value")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise _not_ours(record, "value") from error


def _not_ours(record: Record, missing: str) -> StoreFormatError:
    return StoreFormatError(
        f"{record.key!r} has no proper {missing}: it was not written by an election of Pliska"
    )
