"""Carrying out promotions and rollbacks: one conditional transaction each.

The alias, its new history entry and the quarantine of what was rolled back from
change together or not at all, and only if nobody moved the alias since it was
read. What to do is decided in `policy.py`; this file reads, sends and, where the
answer is lost, finds out by the operation's id whether it was applied. It never
sends again blindly.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pliska.coordinator.registry.aliases import Aliases, AliasState, HistoryEntry, MoveKind
from pliska.coordinator.registry.errors import (
    AliasMovedError,
    MoveUnknownError,
    NotFoundError,
    RefusedError,
    RegistryConflictError,
)
from pliska.coordinator.registry.policy import Decision, Verdict, decide
from pliska.coordinator.registry.requests import Request, RollbackRequest
from pliska.coordinator.registry.verification import Verifier
from pliska.coordinator.registry.versions import (
    State,
    StoredVersion,
    VersionRecord,
    Versions,
    timestamp,
)
from pliska.locks import Backend, ConflictError, OutcomeUnknownError, StoreError

ATTEMPTS_MAX = 20


class Outcome(StrEnum):
    """What became of a request."""

    PLANNED = "planned"
    """Nothing was changed: this is what would happen."""
    MOVED = "moved"
    """This operation moved the alias."""
    JOINED = "joined"
    """Somebody else made the same move at the same time; it counts for both."""
    STAYED = "stayed"
    """The alias points there already."""


@dataclass(frozen=True, slots=True)
class Move:
    """What became of a request to move an alias.

    Attributes:
        gen: The alias's generation after the move (for PLANNED: as it would be).
        quarantined: The version that was quarantined by it, or None.
        op_id: The operation that made the move; with JOINED the other one.
    """

    model: str
    alias: str
    kind: MoveKind
    outcome: Outcome
    from_version: int | None
    to_version: int
    gen: int
    op_id: str
    quarantined: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision on a verified state, ready to be sent; nothing has changed yet."""

    state: AliasState
    decision: Decision
    target: StoredVersion
    quarantines: StoredVersion | None
    entry: HistoryEntry

    def as_move(self, outcome: Outcome) -> Move:
        """Return what the plan amounts to."""
        quarantined = None if self.quarantines is None else self.quarantines.record.version
        return _move(self.entry, outcome, quarantined)


class Mover:
    """Moves the aliases of one namespace."""

    def __init__(
        self,
        backend: Backend,
        versions: Versions,
        aliases: Aliases,
        verifier: Verifier,
        now: Callable[[], datetime],
    ) -> None:
        self._now = now
        self._backend = backend
        self._versions = versions
        self._aliases = aliases
        self._verifier = verifier

    def plan(self, request: Request) -> Move:
        """Return what `carry_out` would do now; change nothing.

        Raises:
            As `carry_out`.
        """
        plan = self._plan(request, self._aliases.read(request.model, request.alias))
        if plan.decision.verdict is Verdict.STAY:
            return _stayed(request, plan.state)
        return plan.as_move(Outcome.PLANNED)

    def carry_out(self, request: Request) -> Move:
        """Move the alias.

        Raises:
            NotFoundError: No such model, version or alias.
            RefusedError: The policy does not allow it.
            AliasMovedError: The alias is not at the expected generation, or
                moved while this ran.
            IntegrityError: The alias, its history or the target version is damaged.
            MoveUnknownError: The answer was lost and the store does not say.
        """
        plan: Plan | None = None
        for _ in range(ATTEMPTS_MAX):
            state = self._aliases.read(request.model, request.alias)
            done = state.moved_by(request.op_id)
            if done is not None:
                return _repeated(request, done)
            if plan is not None and state.gen != plan.state.gen:
                return _overtaken(request, plan, state)
            plan = self._plan(request, state)
            if plan.decision.verdict is Verdict.STAY:
                return _stayed(request, state)
            if self._send(plan):
                return plan.as_move(Outcome.MOVED)
        raise RegistryConflictError(f"the versions of {request.model!r} keep changing; try again")

    def _plan(self, request: Request, state: AliasState) -> Plan:
        versions = self._versions.of_model(request.model)
        decision = decide(
            state.history, {n: stored.record for n, stored in versions.items()}, request
        )
        target = versions[_allowed(request, decision, state)]
        self._verifier.every_byte(target.record)
        entry = _entry(request, state, target.record, self._now())
        return Plan(state, decision, target, _to_quarantine(request, state, versions), entry)

    def _send(self, plan: Plan) -> bool:
        """Send the transaction; False where a check failed, so that nothing was applied."""
        try:
            self._transact(plan)
        except ConflictError:
            return False
        except OutcomeUnknownError as error:
            return self._settle(plan, error)
        return True

    def _settle(self, plan: Plan, lost: OutcomeUnknownError) -> bool:
        """Find out what became of a transaction whose answer was lost; see `_send`.

        Sending the same checks again is safe: the first one and this one cannot both hold.
        """
        op_id = plan.entry.op_id
        unknown = MoveUnknownError(
            f"the answer to operation {op_id} was lost ({lost}); repeat the command with "
            f"--op-id {op_id}: it reports the move if it was made and makes it if it was not",
            op_id,
        )
        for _ in range(ATTEMPTS_MAX):
            try:
                state = self._aliases.read(plan.state.model, plan.state.alias)
                if state.moved_by(op_id) is not None:
                    return True
                if state.gen != plan.state.gen or not self._target_unchanged(plan):
                    return False
                self._transact(plan)
            except (ConflictError, OutcomeUnknownError):
                continue
            except StoreError as error:
                raise unknown from error
            return True
        raise unknown from lost

    def _target_unchanged(self, plan: Plan) -> bool:
        watched = [plan.target, *([plan.quarantines] if plan.quarantines else [])]
        records = [self._backend.get(stored.key) for stored in watched]
        return [record and record.modified for record in records] == [
            stored.modified for stored in watched
        ]

    def _transact(self, plan: Plan) -> None:
        checks, changes = self._aliases.move(plan.state, plan.entry)
        target, quarantines = plan.target, plan.quarantines
        checks.append(target.unmodified)
        if quarantines is not None:
            reason = f"rolled back by generation {plan.entry.gen} of {plan.entry.alias!r}"
            if plan.entry.reason:
                reason = f"{reason}: {plan.entry.reason}"
            record = dataclasses.replace(
                quarantines.record, state=State.QUARANTINED, state_reason=reason
            )
            checks.append(quarantines.unmodified)
            changes.append(quarantines.replaced_by(record))
        self._backend.transact(checks, changes)


def _allowed(request: Request, decision: Decision, state: AliasState) -> int:
    """Return the version of a decision to move or stay; raise what the others stand for."""
    message = f"{request.kind} of {request.alias!r} of {request.model!r}: {decision.reason}"
    match decision.verdict:
        case Verdict.NOT_FOUND:
            raise NotFoundError(message)
        case Verdict.CONFLICT:
            raise AliasMovedError(message, gen=state.gen)
        case Verdict.REFUSED:
            raise RefusedError(message)
    return decision.version


def _entry(
    request: Request, state: AliasState, target: VersionRecord, now: datetime
) -> HistoryEntry:
    return HistoryEntry(
        namespace=state.namespace,
        model=state.model,
        alias=state.alias,
        gen=state.gen + 1,
        kind=request.kind,
        from_version=state.version,
        to_version=target.version,
        manifest_digest=target.complete_manifest_digest(),
        op_id=request.op_id,
        actor=request.actor,
        reason=request.reason,
        at=timestamp(now),
        prev_hash=state.head_hash,
    )


def _to_quarantine(
    request: Request, state: AliasState, versions: Mapping[int, StoredVersion]
) -> StoredVersion | None:
    if not isinstance(request, RollbackRequest) or not request.quarantine:
        return None
    leaving = None if state.version is None else versions.get(state.version)
    return leaving if leaving is not None and leaving.record.state is State.READY else None


def _repeated(request: Request, done: HistoryEntry) -> Move:
    """Return the move that this operation made earlier."""
    if done.kind is not request.kind:
        raise AliasMovedError(
            f"operation {request.op_id} was a {done.kind}; choose another id", gen=done.gen
        )
    return _move(done, Outcome.MOVED, quarantined=None)


def _overtaken(request: Request, plan: Plan, state: AliasState) -> Move:
    """Say what a move that somebody else made meanwhile means for this request."""
    theirs = state.history[plan.state.gen]
    is_same = (theirs.kind, theirs.to_version) == (request.kind, plan.entry.to_version)
    if request.expect_gen is None and is_same and theirs.gen == state.gen:
        return _move(theirs, Outcome.JOINED, quarantined=None)
    raise AliasMovedError(
        f"{theirs.actor} moved {request.alias!r} of {request.model!r} to version "
        f"{theirs.to_version} at the same time (generation {theirs.gen}, operation "
        f"{theirs.op_id}); nothing was moved here: read the log and decide again",
        gen=state.gen,
    )


def _stayed(request: Request, state: AliasState) -> Move:
    newest = state.history[-1]
    return dataclasses.replace(
        _move(newest, Outcome.STAYED, quarantined=None),
        kind=request.kind,
        from_version=newest.to_version,
    )


def _move(entry: HistoryEntry, outcome: Outcome, quarantined: int | None) -> Move:
    return Move(
        model=entry.model,
        alias=entry.alias,
        kind=entry.kind,
        outcome=outcome,
        from_version=entry.from_version,
        to_version=entry.to_version,
        gen=entry.gen,
        op_id=entry.op_id,
        quarantined=quarantined,
        reason=entry.reason,
    )
