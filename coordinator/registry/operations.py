"""Operations: moves of an alias that are under way, and how they ended.

An alias has at most one open operation. It is there from the intent until all
serving nodes have switched or were given up, so whoever drives it may die and
another finishes it or calls it off. Records only: `protocol` decides what becomes
of them, `transactions` says what is written.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import Document, canonical_bytes, read_document
from pliska.coordinator.registry.history import APPROVALS_MAX, Canary, MoveKind, take_canary
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import Stored, read_stored
from pliska.locks import Backend, Record

OPERATION_BYTES_MAX = 192 * 1024
REQUIRED_NODES_MAX = 1000
"""Nodes that an operation waits for; their names fit a record of the store."""
TIMEOUT_S_MAX = 7 * 24 * 3600
QUARANTINES_MAX = 2

_OPERATION_FORMAT = "pliska-operation-1"
_ENDED_FORMAT = "pliska-ended-operation-1"


class Phase(StrEnum):
    """How far an open operation has come."""

    PREPARE = "PREPARE"
    """Nodes load the target beside what they serve; the alias has not moved."""
    SWITCH = "SWITCH"
    """The alias has moved; nodes follow it."""


class Wait(StrEnum):
    """Which nodes have to be ready before the alias moves."""

    NONE = "none"
    """None: the alias moves at once, and nobody waits for nodes afterwards."""
    QUORUM = "quorum"
    """More than half of them, once all have answered or the deadline has passed."""
    ALL = "all"
    """All of them; one that fails, or is late, calls it off."""


class Ending(StrEnum):
    """What became of an operation in the end."""

    DONE = "DONE"
    """The alias moved and every live node it waited for serves it."""
    DEGRADED = "DEGRADED"
    """The alias moved; some nodes do not serve it."""
    ABORTED = "ABORTED"
    """The alias was not moved by it, and never will be."""


class Cause(StrEnum):
    """Why an operation ended as it did."""

    COMPLETE = "complete"
    """Nothing was left to do."""
    NODES = "nodes"
    """Nodes could not load the target, or were gone."""
    DEADLINE = "deadline"
    """Somebody did not answer in time."""
    POLICY = "policy"
    """The target may not be pointed at any more."""
    OVERTAKEN = "overtaken"
    """Another operation moved the alias, or took its place."""
    ORDER = "order"
    """A person called it off."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An open operation.

    Attributes:
        op_id: Names it; whoever repeats a request with this id joins it.
        kind: What the history will call the move.
        phase: How far it has come.
        epoch: Raised by whoever takes it over; the one before can write no more.
        driver: Who drives it.
        from_gen: Generation that the alias has to be at for it to move.
        from_version: Where the alias pointed then.
        version: Where it goes.
        manifest_digest: The manifest of `version`.
        canary: What a part of the requests will be given to.
        quarantines: Versions that are quarantined when the alias moves.
        wait: Which nodes have to be ready.
        is_emergency: Whether it did not wait for them.
        required: Nodes that were alive at the intent, sorted.
        timeout_s: How long each phase may take.
        deadline: When the present phase is given up, UTC.
        actor: Who wants it.
        reason: Why.
        expires: From when on nobody may follow the alias any more; None for never.
        approvals: Base64 of signed `AliasStatement`s, one a key.
    """

    namespace: str
    model: str
    alias: str
    op_id: str
    kind: MoveKind
    phase: Phase
    epoch: int
    driver: str
    from_gen: int
    from_version: int | None
    version: int
    manifest_digest: Digest
    canary: Canary | None
    quarantines: tuple[int, ...]
    wait: Wait
    is_emergency: bool
    required: tuple[str, ...]
    timeout_s: int
    deadline: str
    actor: str
    reason: str
    expires: str | None = None
    approvals: tuple[str, ...] = ()

    @property
    def gen(self) -> int:
        """The generation that it gives the alias."""
        return self.from_gen + 1

    @property
    def target(self) -> int:
        """The version that nodes have to load for it."""
        return self.version if self.canary is None else self.canary.version

    @property
    def loads(self) -> Digest:
        """The manifest of `target`."""
        return self.manifest_digest if self.canary is None else self.canary.manifest_digest

    def is_same_move(self, other: "Operation") -> bool:
        """Whether both take the same alias from the same place to the same place."""
        return (self.kind.goes_back, self.from_gen, self.version, self.canary) == (
            other.kind.goes_back,
            other.from_gen,
            other.version,
            other.canary,
        )

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(self.to_fields())

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the JSON form."""
        return {
            "format": _OPERATION_FORMAT,
            "namespace": self.namespace,
            "model": self.model,
            "alias": self.alias,
            "op_id": self.op_id,
            "kind": self.kind,
            "phase": self.phase,
            "epoch": self.epoch,
            "driver": self.driver,
            "from_gen": self.from_gen,
            "from_version": self.from_version,
            "version": self.version,
            "manifest_digest": self.manifest_digest,
            "canary": None if self.canary is None else self.canary.to_fields(),
            "quarantines": list(self.quarantines),
            "wait": self.wait,
            "is_emergency": self.is_emergency,
            "required": list(self.required),
            "timeout_s": self.timeout_s,
            "deadline": self.deadline,
            "actor": self.actor,
            "reason": self.reason,
            "expires": self.expires,
            "approvals": list(self.approvals),
        }

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Operation":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        return cls.from_document(read_document(content, OPERATION_BYTES_MAX, what))

    @classmethod
    def from_document(cls, document: Document) -> "Operation":
        """Read the JSON form. Raises `IntegrityError` where it is none."""
        document.check_format(_OPERATION_FORMAT)
        operation = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            alias=document.text("alias"),
            op_id=document.text("op_id"),
            kind=document.choice("kind", MoveKind),
            phase=document.choice("phase", Phase),
            epoch=document.integer("epoch", minimum=1),
            driver=document.text("driver"),
            from_gen=document.integer("from_gen"),
            from_version=document.optional_integer("from_version", minimum=1),
            version=document.integer("version", minimum=1),
            manifest_digest=document.digest("manifest_digest"),
            canary=take_canary(document),
            quarantines=document.integers("quarantines", QUARANTINES_MAX, minimum=1),
            wait=document.choice("wait", Wait),
            is_emergency=document.boolean("is_emergency"),
            required=document.texts("required", REQUIRED_NODES_MAX),
            timeout_s=document.integer("timeout_s", minimum=1),
            deadline=document.time("deadline"),
            actor=document.text("actor"),
            reason=document.text("reason"),
            expires=document.optional_time("expires"),
            approvals=document.texts("approvals", APPROVALS_MAX),
        )
        document.finish()
        return operation


@dataclass(frozen=True, slots=True)
class EndedOperation:
    """How an operation ended: written once.

    Attributes:
        ending: What became of it.
        cause: Why, as a word.
        gen: The generation that it gave the alias; None where it was aborted.
        failed: Nodes that could not load or serve the target.
        late: Nodes that had not answered.
        why: Why, for a person.
        at: UTC time, ISO 8601.
        operation: The operation as it was last.
    """

    ending: Ending
    cause: Cause
    gen: int | None
    failed: tuple[str, ...]
    late: tuple[str, ...]
    why: str
    at: str
    operation: Operation

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _ENDED_FORMAT,
                "ending": self.ending,
                "cause": self.cause,
                "gen": self.gen,
                "failed": list(self.failed),
                "late": list(self.late),
                "why": self.why,
                "at": self.at,
                "operation": self.operation.to_fields(),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "EndedOperation":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, OPERATION_BYTES_MAX, what)
        document.check_format(_ENDED_FORMAT)
        ended = cls(
            ending=document.choice("ending", Ending),
            cause=document.choice("cause", Cause),
            gen=document.optional_integer("gen", minimum=1),
            failed=document.texts("failed", REQUIRED_NODES_MAX),
            late=document.texts("late", REQUIRED_NODES_MAX),
            why=document.text("why"),
            at=document.time("at"),
            operation=Operation.from_document(document.document("operation")),
        )
        document.finish()
        if (ended.gen is None) != (ended.ending is Ending.ABORTED):
            raise document.bad("gen", "there exactly when the alias was moved")
        return ended


StoredOperation = Stored[Operation]


class Operations:
    """Reads the operations of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._keys = Keys(namespace)

    def open(self, model: str, alias: str) -> StoredOperation | None:
        """Return the open operation on an alias, or None."""
        found = self._backend.get(self._keys.operation(model, alias))
        return None if found is None else self.stored(found)

    def how_ended(self, model: str, alias: str, op_id: str) -> EndedOperation | None:
        """Return how an operation ended; None where it has not, or never was."""
        found = self._backend.get(self._keys.ended_operation(model, alias, op_id))
        return None if found is None else self.read_ended(found)

    def ended(self, model: str, alias: str) -> tuple[EndedOperation, ...]:
        """Return how all operations on an alias ended, the first to end first."""
        listing = self._backend.list(self._keys.ended(model, alias))
        return tuple(self.read_ended(found) for found in listing.records)

    def stored(self, found: Record) -> StoredOperation:
        """Read an open operation."""
        return read_stored(found, Operation.from_bytes, _operation_key)

    def read_ended(self, found: Record) -> EndedOperation:
        """Read how an operation ended."""
        return read_stored(found, EndedOperation.from_bytes, ended_key).record


def ended_key(ended: EndedOperation) -> str:
    """Return where the record of an ended operation lies."""
    operation = ended.operation
    keys = Keys(operation.namespace)
    return keys.ended_operation(operation.model, operation.alias, operation.op_id)


def _operation_key(operation: Operation) -> str:
    return Keys(operation.namespace).operation(operation.model, operation.alias)
