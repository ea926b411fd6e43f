"""What became of a request to move an alias: values only."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.aliases import AliasState
from pliska.coordinator.registry.ended_operations import Cause, EndedOperation, Ending
from pliska.coordinator.registry.errors import AbortedError, DegradedError
from pliska.coordinator.registry.history import Canary, MoveKind
from pliska.coordinator.registry.operations import Operation, Wait
from pliska.coordinator.registry.requests import Request


class Outcome(StrEnum):
    """What became of a request."""

    PLANNED = "planned"
    """Nothing was changed: this is what would happen."""
    MOVED = "moved"
    """This operation moved the alias, and the nodes that it waited for serve it."""
    DEGRADED = "degraded"
    """The alias has moved; some nodes do not serve it."""
    ABORTED = "aborted"
    """The alias was not moved, and this operation never will."""
    JOINED = "joined"
    """Somebody else made the same move at the same time; it counts for both."""
    STAYED = "stayed"
    """The alias points there already."""


_ABORT_EXIT_CODES = {Cause.DEADLINE: 6, Cause.NODES: 7, Cause.POLICY: 7}
"""For the other causes it is 4: somebody else came in between."""

_OUTCOMES = {
    Ending.DONE: Outcome.MOVED,
    Ending.DEGRADED: Outcome.DEGRADED,
    Ending.ABORTED: Outcome.ABORTED,
}


@dataclass(frozen=True, slots=True)
class Move:
    """What became of a request to move an alias.

    Attributes:
        from_version: Where the alias pointed before; None where it was new.
        to_version: Where it points now, or would.
        canary: What a part of the requests is given to since.
        gen: The alias's generation after the move (for PLANNED and ABORTED: as it would be).
        op_id: The operation that made the move; with JOINED the other one.
        quarantined: The versions that were quarantined by it.
        wait: Which nodes it waited for.
        nodes: How many that were.
        failed: Nodes that could not load or serve it.
        late: Nodes that have not answered in time.
        cause: Why it ended so, as a word.
        why: Why it ended so, for a person; empty where nothing was to be done.
    """

    model: str
    alias: str
    kind: MoveKind
    outcome: Outcome
    from_version: int | None
    to_version: int
    canary: Canary | None
    gen: int
    op_id: str
    quarantined: tuple[int, ...]
    reason: str
    wait: Wait
    nodes: int = 0
    failed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    cause: Cause = Cause.COMPLETE
    why: str = ""

    @property
    def is_committed(self) -> bool:
        """Whether the alias has moved by this operation or the one that was joined."""
        return self.outcome in (Outcome.MOVED, Outcome.DEGRADED, Outcome.JOINED)

    @property
    def is_as_asked(self) -> bool:
        """Whether as many nodes serve it as were asked for."""
        if self.outcome is not Outcome.DEGRADED:
            return self.outcome is not Outcome.ABORTED
        missing = len(self.failed) + len(self.late)
        return self.wait is Wait.QUORUM and missing * 2 < self.nodes

    def check(self) -> "Move":
        """Return the move if it is as asked for.

        Raises:
            AbortedError: The alias was not moved.
            DegradedError: It was moved, and fewer nodes serve it than were asked for.
        """
        if self.is_as_asked:
            return self
        message = f"{self.kind} of {self.alias!r} of {self.model!r} {self.outcome}: {self.why}"
        if self.is_committed:
            raise DegradedError(f"{message}; the alias has moved and stays so")
        exit_code = _ABORT_EXIT_CODES.get(self.cause, 4)
        raise AbortedError(f"{message}; the alias was not moved", self.op_id, exit_code)


def planned(operation: Operation) -> Move:
    """Return the move that an operation would make."""
    return Move(
        model=operation.model,
        alias=operation.alias,
        kind=operation.kind,
        outcome=Outcome.PLANNED,
        from_version=operation.from_version,
        to_version=operation.version,
        canary=operation.canary,
        gen=operation.gen,
        op_id=operation.op_id,
        quarantined=operation.quarantines,
        reason=operation.reason,
        wait=operation.wait,
        nodes=len(operation.required),
    )


def ended(record: EndedOperation) -> Move:
    """Return the move that an operation made, or did not make."""
    is_committed = record.ending is not Ending.ABORTED
    return dataclasses.replace(
        planned(record.operation),
        outcome=_OUTCOMES[record.ending],
        quarantined=record.operation.quarantines if is_committed else (),
        failed=record.failed,
        late=record.late,
        cause=record.cause,
        why=record.why,
    )


def joined(record: EndedOperation) -> Move:
    """Return the move that somebody else's operation made for both."""
    move = ended(record)
    return (
        dataclasses.replace(move, outcome=Outcome.JOINED) if move.outcome is Outcome.MOVED else move
    )


def stayed(request: Request, state: AliasState) -> Move:
    """Return that nothing was to be done: the alias is there already."""
    newest = state.history[-1]
    return Move(
        model=newest.model,
        alias=newest.alias,
        kind=request.kind,
        outcome=Outcome.STAYED,
        from_version=newest.to_version,
        to_version=newest.to_version,
        canary=newest.canary,
        gen=newest.gen,
        op_id=newest.op_id,
        quarantined=(),
        reason=newest.reason,
        wait=request.wait,
    )
