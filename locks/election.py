"""Leader election: one leader at a time, each with a greater epoch than all before.

Candidates queue as contenders; the first leads. Before it acts it writes the
leader record, in one transaction that fails unless its own contender record
still stands. The leader record outlives leaders and says who led last.
"""

import threading
from collections.abc import Callable

from pliska.locks.backends.base import Absent, Create, Record, Unmodified, Update
from pliska.locks.contender import Contender, deadline_of
from pliska.locks.errors import (
    AcquireCancelledError,
    ConflictError,
    GrantLostError,
    LockUsageError,
    StoreFormatError,
    TransferFailedError,
)
from pliska.locks.grant import Grant
from pliska.locks.leader import (
    ANY_REVISION,
    LeaderRecord,
    candidates_directory,
    leader_key,
    parse_leader,
    to_json,
    to_text,
    wait_for_leader_change,
)
from pliska.locks.name import check_name
from pliska.locks.session import Session
from pliska.locks.transfer import make_next, was_passed_over
from pliska.locks.turn import exclusive

VALUE_BYTES_MAX = 64 * 1024
CANDIDATE_ID_CHARACTERS_MAX = 200


class Leadership(Grant):
    """A `Grant` to lead. Act only while it is held, and put `epoch` on everything."""

    def __init__(self, contender: Contender, election: str) -> None:
        super().__init__(contender)
        self._candidacy = contender
        self._election = election

    @property
    def epoch(self) -> int:
        """The fencing token, under the name that elections give it."""
        return self.token

    def resign(self) -> bool:
        """Stop leading; the next candidate leads at once. False when it was over already."""
        return self.release()

    def transfer(self, to: str, timeout_s: float = 10.0) -> LeaderRecord:
        """Resign so that the candidate called `to` leads next.

        Those who stand before it in the queue stand again behind it.

        Args:
            to: The successor's candidate id.
            timeout_s: How long to wait, after resigning, for it to lead.

        Returns:
            The successor's leader record.

        Raises:
            TransferFailedError: It does not lead. The message says whether we
                still do, which `held` tells too, or who does.
            GrantLostError: We lead no more, and not because of this.
        """
        self.check()
        contender, name = self._candidacy, self._election
        backend = contender.session.backend
        led = backend.get(leader_key(name))
        successor = make_next(backend, name, contender, to)
        if not self.resign():
            raise GrantLostError(f"{name!r}: leadership was lost before it could be handed over")
        after = ANY_REVISION if led is None else led.modified
        leader = wait_for_leader_change(backend, name, after, timeout_s)
        if leader is None:
            raise TransferFailedError(
                f"{to!r} has not come to lead {name!r} within {timeout_s:g} s; we have resigned"
            )
        if leader.epoch != successor.created:
            raise TransferFailedError(
                f"{to!r} went away: {leader.candidate_id!r} leads {name!r}; we have resigned"
            )
        return leader


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
        self._last: Leadership | None = None

    def campaign(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Leadership:
        """Wait to lead. Whoever is behind in the queue stands by.

        First waits for the `on_lost` callbacks of this candidate's last
        leadership, so that what they clean up is not in use again.

        Args:
            timeout_s: How long to wait; None waits for as long as the session lives.
            cancelled: Set it from another thread to call the campaign off.

        Raises:
            AcquireTimeoutError: It did not come to lead in time.
            AcquireCancelledError: `cancelled` was set.
            SessionLostError: The session ended.
            StoreError: The store could not take the candidacy or the leader record.
        """
        until_s = deadline_of(self._session, timeout_s)
        if self._last is not None:
            self._last.lost.join_callbacks()
        contender = self._queue_up(until_s, cancelled)
        try:
            self._write_leader_record(contender)
            contender.check()  # the write may have taken longer than the lease
        except BaseException:
            contender.release()
            raise
        self._last = Leadership(contender, self.name)
        return self._last

    def lead(self, work: Callable[[Leadership], None], cancelled: threading.Event) -> None:
        """Campaign, do `work` while leading, resign, and campaign again until `cancelled` is set.

        `work` runs in the calling thread. It has to return when
        `leadership.lost` is set, and only then the next campaign begins.

        Raises:
            SessionLostError: The session ended: make an election with a new one.
            StoreError: The store could not take the candidacy or the leader record.
        """
        while not cancelled.is_set():
            try:
                with self.campaign(cancelled=cancelled) as leadership:
                    work(leadership)
            except AcquireCancelledError:
                return
            except GrantLostError:
                self._session.check()

    def _queue_up(self, until_s: float | None, cancelled: threading.Event | None) -> Contender:
        candidacy = to_json({"candidate_id": self.candidate_id, "value": to_text(self._value)})
        while True:
            contender = Contender(
                self._session, candidates_directory(self.name), candidacy, exclusive
            )
            try:
                contender.acquire(until_s, cancelled)
            except GrantLostError:
                if not was_passed_over(self._session.backend, self.name, contender.key):
                    raise
            else:
                return contender

    def _write_leader_record(self, contender: Contender) -> None:
        backend = self._session.backend
        key = leader_key(self.name)
        value = to_json(
            {
                "candidate_id": self.candidate_id,
                "contender": contender.key,
                "epoch": contender.token,
                "value": to_text(self._value),
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


def _check_order(previous: Record, epoch: int) -> None:
    leader, _ = parse_leader(previous)
    if leader.epoch >= epoch:
        raise StoreFormatError(
            f"{previous.key!r} holds epoch {leader.epoch} and the store gave out {epoch} after it: "
            "the store was restored from an old copy; remove the record only if nothing uses it"
        )
