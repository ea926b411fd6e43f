"""From a request to the operation that it stands for, on what was read; nothing changes yet.

A request may say "back to the previous version"; an operation names a version and the
generation that it leaves. What the policy decides is in `policy`; here it is
looked up, and the target is verified before anything moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pliska.coordinator.registry.aliases import AliasState
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import timestamp
from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import (
    AliasMovedError,
    IntegrityError,
    NotFoundError,
    RefusedError,
)
from pliska.coordinator.registry.history import Canary
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.operations import Operation, Phase
from pliska.coordinator.registry.policy import Decision, Verdict, decide
from pliska.coordinator.registry.requests import PromoteRequest, Request, RollbackRequest
from pliska.coordinator.registry.schema import schema_changes, summary
from pliska.coordinator.registry.versions import State, StoredVersion, VersionRecord


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request comes to.

    Attributes:
        state: What the alias was when it was read.
        operation: The operation; None where the alias is there already.
        versions: The versions that the operation rests on or changes, as they were read.
    """

    state: AliasState
    operation: Operation | None
    versions: Mapping[int, StoredVersion]


class Planner:
    """Plans the moves that one driver will drive. A target is verified once.

    Args:
        namespace: Where they are.
        driver: Who will drive them.
    """

    def __init__(self, namespace: Namespace, driver: str) -> None:
        self._parts = namespace
        self._driver = driver
        self._verified: set[Digest] = set()

    def plan(self, request: Request) -> Plan:
        """Work out what the request comes to now, and verify its target.

        Raises:
            NotFoundError: No such model, version or alias.
            RefusedError: The policy does not allow it, or the target is another kind of
                model than what the alias points at.
            AliasMovedError: The alias is not at the expected generation.
            IntegrityError: The alias, its history or the target version is damaged.
        """
        parts = self._parts
        state = parts.aliases.read(request.model, request.alias)
        versions = parts.versions.of_model(request.model)
        is_rollback = isinstance(request, RollbackRequest)
        ended = parts.operations.ended(request.model, request.alias) if is_rollback else ()
        plan = make_plan(parts.now(), self._driver, request, state, versions, ended)
        if plan.operation is not None:
            target = versions[plan.operation.target].record
            self._verify(target)
            is_promotion = isinstance(request, PromoteRequest) and not request.allow_schema_change
            if is_promotion and state.version is not None:
                self._check_schema(versions[state.version].record, target)
        return plan

    def _verify(self, record: VersionRecord) -> None:
        self._parts.marks.newest(record)
        digest = record.complete_manifest_digest()
        if digest not in self._verified:
            self._parts.verifier.every_byte(record)
            self._verified.add(digest)

    def _check_schema(self, before: VersionRecord, after: VersionRecord) -> None:
        """Refuse to put another kind of model in the place of what is served."""
        read = self._parts.verifier.manifest
        try:
            changes = schema_changes(read(before), read(after))
        except IntegrityError as error:
            changes = (f"the tensors of {before.name} cannot be read for comparison: {error}",)
        if changes:
            raise RefusedError(
                f"{after.name} does not fit in the place of {before.name}: {summary(changes)}; "
                "--allow-schema-change points the alias at it all the same"
            )


def make_plan(
    now: datetime,
    driver: str,
    request: Request,
    state: AliasState,
    versions: Mapping[int, StoredVersion],
    ended: Sequence[EndedOperation],
) -> Plan:
    """Work out what the request comes to: the operation, and the versions it involves.

    Args:
        now: The time, UTC.
        driver: Who will drive the operation.
        request: What is asked for.
        state: The alias.
        versions: All versions of the model.
        ended: How earlier operations on the alias ended, for a rollback.

    Raises:
        NotFoundError, RefusedError, AliasMovedError: As `Planner.plan`.
    """
    records = {number: stored.record for number, stored in versions.items()}
    failed = {each.gen for each in ended if each.gen is not None and each.failed}
    decision = decide(state.history, records, request, failed)
    version = records[_allowed(request, decision, state)]
    if decision.verdict is Verdict.STAY:
        return Plan(state, None, {})
    valid_for_s = request.valid_for_s
    operation = Operation(
        namespace=state.namespace,
        model=state.model,
        alias=state.alias,
        op_id=request.op_id,
        kind=request.kind,
        phase=Phase.PREPARE,
        epoch=1,
        driver=driver,
        from_gen=state.gen,
        from_version=state.version,
        version=version.version,
        manifest_digest=version.complete_manifest_digest(),
        canary=_canary(request, records),
        quarantines=_quarantines(request, state, records, version.version),
        wait=request.wait,
        is_emergency=request.is_emergency,
        required=(),
        timeout_s=request.timeout_s,
        deadline=timestamp(now),
        actor=request.actor,
        reason=request.reason,
        expires=None if valid_for_s is None else timestamp(now + timedelta(seconds=valid_for_s)),
    )
    involved = sorted({operation.target, *operation.quarantines})
    return Plan(state, operation, {number: versions[number] for number in involved})


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


def _canary(request: Request, versions: Mapping[int, VersionRecord]) -> Canary | None:
    if not isinstance(request, PromoteRequest) or request.canary_percent is None:
        return None
    digest = versions[request.version].complete_manifest_digest()
    return Canary(request.version, digest, request.canary_percent)


def _quarantines(
    request: Request, state: AliasState, versions: Mapping[int, VersionRecord], version: int
) -> tuple[int, ...]:
    """Return the versions that are left by a rollback and shall not be returned to."""
    if not isinstance(request, RollbackRequest) or not request.quarantine:
        return ()
    left = {state.version} | ({state.canary.version} if state.canary else set())
    return tuple(
        number
        for number, record in sorted(versions.items())
        if number in left - {version} and record.state in (State.READY, State.DEPRECATED)
    )
