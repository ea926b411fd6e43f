"""Nodes: processes that serve what an alias points at, as the store shows them.

A node's record belongs to its session, so it goes when the process dies or is cut
off. Each life of a process has a record of its own, named by its incarnation: an
answer given before a crash never counts for the process that came after it.
Records only; `serving` writes them, `protocol` counts the answers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import Document, canonical_bytes, read_document
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import Stored, read_stored
from pliska.locks import Backend, Revision

NODE_RECORD_BYTES_MAX = 16 * 1024
LOADED_MAX = 4
"""Versions that a node holds at a time: what it serves, a canary, and what it prepares."""
WHY_CHARACTERS_MAX = 500

_NODE_FORMAT = "pliska-node-1"


class Answer(StrEnum):
    """What a node says to an operation."""

    PREPARED = "PREPARED"
    """The target is loaded and verified beside what it serves."""
    SERVING = "SERVING"
    """It serves what the operation made of the alias."""
    FAILED = "FAILED"
    """It could not load it, or may not follow the alias."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A node's answer to one operation.

    Attributes:
        op_id: The operation.
        answer: What it says.
        why: The reason of a FAILED; else empty.
    """

    op_id: str
    answer: Answer
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One life of a node.

    Attributes:
        node: Its name, kept across restarts.
        incarnation: Which life of it this is; random.
        gen: Highest generation of the alias that it ever accepted, in any life.
        serving_gen: Generation that it serves; 0 where it serves nothing.
        serving: The manifest that it serves; None where it serves nothing.
        loaded: The manifests that it holds in memory, sorted.
        ack: Its answer to the newest operation that it answered; None before the first.
        stale: Why what it serves may be out of date; empty when it is not.
    """

    namespace: str
    model: str
    alias: str
    node: str
    incarnation: str
    gen: int = 0
    serving_gen: int = 0
    serving: Digest | None = None
    loaded: tuple[Digest, ...] = ()
    ack: Ack | None = None
    stale: str = ""

    def answer_to(self, op_id: str) -> Ack | None:
        """Return what it says to the operation, or None."""
        return self.ack if self.ack is not None and self.ack.op_id == op_id else None

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        ack = self.ack
        return canonical_bytes(
            {
                "format": _NODE_FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "alias": self.alias,
                "node": self.node,
                "incarnation": self.incarnation,
                "gen": self.gen,
                "serving_gen": self.serving_gen,
                "serving": self.serving,
                "loaded": list(self.loaded),
                "ack": ack and {"op_id": ack.op_id, "answer": ack.answer, "why": ack.why},
                "stale": self.stale,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "NodeRecord":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, NODE_RECORD_BYTES_MAX, what)
        document.check_format(_NODE_FORMAT)
        record = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            alias=document.text("alias"),
            node=document.text("node"),
            incarnation=document.text("incarnation"),
            gen=document.integer("gen"),
            serving_gen=document.integer("serving_gen"),
            serving=document.optional_digest("serving"),
            loaded=document.digests("loaded", LOADED_MAX),
            ack=_take_ack(document),
            stale=document.text("stale"),
        )
        document.finish()
        return record


StoredNode = Stored[NodeRecord]


@dataclass(frozen=True, slots=True)
class NodeListing:
    """The nodes of an alias at one moment.

    Attributes:
        nodes: The newest life of each node that has a record, by name.
        revision: Of the store, to wait for a change after it.
    """

    nodes: tuple[NodeRecord, ...]
    revision: Revision


class Nodes:
    """Reads the nodes of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._keys = Keys(namespace)

    def of_alias(self, model: str, alias: str) -> NodeListing:
        """Return the nodes that serve the alias."""
        listing = self._backend.list(self._keys.nodes(model, alias))
        lives = [read_stored(found, NodeRecord.from_bytes, node_key) for found in listing.records]
        return NodeListing(newest_lives(lives), listing.revision)


def newest_lives(lives: Iterable[StoredNode]) -> tuple[NodeRecord, ...]:
    """Return the life of each node whose record was made last, sorted by the node's name.

    A process that died may have its record until its lease ends, beside the one
    of the process that came after it.
    """
    by_age = sorted(lives, key=lambda life: life.created)
    newest = {life.record.node: life.record for life in by_age}
    return tuple(newest[node] for node in sorted(newest))


def node_key(record: NodeRecord) -> str:
    """Return where a node's record lies."""
    keys = Keys(record.namespace)
    return keys.node(record.model, record.alias, record.node, record.incarnation)


def _take_ack(document: Document) -> Ack | None:
    taken = document.optional_document("ack")
    if taken is None:
        return None
    ack = Ack(taken.text("op_id"), taken.choice("answer", Answer), taken.text("why"))
    taken.finish()
    return ack
