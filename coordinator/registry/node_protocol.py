"""What a node that serves an alias does about it, as decisions: no clock, no I/O, no store.

    follow the alias: LOAD ──▶ SWITCH        prepare for an operation: LOAD ──▶ ANSWER | FAIL

It is the other side of `protocol`, which says what becomes of an alias and of the
operation on it. Whether a node may follow at all is `refusal`. `node` carries out
what is said here; tests/registry_model explores both sides together.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.nodes import Answer, NodeRecord
from pliska.coordinator.registry.operations import Operation, Phase


class NodeVerdict(StrEnum):
    """What a node is to do next."""

    LOAD = "load"
    """Load a version beside what it serves, then look again."""
    SWITCH = "switch"
    """Serve what the alias says: all of it is loaded."""
    ANSWER = "answer"
    """Tell the open operation that its target is loaded."""
    FAIL = "fail"
    """Tell an operation that its target cannot be loaded."""
    RETRACT = "retract"
    """Take an answer back, before letting go of what it was about."""
    REST = "rest"


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """A verdict with its reason.

    Attributes:
        op_id: The operation that it is done for; empty for REST.
        digest: What it is about: to load, or not to be loaded; None for the others.
    """

    verdict: NodeVerdict
    reason: str
    op_id: str = ""
    digest: Digest | None = None


def refusal(
    now: datetime,
    known: HistoryEntry | None,
    alias: AliasRecord | None,
    newest: HistoryEntry | None,
    approvals: int,
    approvals_min: int,
) -> str | None:
    """Say why a node must not follow the alias; None when it may.

    These are TUF's rules against rollback, fork and freeze attacks (The Update
    Framework specification, 5.3 to 5.5): what was accepted once is compared with
    even after it expired.

    Args:
        now: The time, UTC.
        known: The newest entry that this node ever accepted, in any life.
        alias: What the store says now; None where it was never set.
        newest: Its newest history entry, proven to descend from `known`; None where
            it was not read yet, and only what `alias` itself tells is judged.
        approvals: How many publishers approved of `newest`.
        approvals_min: How many have to.
    """
    if alias is None:
        return None if known is None else "the alias is gone"
    if known is not None and alias.gen < known.gen:
        return f"the alias went back from generation {known.gen} to {alias.gen}"
    if known is not None and alias.gen == known.gen and alias.entry_hash != known.hash:
        return f"generation {alias.gen} of the alias is not the one that was accepted before"
    if newest is None:
        return None
    if newest.expires is not None and now >= moment(newest.expires):
        return f"generation {newest.gen} of the alias expired at {newest.expires}"
    if approvals < approvals_min:
        return f"generation {newest.gen} has {approvals} of {approvals_min} approvals"
    return None


def decide_node(
    node: NodeRecord,
    accepted: HistoryEntry | None,
    operation: Operation | None,
    unloadable: Collection[Digest] = (),
) -> NodeDecision:
    """Say what a node does next. Following the alias comes before preparing for another.

    Args:
        node: What it serves, holds and has answered.
        accepted: The newest entry of the alias that it may follow (see `refusal`).
        operation: The open operation.
        unloadable: Manifests that it could not load lately; it prepares for the next
            generation all the same, which may be the one that helps.
    """
    if operation is not None and not _is_ahead(operation, accepted):
        operation = None
    if accepted is not None and accepted.gen > node.serving_gen:
        missing = sorted(digests_of(accepted) - set(node.loaded))
        failed = [digest for digest in missing if digest in unloadable]
        reason = f"the alias is at generation {accepted.gen}"
        if not missing:
            return NodeDecision(NodeVerdict.SWITCH, reason, accepted.op_id)
        if not failed:
            return NodeDecision(NodeVerdict.LOAD, reason, accepted.op_id, missing[0])
        if operation is None and node.answer_to(accepted.op_id) is None:
            return NodeDecision(NodeVerdict.FAIL, reason, accepted.op_id, failed[0])
    open_id = None if operation is None else operation.op_id
    ack = node.ack
    if ack is not None and ack.answer is Answer.PREPARED and ack.op_id != open_id:
        reason = f"operation {ack.op_id} does not prepare any more"
        return NodeDecision(NodeVerdict.RETRACT, reason, ack.op_id)
    if operation is None:
        return NodeDecision(NodeVerdict.REST, "there is nothing to do for the alias")
    return _decide_preparation(node, operation, unloadable)


def _decide_preparation(
    node: NodeRecord, operation: Operation, unloadable: Collection[Digest]
) -> NodeDecision:
    if node.answer_to(operation.op_id) is not None:
        return NodeDecision(NodeVerdict.REST, "it has answered the open operation")
    reason = f"operation {operation.op_id} prepares generation {operation.gen}"
    if operation.loads in node.loaded:
        return NodeDecision(NodeVerdict.ANSWER, reason, operation.op_id)
    verdict = NodeVerdict.FAIL if operation.loads in unloadable else NodeVerdict.LOAD
    return NodeDecision(verdict, reason, operation.op_id, operation.loads)


def wanted_digests(accepted: HistoryEntry | None, operation: Operation | None) -> frozenset[Digest]:
    """Return what a node has to hold; the rest it may let go."""
    wanted = digests_of(accepted) if accepted is not None else frozenset()
    if operation is not None and _is_ahead(operation, accepted):
        wanted |= {operation.loads}
    return wanted


def digests_of(entry: HistoryEntry) -> frozenset[Digest]:
    """Return the manifests that whoever serves this generation has to hold."""
    canary = () if entry.canary is None else (entry.canary.manifest_digest,)
    return frozenset({entry.manifest_digest, *canary})


def _is_ahead(operation: Operation, accepted: HistoryEntry | None) -> bool:
    gen = 0 if accepted is None else accepted.gen
    return operation.phase is Phase.PREPARE and operation.from_gen == gen
