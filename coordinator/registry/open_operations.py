"""Finding an open operation by its id, and what a person can do about it."""

from pliska.coordinator.registry import moves, transactions
from pliska.coordinator.registry.approvals import sign_entry
from pliska.coordinator.registry.driver import Driver, Tell, silent
from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import (
    MoveUnknownError,
    NotFoundError,
    RefusedError,
    RegistryConflictError,
)
from pliska.coordinator.registry.history import APPROVALS_MAX
from pliska.coordinator.registry.moves import Move
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.operations import Operation, Phase
from pliska.coordinator.registry.protocol import Verdict, decide_abort
from pliska.coordinator.registry.transactions import Transaction, entry_of
from pliska.coordinator.wire.signing import Signer
from pliska.locks import ConflictError, OutcomeUnknownError

ATTEMPTS_MAX = 20


class OpenOperations:
    """The open operations of a namespace.

    Args:
        namespace: Where they are.
        actor: Who does something about them.
    """

    def __init__(self, namespace: Namespace, actor: str) -> None:
        self._parts = namespace
        self._actor = actor

    def find(self, op_id: str) -> tuple[Operation, EndedOperation | None]:
        """Return the operation as it is or was last, and how it ended.

        Raises:
            NotFoundError: There is no such operation.
        """
        parts = self._parts
        for model in parts.versions.models():
            for alias in parts.aliases.of_model(model):
                ended = parts.operations.how_ended(model, alias, op_id)
                if ended is not None:
                    return ended.operation, ended
                open_ = parts.operations.open(model, alias)
                if open_ is not None and open_.record.op_id == op_id:
                    return open_.record, None
        raise NotFoundError(f"no operation {op_id} in namespace {parts.name!r}")

    def resume(self, op_id: str, tell: Tell = silent) -> Move:
        """Take the operation over from whoever drove it, and drive it to its end.

        Args:
            op_id: The operation.
            tell: Gets what is waited for, each time it changes.

        Raises:
            NotFoundError: There is no such operation.
        """
        operation, ended = self.find(op_id)
        if ended is None:
            driver = Driver(self._parts, operation.model, operation.alias, self._actor, tell)
            ended = driver.drive(op_id, takes_over=True)
        if ended is None:
            raise RegistryConflictError(f"operation {op_id} went away while it was taken over")
        return moves.ended(ended)

    def abort(self, op_id: str) -> Move:
        """Call the operation off; the alias stays where it is.

        Raises:
            NotFoundError: There is no such operation.
            RefusedError: It has moved the alias already.
        """
        for _ in range(ATTEMPTS_MAX):
            operation, ended = self.find(op_id)
            if ended is not None:
                return _aborted(ended)
            stored = self._parts.operations.open(operation.model, operation.alias)
            if stored is None or stored.record.op_id != op_id:
                continue
            decision = decide_abort(stored.record, self._actor)
            if decision.verdict is not Verdict.ABORT:
                raise RefusedError(f"abort of {op_id}: {decision.reason}")
            self._send(op_id, transactions.end(self._parts.now(), stored, decision))
        raise _restless(op_id)

    def approve(self, op_id: str, signer: Signer) -> Operation:
        """Add an approval to an operation that waits for some.

        Raises:
            NotFoundError: There is no such operation.
            RefusedError: It waits for none any more.
        """
        for _ in range(ATTEMPTS_MAX):
            operation, ended = self.find(op_id)
            if ended is not None or operation.phase is not Phase.PREPARE:
                raise RefusedError(f"operation {op_id} does not wait for approvals any more")
            if len(operation.approvals) >= APPROVALS_MAX:
                raise RefusedError(f"operation {op_id} has {APPROVALS_MAX} approvals already")
            stored = self._parts.operations.open(operation.model, operation.alias)
            alias = self._parts.aliases.stands(operation.model, operation.alias)
            if stored is None or stored.record != operation:
                continue
            approval = sign_entry(entry_of(self._parts.now(), alias, operation), signer)
            if approval in operation.approvals:
                return operation
            self._send(op_id, transactions.approve(stored, approval))
        raise _restless(op_id)

    def _send(self, op_id: str, step: Transaction) -> None:
        """Send a transaction; whether it was applied is seen by looking again."""
        try:
            self._parts.backend.transact(step.checks, step.changes)
        except ConflictError:
            return
        except OutcomeUnknownError as error:
            raise MoveUnknownError(
                f"the answer was lost ({error}); do it again: it is done once", op_id
            ) from error


def _restless(op_id: str) -> RegistryConflictError:
    return RegistryConflictError(f"operation {op_id} keeps changing; try again")


def _aborted(ended: EndedOperation) -> Move:
    if ended.gen is not None:
        raise RefusedError(
            f"operation {ended.operation.op_id} moved the alias to generation {ended.gen}: "
            "roll back instead"
        )
    return moves.ended(ended)
