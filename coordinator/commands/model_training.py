"""`pliska model rollback --scope training`: put a running job back on an older version.

The order goes into the store; whoever leads the job carries it out. What was
registered from the versions that it undid is quarantined here, once that is done.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pliska.coordinator.client import JobDirectory
from pliska.coordinator.commands.model_options import Place
from pliska.coordinator.errors import (
    RollbackPendingError,
    RollbackRefusedError,
    UnknownJobError,
)
from pliska.coordinator.records.horizon import read_horizon
from pliska.coordinator.records.rollback import EXCLUDED_MAX, Undone, refuse_target, undoing
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.registry import (
    IntegrityError,
    Reference,
    RefusedError,
    Registry,
    RegistryUsageError,
    State,
    VersionRecord,
)
from pliska.coordinator.rollback_order import RollbackOrder, place_order, read_order
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.limits import NAME_BYTES_MAX, WHY_CHARACTERS_MAX
from pliska.locks import connect
from pliska.locks.presentation import show_json, show_rows

POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The options of a rollback that only a running job has."""

    to_round: Annotated[
        int | None, typer.Option(min=1, help="Training: to what this round of the job made.")
    ] = None
    job: Annotated[
        str | None, typer.Option(help="Training: the job; by default the model's name.")
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKER", help="Training: go on without this worker; repeatable."),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether there is any."""
        return self.to_round is not None or self.job is not None or bool(self.exclude)


@dataclass(frozen=True, slots=True)
class TrainingRollback:
    """What a person asks for.

    Attributes:
        model: Registered; the job has its name unless `job` says otherwise.
        job: Name of the job.
        to: A registered version whose lineage names job and rounds.
        to_round: A version of the job.
        exclude: Workers that the job is to go on without.
        timeout_s: How long to wait for a leader that carries it out.
    """

    model: str
    job: str | None
    to: int | None
    to_round: int | None
    exclude: tuple[str, ...]
    actor: str
    reason: str
    timeout_s: int

    def check(self) -> None:
        """Refuse what cannot be ordered. Raises `RegistryUsageError`."""
        if (self.to is None) == (self.to_round is None):
            raise RegistryUsageError(
                "say where to: --to-round N, a version of the job, or --to N, a registered version"
            )
        texts = {"--reason": self.reason, "the actor": self.actor}
        for what, text in texts.items():
            if not 1 <= len(text) <= WHY_CHARACTERS_MAX or not text.isprintable():
                raise RegistryUsageError(
                    f"{what}: give 1 to {WHY_CHARACTERS_MAX} printable characters"
                )
        if len(self.exclude) > EXCLUDED_MAX:
            raise RegistryUsageError(f"--exclude: at most {EXCLUDED_MAX} workers at once")
        for worker in self.exclude:
            is_visible = all("!" <= character <= "~" for character in worker)
            if not 1 <= len(worker) <= NAME_BYTES_MAX or not is_visible:
                raise RegistryUsageError(f"--exclude {worker[:80]!r}: no worker has such a name")


def roll_back_training(place: Place, wish: TrainingRollback, *, dry_run: bool) -> None:
    """Order a rollback, wait until it is done, and mark what was registered from what it undid."""
    wish.check()
    with place.open() as registry:
        job, target = _target(registry, wish)
        backend = connect(place.store)
        try:
            directory = JobDirectory(backend, job)
            _definition(directory)
            head = _tip(directory)
            wanted = RollbackOrder(
                number=len(head.undone) + 1,
                target=target,
                actor=wish.actor,
                reason=wish.reason,
                excluded=tuple(sorted(set(wish.exclude))),
            )
            if dry_run:
                _require(target, head, directory)
                undone = Undone(target, head.version + 1)
                _show(place, registry, wanted, head, (undone,), is_done=False)
                return
            number, head = _carried_out(place, directory, wanted, head, wish.timeout_s)
            _taint(registry, wish, job, head)
            _show(place, registry, wanted, head, (head.undone[number - 1],), is_done=True)
        finally:
            backend.close()


def _target(registry: Registry, wish: TrainingRollback) -> tuple[str, int]:
    """Return the job, and its version to go back to."""
    if wish.to is None:
        return wish.job or wish.model, wish.to_round or 0
    record = registry.resolve(Reference(wish.model, version=wish.to))
    if record.state is State.QUARANTINED:
        raise RefusedError(f"{record.name} is QUARANTINED ({record.state_reason})")
    lineage = registry.manifest(record).lineage
    if lineage.job is None or lineage.rounds is None:
        raise RegistryUsageError(
            f"{record.name} does not say which rounds of which job it is from: name them with "
            "--job and --to-round"
        )
    if wish.job not in (None, lineage.job):
        raise RegistryUsageError(f"{record.name} is from job {lineage.job!r}, not {wish.job!r}")
    return lineage.job, lineage.rounds[1]


def _definition(directory: JobDirectory) -> Job:
    definition = directory.definition()
    if definition is None:
        raise UnknownJobError(f"the store {directory.backend.address} has no job {directory.job!r}")
    return definition


def _tip(directory: JobDirectory) -> Tip:
    record = directory.commit()
    if record is None:
        raise RollbackRefusedError(f"{directory.job}: no round is committed yet")
    return Tip.verified(record.value, directory.job, directory.signer_key)


def _require(target: int, head: Tip, directory: JobDirectory) -> None:
    rounds, horizon = _definition(directory).rounds.count, read_horizon(directory)
    refusal = refuse_target(target, head.version, rounds, head.undone, horizon)
    if refusal is not None:
        raise RollbackRefusedError(f"{directory.job} cannot be rolled back: {refusal}")


def _carried_out(
    place: Place,
    directory: JobDirectory,
    wanted: RollbackOrder,
    head: Tip,
    timeout_s: int,
) -> tuple[int, Tip]:
    """Order it unless that is done, and wait; return its number and a tip that has it."""
    before = read_order(directory)
    is_repeated = before is not None and not before.refused and before.is_same_as(wanted)
    if not is_repeated:
        _require(wanted.target, head, directory)
    order = place_order(directory, wanted)
    until = time.monotonic() + timeout_s
    while True:
        head = _tip(directory)
        if len(head.undone) >= order.number:
            return order.number, head
        now = read_order(directory)
        if now is not None and now.number == order.number and now.refused:
            raise RollbackRefusedError(f"{directory.job} was not rolled back: {now.refused}")
        if time.monotonic() >= until:
            if place.is_json:
                show_json({"job": directory.job, "target": order.target, "committed": False})
            raise RollbackPendingError(
                f"no leader of {directory.job} has carried the rollback out within {timeout_s} s; "
                "it is ordered all the same: the same command waits for it again"
            )
        time.sleep(POLL_S)


def _tainted(
    registry: Registry, job: str, undone: tuple[Undone, ...]
) -> Iterator[tuple[VersionRecord, Undone]]:
    """Find the registered versions whose newest round was undone."""
    for model in registry.models():
        for record in registry.versions(model):
            if record.state not in (State.READY, State.DEPRECATED, State.QUARANTINED):
                continue
            try:
                lineage = registry.manifest(record).lineage
            except IntegrityError as error:
                typer.echo(f"{record.name} may be from undone rounds: {error}", err=True)
                continue
            if lineage.job == job and lineage.rounds is not None:
                by = undoing(lineage.rounds[1], undone)
                if by is not None:
                    yield record, by


def _taint(registry: Registry, wish: TrainingRollback, job: str, head: Tip) -> None:
    housekeeping = registry.housekeeping(wish.actor)
    for record, by in _tainted(registry, job, head.undone):
        if record.state is State.QUARANTINED:
            continue
        why = f"TAINTED: job {job} was rolled back from its rounds to version {by.target}, "
        why += f"in version {by.version}: {wish.reason}"
        housekeeping.quarantine(record.model, record.version, why)


def _show(
    place: Place,
    registry: Registry,
    order: RollbackOrder,
    head: Tip,
    undone: tuple[Undone, ...],
    *,
    is_done: bool,
) -> None:
    (by,) = undone
    tainted = [record.name for record, _ in _tainted(registry, head.job, undone)]
    count = by.version - by.target - 1
    verb = "was rolled back" if is_done else "would be rolled back"
    typer.echo(
        f"{head.job} {verb} to version {by.target}; {count} rounds are undone, "
        f"{by.target + 1} to {by.version - 1}",
        err=True,
    )
    fields: dict[str, Any] = {
        "job": head.job,
        "committed": is_done,
        "target": by.target,
        "version": by.version,
        "undone_first": by.target + 1,
        "undone_last": by.version - 1,
        "training_epoch": head.training_epoch if is_done else head.training_epoch + 1,
        "excluded": list(order.excluded),
        "tainted": tainted,
    }
    if place.is_json:
        show_json(fields)
        return
    rows = [{"field": name, "value": value} for name, value in fields.items()]
    show_rows(place.output, "rollback", ["field", "value"], rows)
