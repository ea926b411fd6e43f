"""Driving an operation to its end: look, ask the protocol, send one transaction, look again.

All decisions are in `protocol`, all that is written in `transactions`. Whatever
becomes of a transaction (applied, refused, answer lost), the next step is to look:
nothing is ever sent again blindly. So it does not matter which process drives,
whether it dies, or whether two believe that they do.
"""

import dataclasses
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from pliska.coordinator.registry import transactions
from pliska.coordinator.registry.approvals import approvers
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import MoveUnknownError, RegistryConflictError
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.operations import Operation, Phase, StoredOperation
from pliska.coordinator.registry.protocol import (
    Decision,
    Situation,
    Verdict,
    decide_operation,
)
from pliska.coordinator.registry.transactions import Transaction, entry_of
from pliska.coordinator.registry.versions import StoredVersion
from pliska.locks import (
    ConflictError,
    OutcomeUnknownError,
    Revision,
    StoreError,
    StoreUnavailableError,
)

POLL_S = 0.5
"""How often to look for what nobody is woken for: an abort, an approval, a deadline."""
OVERDUE_S = 5.0
"""How long after its deadline an operation's driver is taken for dead by those who wait."""
PATIENCE_S = 15.0
"""How long the store may be away once something was sent."""
PAUSE_S = 0.2
REFUSALS_MAX = 50
"""Each refused transaction means that somebody else's was applied in between."""

Read = TypeVar("Read")
Tell = Callable[[str], None]


def silent(_: str) -> None:
    """Tell nobody."""


class Driver:
    """Drives operations on one alias.

    Args:
        namespace: Where the alias is.
        model: Its model.
        alias: Its name.
        actor: For whom; others see it beside an operation.
        tell: Gets what is waited for, each time it changes.
        pause: Waits so many seconds.
    """

    def __init__(
        self,
        namespace: Namespace,
        model: str,
        alias: str,
        actor: str,
        tell: Tell = silent,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = f"{actor} {secrets.token_hex(4)}"
        self._parts = namespace
        self._model = model
        self._alias = alias
        self._tell = tell
        self._told = ""
        self._pause = pause
        self._has_sent = False
        self._in_doubt: OutcomeUnknownError | None = None

    def look(self) -> tuple[Situation, Revision, Revision]:
        """Read what a decision needs.

        Returns:
            The situation, and the revisions after which to wait for the alias or
            its operation, and for its nodes, to change.
        """
        parts, model, alias = self._parts, self._model, self._alias
        listing = parts.backend.list(parts.keys.alias_directory(model, alias))
        found = {record.key: record for record in listing.records}
        alias_record = found.get(parts.keys.alias(model, alias))
        operation_record = found.get(parts.keys.operation(model, alias))
        stands = None if alias_record is None else parts.aliases.stored(alias_record)
        open_ = None if operation_record is None else parts.operations.stored(operation_record)
        nodes = parts.nodes.of_alias(model, alias)
        situation = Situation(stands, open_, nodes.nodes)
        if open_ is not None and open_.record.phase is Phase.PREPARE:
            situation = self._with_target(situation, open_.record)
        return situation, listing.revision, nodes.revision

    def send(self, step: Transaction) -> bool:
        """Send a transaction; False where it was refused, or nobody knows. Look in any case."""
        self._has_sent = True
        try:
            self._parts.backend.transact(step.checks, step.changes)
        except OutcomeUnknownError as error:
            self._in_doubt = error
            return False
        except ConflictError:
            self._in_doubt = None  # what it rested on has gone, and cannot come back
            return False
        self._in_doubt = None
        return True

    def drive(self, op_id: str, *, takes_over: bool = False) -> EndedOperation | None:
        """Drive the operation if it is ours, else follow it, until it has ended.

        One whose driver must be dead is taken over.

        Args:
            op_id: The operation.
            takes_over: Whether to take it over in any case.

        Returns:
            How it ended; None where there is no such operation.

        Raises:
            MoveUnknownError: Something was sent, and the store does not say what became of it.
            StoreError: The store was away for too long; nothing was moved here.
        """
        refusals = 0
        while refusals < REFUSALS_MAX:
            situation, revision, nodes_revision = self._patiently(op_id, self.look)
            stored = situation.operation
            if stored is None or stored.record.op_id != op_id:
                return self._patiently(op_id, lambda: self._how_ended(op_id))
            operation = stored.record
            if operation.driver != self.name:
                if takes_over or self._is_overdue(operation):
                    takes_over = not self.send(transactions.take_over(stored, self.name))
                    continue
                self._wait(self._parts.keys.alias_directory(self._model, self._alias), revision)
                continue
            decision = decide_operation(
                self._parts.now(), operation, situation, self._parts.approvals_min
            )
            if decision.reason != self._told:
                self._tell(decision.reason)
                self._told = decision.reason
            if decision.verdict is Verdict.WAIT:
                self._wait(self._parts.keys.nodes(self._model, self._alias), nodes_revision)
            elif not self.send(self._step(stored, situation, decision)):
                refusals += 1
        raise self.unknown(op_id) or RegistryConflictError(
            f"operation {op_id} goes neither on nor back: its steps are refused for no reason "
            "that can be read; look at the records of the alias"
        )

    def unknown(self, op_id: str) -> MoveUnknownError | None:
        """Return the error that says that nobody knows what became of the operation, if so."""
        if self._in_doubt is None:
            return None
        error = MoveUnknownError(
            f"the answer to operation {op_id} was lost ({self._in_doubt}); repeat the command with "
            f"--op-id {op_id}: it reports the move if it was made and makes it if it was not",
            op_id,
        )
        error.__cause__ = self._in_doubt
        return error

    def _with_target(self, situation: Situation, operation: Operation) -> Situation:
        target = self._parts.versions.find(self._model, operation.target)
        alias = None if situation.alias is None else situation.alias.record
        entry = entry_of(self._parts.now(), alias, operation)
        return dataclasses.replace(
            situation,
            target=None if target is None else target.record.state,
            approvals=len(approvers(entry, self._parts.publisher_key)),
        )

    def _step(
        self, stored: StoredOperation, situation: Situation, decision: Decision
    ) -> Transaction:
        now = self._parts.now()
        if decision.verdict is not Verdict.COMMIT:
            return transactions.end(now, stored, decision)
        versions = self._versions(stored.record.target, *stored.record.quarantines)
        return transactions.commit(now, stored, situation.alias, versions)

    def _versions(self, *numbers: int) -> dict[int, StoredVersion]:
        found = {number: self._parts.versions.find(self._model, number) for number in numbers}
        return {number: stored for number, stored in found.items() if stored is not None}

    def _how_ended(self, op_id: str) -> EndedOperation | None:
        return self._parts.operations.how_ended(self._model, self._alias, op_id)

    def _is_overdue(self, operation: Operation) -> bool:
        late = self._parts.now() - moment(operation.deadline)
        return late.total_seconds() > OVERDUE_S

    def _wait(self, path: str, revision: Revision) -> None:
        try:
            self._parts.backend.wait_for_change(path, revision, POLL_S)
        except StoreUnavailableError:
            self._pause(PAUSE_S)

    def _patiently(self, op_id: str, read: Callable[[], Read]) -> Read:
        """Read; while the store is away and something was sent, try again for a while."""
        patience_s = PATIENCE_S if self._has_sent else 0.0
        while True:
            try:
                return read()
            except StoreUnavailableError as error:
                if patience_s <= 0:
                    raise self.unknown(op_id) or error from error
                self._pause(PAUSE_S)
                patience_s -= PAUSE_S
            except StoreError as error:
                raise self.unknown(op_id) or error from error
