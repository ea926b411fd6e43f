"""Promotions, canaries and rollbacks from the request to the end of their operation.

A request is planned, begun, and driven; where somebody else is at it already, it
joins or is refused. What may be begun is decided in `protocol`, what it goes to in
`policy`.
"""

import dataclasses

from pliska.coordinator.registry import moves, transactions
from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.approvals import approvers, sign_entry
from pliska.coordinator.registry.driver import Driver, Tell, silent
from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import (
    AliasMovedError,
    IntegrityError,
    OperationOpenError,
    RefusedError,
    RegistryConflictError,
)
from pliska.coordinator.registry.moves import Move
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.operations import Operation
from pliska.coordinator.registry.planning import Plan, Planner
from pliska.coordinator.registry.protocol import Intent, Situation, Verdict, decide_intent
from pliska.coordinator.registry.requests import Request, RollbackRequest
from pliska.coordinator.registry.transactions import entry_of
from pliska.coordinator.wire.signing import Signer

ATTEMPTS_MAX = 20


class Rollout:
    """Carries out one request.

    Args:
        namespace: Where the alias is.
        request: What is asked for.
        signer: Approves of the move; None for nobody.
        tell: Gets what is waited for, each time it changes.
    """

    def __init__(
        self,
        namespace: Namespace,
        request: Request,
        signer: Signer | None = None,
        tell: Tell = silent,
    ) -> None:
        self._parts = namespace
        self._request = request
        self._signer = signer
        self._driver = Driver(namespace, request.model, request.alias, request.actor, tell)
        self._planner = Planner(namespace, self._driver.name)

    def plan(self) -> Move:
        """Return what `carry_out` would do now; change nothing. Raises as `carry_out`."""
        plan = self._planner.plan(self._request)
        if plan.operation is None:
            return moves.stayed(self._request, plan.state)
        return moves.planned(plan.operation)

    def carry_out(self) -> Move:
        """Do what is asked for, and wait as long as was asked for.

        Raises:
            NotFoundError: No such model, version or alias.
            RefusedError: The policy does not allow it.
            AliasMovedError: The alias is not at the expected generation, or
                moved while this ran.
            OperationOpenError: Another operation is open; nothing was moved.
            IntegrityError: The alias, its history or the target version is damaged.
            MoveUnknownError: The answer was lost and the store does not say.
            StoreError: The store was away for too long; the alias was not moved here.
        """
        request = self._request
        first: Plan | None = None
        for _ in range(ATTEMPTS_MAX):
            done = self._driver.drive(request.op_id, takes_over=True)
            if done is not None:
                return self._repeated(done) if first is None else moves.ended(done)
            plan = self._planner.plan(request)
            if first is not None and plan.state.gen != first.state.gen:
                return self._overtaken(first, plan)
            first = plan
            if plan.operation is None:
                return moves.stayed(request, plan.state)
            joined = self._begin(plan, plan.operation)
            if joined is not None:
                return moves.joined(joined)
        raise self._driver.unknown(request.op_id) or RegistryConflictError(
            f"the versions of {request.model!r} keep changing; try again"
        )

    def _begin(self, plan: Plan, wish: Operation) -> EndedOperation | None:
        """Send the first step, or follow somebody else's operation to its end."""
        situation, _, _ = self._driver.look()
        stands = None if situation.alias is None else situation.alias.record
        if situation.gen == plan.state.gen and stands != _newest(plan):
            raise IntegrityError(
                f"alias {wish.alias!r} of {wish.model!r} is not what its history says: it was "
                "changed by something else than a move; do not use it"
            )
        wish, approvals = self._approved(stands, wish)
        request, now = self._request, self._parts.now()
        is_relative = isinstance(request, RollbackRequest) and request.is_relative
        intent = Intent(wish, is_relative, request.expect_gen is None, approvals)
        decision = decide_intent(now, situation, intent, self._parts.approvals_min)
        match decision.verdict:
            case Verdict.BEGIN:
                self._driver.send(transactions.begin(now, situation, wish))
            case Verdict.MOVE:
                self._driver.send(transactions.move(now, situation, wish, plan.versions))
            case Verdict.JOIN:
                return self._driver.drive(_open_id(situation))
            case Verdict.REFUSE:
                raise RefusedError(self._message(decision.reason))
            case Verdict.CONFLICT if situation.gen == plan.state.gen:
                raise OperationOpenError(self._message(decision.reason), _open_id(situation))
        return None

    def _approved(self, alias: AliasRecord | None, wish: Operation) -> tuple[Operation, int]:
        """Return the operation with our approval, and how many count."""
        now = self._parts.now()
        if self._signer is not None:
            approval = sign_entry(entry_of(now, alias, wish), self._signer)
            wish = dataclasses.replace(wish, approvals=(approval,))
        return wish, len(approvers(entry_of(now, alias, wish), self._parts.publisher_key))

    def _repeated(self, done: EndedOperation) -> Move:
        """Return the move that this operation made earlier."""
        if done.operation.kind is not self._request.kind:
            raise AliasMovedError(
                f"operation {done.operation.op_id} was a {done.operation.kind}; choose another id",
                gen=done.operation.gen,
            )
        return moves.ended(done)

    def _overtaken(self, first: Plan, plan: Plan) -> Move:
        """Say what a move that somebody else made meanwhile means for this request."""
        request, wish = self._request, first.operation
        theirs = plan.state.history[first.state.gen]
        is_same = wish is not None and (theirs.kind, theirs.to_version, theirs.canary) == (
            wish.kind,
            wish.version,
            wish.canary,
        )
        if request.expect_gen is None and is_same and theirs.gen == plan.state.gen:
            ended = self._driver.drive(theirs.op_id)
            if ended is not None:
                return moves.joined(ended)
        raise AliasMovedError(
            f"{theirs.actor} moved {request.alias!r} of {request.model!r} to version "
            f"{theirs.to_version} at the same time (generation {theirs.gen}, operation "
            f"{theirs.op_id}); nothing was moved here: read the log and decide again",
            gen=plan.state.gen,
        )

    def _message(self, reason: str) -> str:
        request = self._request
        return f"{request.kind} of {request.alias!r} of {request.model!r}: {reason}"


def _newest(plan: Plan) -> AliasRecord | None:
    return AliasRecord.after(plan.state.history[-1]) if plan.state.history else None


def _open_id(situation: Situation) -> str:
    return "" if situation.operation is None else situation.operation.record.op_id
