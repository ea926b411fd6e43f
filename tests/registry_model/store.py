"""The coordination store as a value: what lies under each key, and what a transaction makes of it.

Holds the records exactly as production writes them. Revisions are left out: a
record is unmodified if it is what it was when it was read, which says the same,
since no record of the protocol ever returns to an earlier content.
"""

from dataclasses import dataclass, replace
from functools import cache

from pliska.coordinator.registry.aliases import AliasRecord, AliasState
from pliska.coordinator.registry.ended_operations import Cause, EndedOperation
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.nodes import NodeRecord, newest_lives, node_key
from pliska.coordinator.registry.operations import Operation, Phase
from pliska.coordinator.registry.protocol import Situation
from pliska.coordinator.registry.stored import Stored
from pliska.coordinator.registry.transactions import Transaction
from pliska.coordinator.registry.versions import StoredVersion, VersionRecord
from pliska.locks import Absent, Create, Delete, Revision, Update

NAMESPACE, MODEL, ALIAS = "default", "digits", "prod"
KEYS = Keys(NAMESPACE)
ALIAS_KEY = KEYS.alias(MODEL, ALIAS)
OPERATION_KEY = KEYS.operation(MODEL, ALIAS)

is_lenient = False
"""Whether a change to what is not there, or is there already, passes: for mutants."""

_ENDED = KEYS.ended(MODEL, ALIAS)

Store = tuple[tuple[str, bytes], ...]
"""All records, sorted by key."""


@dataclass(frozen=True)
class Pending:
    """A transaction on its way.

    Attributes:
        expected: Key to content that must still be there; None: nothing must be.
        changes: Key to content; None removes it.
        created: Keys of which nothing may be there.
    """

    expected: tuple[tuple[str, bytes | None], ...]
    changes: tuple[tuple[str, bytes | None], ...]
    created: frozenset[str]


@dataclass(frozen=True)
class Sight:
    """What a reader makes of a store."""

    alias: AliasRecord | None
    operation: Operation | None
    history: tuple[HistoryEntry, ...]
    ended: tuple[EndedOperation, ...]
    versions: dict[int, StoredVersion]
    lives: tuple[Stored[NodeRecord], ...]

    @property
    def state(self) -> AliasState:
        return AliasState(NAMESPACE, MODEL, ALIAS, self.history)

    def situation(self) -> Situation:
        """What a driver looks at."""
        operation = self.operation
        target = None if operation is None else self.versions[operation.target].record.state
        return Situation(
            None if self.alias is None else _stored(self.alias, ALIAS_KEY),
            None if operation is None else _stored(operation, OPERATION_KEY),
            newest_lives(self.lives),
            target,
        )

    def how_ended(self, op_id: str) -> EndedOperation | None:
        return next((each for each in self.ended if each.operation.op_id == op_id), None)


def sent(store: Store, step: Transaction) -> Pending:
    """A transaction as it leaves somebody who has just looked at the store."""
    content = dict(store)
    expected = [
        (check.key, None if isinstance(check, Absent) else content[check.key])
        for check in step.checks
    ]
    changes: list[tuple[str, bytes | None]] = []
    for change in step.changes:
        assert isinstance(change, Create | Update | Delete)
        changes.append((change.key, None if isinstance(change, Delete) else change.value))
    created = frozenset(change.key for change in step.changes if isinstance(change, Create))
    return Pending(tuple(expected), tuple(changes), created)


def applied(store: Store, pending: Pending) -> Store | None:
    """The store after a transaction; None where it refuses it.

    What nothing depends on any more is left out of ended operations, so that worlds
    that differ in nothing else are one.
    """
    content = dict(store)
    if any(content.get(key) != value for key, value in pending.expected):
        return None
    for key, value in pending.changes:
        if (key in content) == (key in pending.created) and not is_lenient:
            return None
        if value is None:
            content.pop(key, None)
        else:
            content[key] = _essence(value) if key.startswith(_ENDED) else value
    return tuple(sorted(content.items()))


@cache
def _essence(value: bytes) -> bytes:
    ended = EndedOperation.from_bytes(value, "ended")
    operation = replace(ended.operation, driver="", epoch=1, required=(), phase=Phase.PREPARE)
    return replace(
        ended, operation=operation, why="", cause=Cause.COMPLETE, late=(), failed=ended.failed[:1]
    ).to_bytes()


def with_record(store: Store, key: str, value: bytes | None) -> Store:
    """The store with one record set, or removed."""
    content = dict(store)
    content.pop(key, None)
    if value is not None:
        content[key] = value
    return tuple(sorted(content.items()))


@cache
def sight_of(store: Store) -> Sight:
    """Read a store."""
    alias, operation, history, ended, versions, lives = None, None, [], [], {}, []
    for key, value in store:
        if key == ALIAS_KEY:
            alias = AliasRecord.from_bytes(value, key)
        elif key == OPERATION_KEY:
            operation = _operation(value)
        elif key.startswith(KEYS.history(MODEL, ALIAS)):
            history.append(_entry(value))
        elif key.startswith(KEYS.ended(MODEL, ALIAS)):
            ended.append(_ended(value))
        elif key.startswith(KEYS.versions(MODEL)):
            record = _version(value)
            versions[record.version] = _stored(record, key)
        elif not key.startswith(KEYS.marks(MODEL)):  # what a mark says is in its version too
            lives.append(_life(value))
    return Sight(alias, operation, tuple(history), tuple(ended), versions, tuple(lives))


def _stored(record, key):  # type: ignore[no-untyped-def]
    return Stored(record, key, Revision(1), Revision(1))


@cache
def _operation(value: bytes) -> Operation:
    return Operation.from_bytes(value, "operation")


@cache
def _entry(value: bytes) -> HistoryEntry:
    return HistoryEntry.from_bytes(value, "entry")


@cache
def _ended(value: bytes) -> EndedOperation:
    return EndedOperation.from_bytes(value, "ended")


@cache
def _version(value: bytes) -> VersionRecord:
    return VersionRecord.from_bytes(value, "version")


@cache
def _life(value: bytes) -> Stored[NodeRecord]:
    record = NodeRecord.from_bytes(value, "node")
    return Stored(record, node_key(record), Revision(1), Revision(int(record.incarnation)))
