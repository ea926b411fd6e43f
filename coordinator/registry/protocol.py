"""The protocol of promotions and rollbacks, as decisions: no clock, no I/O, no store.

    intent ──▶ PREPARE ──▶ commit, one transaction ──▶ SWITCH ──▶ DONE or DEGRADED
                  └──▶ ABORTED

Each function looks at what was read and says what is to be done and why. Nothing it
says needs to be true any more when it is done: every change is sent with a check
that what it rests on has not changed (`transactions`), and whoever loses looks
again. `rollout` carries out what is said for operations, `serving` what is said
for nodes. tests/registry_model explores them exhaustively.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pliska.coordinator.registry.aliases import AliasRecord, StoredAlias
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.nodes import Answer, NodeRecord
from pliska.coordinator.registry.operations import (
    REQUIRED_NODES_MAX,
    Cause,
    Operation,
    Phase,
    StoredOperation,
    Wait,
)
from pliska.coordinator.registry.versions import State


class Verdict(StrEnum):
    """What is to be done about an intent, or about an open operation."""

    BEGIN = "begin"
    """Open the operation; nodes prepare."""
    MOVE = "move"
    """Move the alias now, in one transaction: there is nobody to wait for."""
    JOIN = "join"
    """Wait for the open operation: it makes the same move."""
    CONFLICT = "conflict"
    REFUSE = "refuse"
    WAIT = "wait"
    COMMIT = "commit"
    ABORT = "abort"
    DONE = "done"
    DEGRADE = "degrade"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason.

    Attributes:
        cause: The reason as a word.
        failed: Nodes that said they cannot.
        late: Nodes that have not answered.
    """

    verdict: Verdict
    reason: str
    cause: Cause = Cause.COMPLETE
    failed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """What was read of an alias.

    Attributes:
        alias: Where it points; None where it was never set.
        operation: The open operation.
        nodes: The newest life of each node that is there.
        target: State of the version that the open operation goes to.
        approvals: How many publishers approved of the open operation.
    """

    alias: StoredAlias | None
    operation: StoredOperation | None
    nodes: tuple[NodeRecord, ...] = ()
    target: State | None = None
    approvals: int = 0

    @property
    def gen(self) -> int:
        """The alias's generation; 0 where it was never set."""
        return 0 if self.alias is None else self.alias.record.gen

    @property
    def is_settled(self) -> bool:
        """Whether no operation is open and every node serves what the alias says."""
        return self.operation is None and all(n.serving_gen >= self.gen for n in self.nodes)


@dataclass(frozen=True, slots=True)
class Intent:
    """A move that somebody wants and the policy allows.

    Attributes:
        operation: As it will be; its required nodes and deadline are not set yet.
        is_relative: Whether its target was worked out from where the alias is.
        joins: Whether somebody else's operation will do as well.
        approvals: How many publishers have approved of it.
    """

    operation: Operation
    is_relative: bool
    joins: bool
    approvals: int


def decide_intent(
    now: datetime, situation: Situation, intent: Intent, approvals_min: int
) -> Decision:
    """Say how the move begins, or why it does not."""
    wish, open_ = intent.operation, situation.operation
    if situation.gen != wish.from_gen:
        return Decision(
            Verdict.CONFLICT,
            f"the alias is at generation {situation.gen}, no longer at {wish.from_gen}",
        )
    waits = wish.wait is not Wait.NONE and not wish.is_emergency
    if open_ is not None:
        other = open_.record
        theirs = (
            f"operation {other.op_id} ({other.kind} to version {other.version} by {other.actor}"
        )
        theirs += f", {other.phase})"
        if intent.is_relative and other.kind.goes_back and other.phase is Phase.SWITCH:
            return Decision(
                Verdict.CONFLICT,
                f"{theirs} has just gone back; to go further back, name the version or the "
                "generation",
            )
        if waits and other.phase is Phase.PREPARE and now < moment(other.deadline):
            if intent.joins and other.is_same_move(wish):
                return Decision(Verdict.JOIN, f"{theirs} makes the same move")
            return Decision(Verdict.CONFLICT, f"{theirs} is open; wait for it or abort it")
    if intent.approvals < approvals_min:
        if waits:
            return Decision(Verdict.BEGIN, f"{approvals_min} approvals are needed")
        return Decision(
            Verdict.REFUSE,
            f"{intent.approvals} of {approvals_min} approvals; without waiting it needs all of "
            "them at once",
        )
    if len(situation.nodes) > REQUIRED_NODES_MAX:
        reason = f"{len(situation.nodes)} nodes serve it, more than {REQUIRED_NODES_MAX}"
        return Decision(Verdict.REFUSE, f"{reason}; move it without waiting for them")
    if waits and situation.nodes:
        return Decision(Verdict.BEGIN, f"{len(situation.nodes)} nodes have to be asked")
    return Decision(Verdict.MOVE, "there is nobody to wait for")


def decide_operation(
    now: datetime, operation: Operation, situation: Situation, approvals_min: int
) -> Decision:
    """Say what becomes of the open operation of the situation."""
    if operation.phase is Phase.SWITCH:
        return _decide_switch(now, operation, situation.nodes)
    if situation.gen != operation.from_gen:
        reason = f"somebody else moved the alias to generation {situation.gen} meanwhile"
        return Decision(Verdict.ABORT, reason, Cause.OVERTAKEN)
    if situation.target not in (State.READY, State.DEPRECATED):
        reason = f"version {operation.target} is {situation.target} now"
        return Decision(Verdict.ABORT, reason, Cause.POLICY)
    is_late = now >= moment(operation.deadline)
    if situation.approvals < approvals_min:
        reason = f"{situation.approvals} of {approvals_min} approvals"
        verdict = Verdict.ABORT if is_late else Verdict.WAIT
        return Decision(verdict, reason, Cause.DEADLINE)
    return _decide_prepare(operation, situation.nodes, is_late=is_late)


def _decide_prepare(
    operation: Operation, nodes: Sequence[NodeRecord], *, is_late: bool
) -> Decision:
    count = _count(operation, nodes, _has_prepared)
    text = f"{count}: ready to serve version {operation.target}"
    if operation.required and not count.live:
        return Decision(Verdict.ABORT, "no node is left that could serve it", Cause.NODES)
    enough = count.majority if operation.wait is Wait.QUORUM else count.live
    if len(count.ready) + len(count.pending) < enough:
        return Decision(Verdict.ABORT, text, Cause.NODES, *count.others)
    if count.pending and not is_late:
        return Decision(Verdict.WAIT, text, Cause.DEADLINE, *count.others)
    if len(count.ready) >= enough:
        return Decision(Verdict.COMMIT, text)
    return Decision(Verdict.ABORT, text, Cause.DEADLINE, *count.others)


def _decide_switch(now: datetime, operation: Operation, nodes: Sequence[NodeRecord]) -> Decision:
    count = _count(operation, nodes, _serves)
    text = f"{count}: serve generation {operation.gen}"
    if len(count.ready) == count.live:
        return Decision(Verdict.DONE, text)
    if not count.pending:
        return Decision(Verdict.DEGRADE, text, Cause.NODES, *count.others)
    is_late = now >= moment(operation.deadline)
    verdict = Verdict.DEGRADE if is_late else Verdict.WAIT
    return Decision(verdict, text, Cause.DEADLINE, *count.others)


def decide_superseded(operation: Operation, nodes: Sequence[NodeRecord]) -> Decision:
    """Say how an open operation ends where another one takes its place."""
    if operation.phase is Phase.PREPARE:
        return Decision(Verdict.ABORT, "another operation took its place", Cause.OVERTAKEN)
    count = _count(operation, nodes, _serves)
    if len(count.ready) == count.live:
        return Decision(Verdict.DONE, f"{count}: serve generation {operation.gen}")
    reason = f"another operation took its place; {count}: serve generation {operation.gen}"
    return Decision(Verdict.DEGRADE, reason, Cause.OVERTAKEN, *count.others)


def decide_abort(operation: Operation, by: str) -> Decision:
    """Say whether a person may call an open operation off."""
    if operation.phase is Phase.SWITCH:
        reason = f"it moved the alias to generation {operation.gen} already: roll back instead"
        return Decision(Verdict.REFUSE, reason)
    return Decision(Verdict.ABORT, f"called off by {by}", Cause.ORDER)


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


@dataclass(frozen=True, slots=True)
class _Count:
    """The required nodes that are still there, by what they said."""

    ready: tuple[str, ...]
    failed: tuple[str, ...]
    pending: tuple[str, ...]

    @property
    def live(self) -> int:
        return len(self.ready) + len(self.failed) + len(self.pending)

    @property
    def majority(self) -> int:
        return self.live // 2 + 1

    @property
    def others(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.failed, self.pending

    def __str__(self) -> str:
        parts = [f"{len(self.ready)} of {self.live} nodes"]
        parts += [f"failed: {', '.join(self.failed)}"] if self.failed else []
        parts += [f"no answer yet: {', '.join(self.pending)}"] if self.pending else []
        return "; ".join(parts)


def _count(
    operation: Operation,
    nodes: Iterable[NodeRecord],
    is_ready: Callable[[Operation, NodeRecord], bool],
) -> _Count:
    ready, failed, pending = [], [], []
    for node in nodes:
        if node.node not in operation.required:
            continue
        ack = node.answer_to(operation.op_id)
        if is_ready(operation, node):
            ready.append(node.node)
        elif ack is not None and ack.answer is Answer.FAILED:
            failed.append(node.node)
        else:
            pending.append(node.node)
    return _Count(tuple(ready), tuple(failed), tuple(pending))


def _has_prepared(operation: Operation, node: NodeRecord) -> bool:
    ack = node.answer_to(operation.op_id)
    return ack is not None and ack.answer is Answer.PREPARED


def _serves(operation: Operation, node: NodeRecord) -> bool:
    return node.serving_gen >= operation.gen
