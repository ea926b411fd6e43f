"""Operations: moves of an alias that are under way.

An alias has at most one open operation. It is there from the intent until all
serving nodes have switched or were given up, so whoever drives it may die and
another finishes it or calls it off. Records only: `protocol` decides what becomes
of them, `transactions` says what is written, `operation_reader` finds them in the
store. How they ended is `ended_operations`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import Document, canonical_bytes, read_document
from pliska.coordinator.registry.history import APPROVALS_MAX, Canary, MoveKind, take_canary
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import Stored

OPERATION_BYTES_MAX = 192 * 1024
REQUIRED_NODES_MAX = 1000
"""Nodes that an operation waits for; their names fit a record of the store."""
TIMEOUT_S_MAX = 7 * 24 * 3600
QUARANTINES_MAX = 2

_OPERATION_FORMAT = "pliska-operation-1"


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


StoredOperation = Stored[Operation]


def operation_key(operation: Operation) -> str:
    """Return where the record of an open operation lies."""
    return Keys(operation.namespace).operation(operation.model, operation.alias)
