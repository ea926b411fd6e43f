"""Who leads an election, who wants to, and who led last: for candidates and for observers.

The leader record outlives leaders; the candidates' records are their places in
the queue, the first of whom leads. Writes nothing; `Election` does.
"""

import base64
import binascii
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pliska.locks.backends.base import Backend, Record, Revision
from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreFormatError
from pliska.locks.name import check_name

ANY_REVISION = Revision(0)
OBSERVATION_SLICE_S = 0.5
"""An observer looks this often whether it was called off."""


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


def current_leader(backend: Backend, name: str) -> LeaderRecord | None:
    """Who leads now; None while nobody does.

    Raises:
        StoreFormatError: The leader record is not ours.
    """
    check_name(name)
    record = backend.get(leader_key(name))
    if record is None:
        return None
    leader, contender_key = parse_leader(record)
    contender = backend.get(contender_key)
    return leader if contender is not None and contender.created == leader.epoch else None


def candidates(backend: Backend, name: str) -> tuple[Candidate, ...]:
    """All who lead or wait to lead, in the order in which they will; the first leads.

    Raises:
        StoreFormatError: A candidate's record is not ours.
    """
    check_name(name)
    return tuple(map(candidate_of, backend.list(candidates_directory(name)).records))


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
            if record.key == leader_key(name) and record.modified > after:
                return parse_leader(record)[0]
        left_s = until_s - clock.now_s()
        if left_s <= 0:
            return None
        backend.wait_for_change(leader_key(name), listing.revision, left_s)


def observe_leaders(
    backend: Backend, name: str, cancelled: threading.Event, after: Revision = ANY_REVISION
) -> Iterator[LeaderRecord]:
    """Yield the leader known now and every one that takes over, until `cancelled` is set.

    Epochs come in order; some are missed when leaders change faster than the
    caller looks. Check `current_leader` for whether the newest still leads.

    Args:
        backend: The store.
        name: The election.
        cancelled: Set it from another thread to end the iteration.
        after: Yield only leaders that took over after this revision.

    Raises:
        StoreError: The store did not answer; go on with the last revision as `after`.
    """
    while not cancelled.is_set():
        leader = wait_for_leader_change(backend, name, after, OBSERVATION_SLICE_S)
        if leader is not None:
            after = leader.revision
            yield leader


def leader_paths(name: str) -> tuple[str, str]:
    """What changes when another one leads, or nobody any more: for a `ChangeFeed` to follow."""
    check_name(name)
    return leader_key(name), candidates_directory(name)


def candidates_directory(name: str) -> str:
    """Where candidates have their places in the queue."""
    return f"elections/{name}/contenders"


def leader_key(name: str) -> str:
    """The record of who led last."""
    return f"elections/{name}/leader"


def candidate_of(record: Record) -> Candidate:
    """Who has this place in the queue.

    Raises:
        StoreFormatError: The record is not ours.
    """
    fields = _fields(record)
    return Candidate(_text(fields, "candidate_id", record), _value(fields, record))


def parse_leader(record: Record) -> tuple[LeaderRecord, str]:
    """The leader, and the key of its place in the queue.

    Raises:
        StoreFormatError: The record is not ours.
    """
    fields = _fields(record)
    epoch = fields.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise _not_ours(record, "epoch")
    leader = LeaderRecord(
        epoch, _text(fields, "candidate_id", record), _value(fields, record), record.modified
    )
    return leader, _text(fields, "contender", record)


def to_json(fields: Mapping[str, str | int]) -> bytes:
    """The value of a record."""
    return json.dumps(fields, sort_keys=True).encode()


def to_text(value: bytes) -> str:
    """Bytes as a field of a record."""
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
