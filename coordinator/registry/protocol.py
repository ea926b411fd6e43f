"""The protocol of promotions and rollbacks, as decisions: no clock, no I/O, no store.

    intent ──▶ PREPARE ──▶ commit, one transaction ──▶ SWITCH ──▶ DONE or DEGRADED
                  └──▶ ABORTED

Each function looks at what was read and says what is to be done and why. Nothing it
says needs to be true any more when it is done: every change is sent with a check
that what it rests on has not changed (`transactions`), and whoever loses looks
again. `rollout` and `driver` carry out what is said here; what nodes do about an
alias is `node_protocol`. tests/registry_model explores both exhaustively.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pliska.coordinator.registry.aliases import StoredAlias
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.ended_operations import Cause
from pliska.coordinator.registry.nodes import Answer, NodeRecord
from pliska.coordinator.registry.operations import (
    REQUIRED_NODES_MAX,
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
