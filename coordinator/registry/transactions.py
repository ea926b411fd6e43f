"""What each step of an operation writes, and on what condition.

A step is one conditional transaction of the coordination store: it is applied as a
whole, and only if everything that its decision rested on is still as it was read.
Pure; `rollout` sends what is returned here.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pliska.coordinator.registry.aliases import AliasRecord, StoredAlias, next_entry_hash
from pliska.coordinator.registry.document import timestamp
from pliska.coordinator.registry.ended_operations import EndedOperation, Ending, ended_key
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.marks import Mark, marked, next_mark
from pliska.coordinator.registry.operations import Operation, Phase, StoredOperation, Wait
from pliska.coordinator.registry.protocol import Decision, Situation, Verdict, decide_superseded
from pliska.coordinator.registry.versions import State, StoredVersion
from pliska.locks import Absent, Change, Check, Create

_ENDINGS: Mapping[Verdict, Ending] = {
    Verdict.DONE: Ending.DONE,
    Verdict.DEGRADE: Ending.DEGRADED,
    Verdict.ABORT: Ending.ABORTED,
}


@dataclass(slots=True)
class Transaction:
    """Checks and changes, in the order in which they were added."""

    checks: list[Check] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


def begin(now: datetime, situation: Situation, wish: Operation) -> Transaction:
    """Open the operation in PREPARE, in the place of an open one where there is one."""
    operation = dataclasses.replace(
        wish, phase=Phase.PREPARE, required=_names(situation), deadline=_deadline(now, wish)
    )
    step = Transaction()
    step.checks.append(_alias_unmoved(situation.alias, wish))
    _occupy(step, now, situation, operation)
    return step


def move(
    now: datetime, situation: Situation, wish: Operation, versions: Mapping[int, StoredVersion]
) -> Transaction:
    """Move the alias without an operation before it.

    `versions` are the target and those to be quarantined, as they were read.
    Afterwards the operation is open in SWITCH where nodes have to follow, else it
    has ended. One that waits for nobody leaves an operation that others prepare as
    it is: that will find the alias moved, and end.
    """
    step = Transaction()
    required = () if wish.wait is Wait.NONE else _names(situation)
    operation = dataclasses.replace(
        wish, phase=Phase.SWITCH, required=required, deadline=_deadline(now, wish)
    )
    _move(step, now, situation.alias, operation, versions)
    if required:
        _occupy(step, now, situation, operation)
        return step
    if wish.wait is not Wait.NONE:
        _vacate(step, now, situation, operation)
    done = Decision(Verdict.DONE, "there was nobody to wait for")
    _record_end(step, now, operation, done)
    return step


def commit(
    now: datetime,
    stored: StoredOperation,
    alias: StoredAlias | None,
    versions: Mapping[int, StoredVersion],
) -> Transaction:
    """Move the alias as the open operation wants it. This is the commit point."""
    operation = dataclasses.replace(
        stored.record, phase=Phase.SWITCH, deadline=_deadline(now, stored.record)
    )
    step = Transaction([stored.unmodified])
    _move(step, now, alias, operation, versions)
    step.changes.append(stored.replaced_by(operation))
    return step


def end(now: datetime, stored: StoredOperation, decision: Decision) -> Transaction:
    """Remove the open operation and write down what became of it."""
    step = Transaction([stored.unmodified], [stored.removed()])
    _record_end(step, now, stored.record, decision)
    return step


def take_over(stored: StoredOperation, driver: str) -> Transaction:
    """Drive the open operation from now on: whoever did before can write no more."""
    taken = dataclasses.replace(stored.record, epoch=stored.record.epoch + 1, driver=driver)
    return Transaction([stored.unmodified], [stored.replaced_by(taken)])


def approve(stored: StoredOperation, approval: str) -> Transaction:
    """Add an approval to the open operation; its driver goes on."""
    approvals = (*stored.record.approvals, approval)
    approved = dataclasses.replace(stored.record, approvals=approvals)
    return Transaction([stored.unmodified], [stored.replaced_by(approved)])


def entry_of(now: datetime, alias: AliasRecord | None, operation: Operation) -> HistoryEntry:
    """Return the history entry that the operation adds after what the alias is now."""
    return HistoryEntry(
        namespace=operation.namespace,
        model=operation.model,
        alias=operation.alias,
        gen=operation.gen,
        kind=operation.kind,
        from_version=operation.from_version,
        to_version=operation.version,
        manifest_digest=operation.manifest_digest,
        op_id=operation.op_id,
        actor=operation.actor,
        reason=operation.reason,
        at=timestamp(now),
        prev_hash=next_entry_hash(alias),
        canary=operation.canary,
        expires=operation.expires,
        approvals=operation.approvals,
    )


def _move(
    step: Transaction,
    now: datetime,
    alias: StoredAlias | None,
    operation: Operation,
    versions: Mapping[int, StoredVersion],
) -> None:
    """Add the move of the alias: its record, its history, and what it quarantines."""
    entry = entry_of(now, None if alias is None else alias.record, operation)
    record = AliasRecord.after(entry)
    keys = Keys(operation.namespace)
    key = keys.alias(operation.model, operation.alias)
    step.checks.append(_alias_unmoved(alias, operation))
    step.changes.append(
        Create(key, record.to_bytes()) if alias is None else alias.replaced_by(record)
    )
    step.changes.append(
        Create(
            keys.history_entry(operation.model, operation.alias, operation.gen), entry.to_bytes()
        )
    )
    for stored in versions.values():
        step.checks.append(stored.unmodified)
        is_quarantined = stored.record.version in operation.quarantines
        if is_quarantined and stored.record.state in (State.READY, State.DEPRECATED):
            mark = _quarantine(stored, entry)
            step.changes.append(stored.replaced_by(marked(stored.record, mark)))
            step.changes.append(mark.creation())


def _quarantine(stored: StoredVersion, entry: HistoryEntry) -> Mark:
    reason = f"rolled back by generation {entry.gen} of {entry.alias!r}"
    if entry.reason:
        reason = f"{reason}: {entry.reason}"
    return next_mark(
        stored.record,
        State.QUARANTINED,
        actor=entry.actor,
        reason=reason,
        at=entry.at,
        op_id=entry.op_id,
    )


def _occupy(step: Transaction, now: datetime, situation: Situation, operation: Operation) -> None:
    """Put the operation in the one place there is for open operations of an alias."""
    stored = situation.operation
    if stored is None:
        key = Keys(operation.namespace).operation(operation.model, operation.alias)
        step.checks.append(Absent(key))
        step.changes.append(Create(key, operation.to_bytes()))
        return
    step.checks.append(stored.unmodified)
    step.changes.append(stored.replaced_by(operation))
    _record_end(step, now, stored.record, decide_superseded(stored.record, situation.nodes))


def _vacate(step: Transaction, now: datetime, situation: Situation, operation: Operation) -> None:
    """Leave that place empty."""
    stored = situation.operation
    if stored is None:
        key = Keys(operation.namespace).operation(operation.model, operation.alias)
        step.checks.append(Absent(key))
        return
    step.checks.append(stored.unmodified)
    step.changes.append(stored.removed())
    _record_end(step, now, stored.record, decide_superseded(stored.record, situation.nodes))


def _record_end(step: Transaction, now: datetime, operation: Operation, decision: Decision) -> None:
    ending = _ENDINGS[decision.verdict]
    ended = EndedOperation(
        ending=ending,
        cause=decision.cause,
        gen=None if ending is Ending.ABORTED else operation.gen,
        failed=decision.failed,
        late=decision.late,
        why=decision.reason,
        at=timestamp(now),
        operation=operation,
    )
    step.changes.append(Create(ended_key(ended), ended.to_bytes()))


def _alias_unmoved(alias: StoredAlias | None, operation: Operation) -> Check:
    if alias is None:
        return Absent(Keys(operation.namespace).alias(operation.model, operation.alias))
    return alias.unmodified


def _names(situation: Situation) -> tuple[str, ...]:
    return tuple(node.node for node in situation.nodes)


def _deadline(now: datetime, operation: Operation) -> str:
    return timestamp(now + timedelta(seconds=operation.timeout_s))
