"""The store that a Consul cluster keeps: its key-value pairs are the records.

Reads are `consistent`. An ephemeral record is a key that its session has
acquired; the session deletes what it holds when it ends. Consul counts a lease
for up to twice its length, and starts anew when its leader changes, so a
crashed holder's records go later than its own deadline, never earlier.
"""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    Change,
    Check,
    Delete,
    Existing,
    Guarantee,
    Listing,
    Record,
    Revision,
    Unmodified,
)
from pliska.locks.backends.consul_agent import ConsulAgent
from pliska.locks.backends.consul_catalog import ConsulCatalog
from pliska.locks.backends.consul_feed import ConsulFeed
from pliska.locks.backends.consul_key_locks import ConsulKeyLocks
from pliska.locks.backends.consul_pair import flags_from, record_of
from pliska.locks.backends.consul_place import ConsulPlace
from pliska.locks.backends.consul_transaction import (
    OPERATIONS_MAX,
    Operation,
    operations,
    unbound_keys,
)
from pliska.locks.backends.consul_watch import ConsulWatcher, is_child
from pliska.locks.backends.keys import check_key, check_operations
from pliska.locks.backends.transactional import TransactionalBackend, refusal
from pliska.locks.errors import (
    ConflictError,
    LockUsageError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from pliska.locks.process import HomeProcess

LEASE_S_USUAL_MIN = 10.0
"""The shortest lease that Consul's servers allow unless their session_ttl_min says otherwise."""
LOCK_DELAY_S_MAX = 60.0


class ConsulBackend(TransactionalBackend):
    """One client of a Consul agent.

    Each thread that waits for a change takes a connection of its own, and a
    feed a few for all that it follows; Consul allows 200 from one machine
    unless its limits.http_max_conns_per_client says otherwise, and refuses
    more as unavailable.
    """

    guarantees = frozenset(
        {Guarantee.LINEARIZABLE_READS, Guarantee.DURABLE_WRITES, Guarantee.CROSS_HOST}
    )

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        """Prepare a client; the first call connects.

        Raises:
            LockUsageError: The address or a file that it names cannot be used.
        """
        place = ConsulPlace.parse(address, environment)
        self.address = place.address
        self._home = HomeProcess()
        self._prefix = place.prefix
        self._agent = ConsulAgent(place)
        self._watcher = ConsulWatcher(self._agent, place.prefix)
        self.key_locks = ConsulKeyLocks(self._agent, place.prefix)
        self.service_catalog = ConsulCatalog(self._agent)

    def open_session(self, lease_s: float, timeout_s: float = CALL_TIMEOUT_S) -> "ConsulSession":
        """See `Backend.open_session`. The lease is at least what Consul's servers allow."""
        self._home.check()
        try:
            return ConsulSession.begin(self._agent, lease_s, timeout_s)
        except LockUsageError:
            if lease_s >= LEASE_S_USUAL_MIN:
                raise
            return ConsulSession.begin(self._agent, LEASE_S_USUAL_MIN, timeout_s)

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        """See `Backend.get`."""
        self._home.check()
        check_key(key)
        read = self._agent.read(self._prefix + key, timeout_s)
        self._watcher.saw(read.index)
        return record_of(read.pairs[0], self._prefix) if read.pairs else None

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        """See `Backend.list`. Consul sends all that is below `directory`, however deep."""
        self._home.check()
        check_key(directory)
        newest_before = self._watcher.newest
        read = self._agent.read_below(f"{self._prefix}{directory}/", timeout_s)
        self._watcher.saw(read.index)
        records = [
            record
            for record in (record_of(pair, self._prefix) for pair in read.pairs)
            if is_child(record.key, directory)
        ]
        records.sort(key=lambda record: (record.created, record.key))
        # The index that Consul gives is that of the last change below the directory.
        revision = Revision(max(read.index, newest_before))
        self._watcher.remember(directory, revision, [record.key for record in records])
        return Listing(tuple(records), revision)

    def directories(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """See `Backend.directories`."""
        self._home.check()
        check_key(directory)
        return tuple(sorted(self._agent.directories(f"{self._prefix}{directory}/", timeout_s)))

    def delete(
        self, key: str, expected: Revision | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> bool:
        """See `Backend.delete`: one request, unlike `transact`, which has a revision to find."""
        checks = [] if expected is None else [Unmodified(key, expected)]
        try:
            self._commit(checks, [Delete(key)], timeout_s)
        except ConflictError:
            if expected is not None:
                raise
            return False
        return True

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        """See `Backend.transact`. What only deletes gives a revision at or after its own."""
        until_s = time.monotonic() + timeout_s
        revision = self._commit(checks, changes, timeout_s)
        if any(not isinstance(change, Delete) for change in changes):
            return revision
        try:
            read = self._agent.read(self._prefix + changes[0].key, _left_s(until_s))
        except StoreUnavailableError as error:
            raise OutcomeUnknownError(f"applied, at a revision unknown: {error}") from error
        self._watcher.saw(read.index)
        return Revision(read.index)

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        self._home.check()
        check_key(path)
        return self._watcher.wait(path, after, timeout_s)

    def open_feed(self) -> ConsulFeed:
        """See `Backend.open_feed`. Takes `QUERIES_MAX` connections at the most."""
        self._home.check()
        return ConsulFeed(self._agent, self._changes_path)

    def close(self) -> None:
        """See `Backend.close`."""
        self._home.check()
        self._agent.close()

    def _changes_path(self, path: str) -> str:
        check_key(path)
        # The separator keeps the answer short; what is below it counts as well.
        return f"/v1/kv/{quote(self._prefix + path)}?keys&separator=/"

    def _commit(
        self, checks: Sequence[Check], changes: Sequence[Change], timeout_s: float
    ) -> Revision:
        """Apply the transaction; the greatest revision among what it read and wrote."""
        self._home.check()
        check_operations(checks, changes)
        until_s = time.monotonic() + timeout_s
        pins: dict[str, Revision] = {}
        flags = flags_from(secrets.randbits(62))
        while True:
            planned = operations(self._prefix, checks, changes, pins, flags)
            if len(planned) > OPERATIONS_MAX:
                pins |= self._last_writes(unbound_keys(checks, changes), until_s)
                planned = operations(self._prefix, checks, changes, pins, flags)
            outcome = self._agent.transact([each.body for each in planned], _left_s(until_s))
            if not outcome.refused:
                revision = max((int(pair["ModifyIndex"]) for pair in outcome.pairs), default=0)
                self._watcher.saw(revision)
                return Revision(revision)
            refused = [(planned[each.operation], each.reason) for each in outcome.refused]
            pins |= self._moved(refused, pins, until_s)

    def _moved(
        self,
        refused: Iterable[tuple[Operation, str]],
        pins: Mapping[str, Revision],
        until_s: float,
    ) -> dict[str, Revision]:
        """The last writes of the records that are still those that the transaction is about.

        Raises:
            LockError: An operation was refused for another reason.
        """
        moved = {}
        for operation, reason in refused:
            subject = operation.subject
            is_check = isinstance(subject, Existing)
            if not is_check and subject.key not in pins:
                raise operation.error(reason)
            record = self.get(subject.key, _left_s(until_s))
            if record is None:
                raise ConflictError(f"{subject.key!r} is gone")
            if isinstance(subject, Existing) and refusal(subject, record) is not None:
                raise ConflictError(refusal(subject, record))
            moved[subject.key] = record.modified
        return moved

    def _last_writes(self, keys: Sequence[str], until_s: float) -> dict[str, Revision]:
        reads = [{"Verb": "get", "Key": self._prefix + key} for key in keys]
        outcome = self._agent.transact(reads, _left_s(until_s))
        if outcome.refused:
            raise ConflictError(outcome.refused[0].reason)
        return {
            str(pair["Key"]).removeprefix(self._prefix): Revision(int(pair["ModifyIndex"]))
            for pair in outcome.pairs
        }


class ConsulSession:
    """A session with a lease, whose end deletes the keys that it holds."""

    def __init__(self, agent: ConsulAgent, session_id: str, lease_s: float) -> None:
        self._agent = agent
        self._home = HomeProcess()
        self.id = session_id
        self.lease_s = lease_s

    @classmethod
    def begin(cls, agent: ConsulAgent, lease_s: float, timeout_s: float) -> "ConsulSession":
        """Begin a session in Consul."""
        # Whoever held a key for an ended session has noticed by its next renewal: until
        # then nobody gets the key. It binds to names; contenders, named anew, escape it.
        lock_delay_s = min(LOCK_DELAY_S_MAX, lease_s / 3 + 1)
        try:
            session_id = agent.open_session(lease_s, lock_delay_s, timeout_s)
        except OutcomeUnknownError as error:
            raise StoreUnavailableError(f"no session was begun that we know of: {error}") from error
        return cls(agent, session_id, lease_s)

    def renew(self, timeout_s: float) -> None:
        """See `BackendSession.renew`.

        Gives up after a third of the lease, so that a connection that died
        unnoticed leaves time to try on another.
        """
        self._home.check()
        try:
            self._agent.renew_session(self.id, min(timeout_s, self.lease_s / 3))
        except OutcomeUnknownError as error:
            raise StoreUnavailableError(f"the session may not be renewed: {error}") from error

    def close(self, timeout_s: float) -> None:
        """See `BackendSession.close`."""
        self._home.check()
        self._agent.end_session(self.id, timeout_s)


def _left_s(until_s: float) -> float:
    """The time left.

    Raises:
        StoreUnavailableError: There is none; nothing was applied.
    """
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise StoreUnavailableError("the records changed faster than a transaction could be made")
    return left_s
