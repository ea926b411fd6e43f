"""The commands of `pliska model` for aliases: promote, roll back, look at what became of it.

`model` puts them into its group; `model_operations` has those for operations that are
open. Exit codes are in the docstring of `model`.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.commands.model_canary import (
    BakeOption,
    CanaryOption,
    CanaryOptions,
    CoolDownOption,
    FailuresOption,
    GuardOption,
    IntervalOption,
    PrometheusOption,
    QueryOption,
    try_out,
)
from pliska.coordinator.commands.model_move_rows import (
    LOG_COLUMNS,
    MOVE_COLUMNS,
    NODE_COLUMNS,
    log_rows,
    move_row,
    node_rows,
    status_fields,
)
from pliska.coordinator.commands.model_options import (
    ActorOption,
    AliasOption,
    DryRunOption,
    ExpectGenOption,
    ModelArgument,
    OpIdOption,
    Place,
    default_actor,
    duration_s,
    load_signer,
    with_place,
)
from pliska.coordinator.commands.model_training import TrainingRollback, roll_back_training
from pliska.coordinator.registry import (
    DeadlinePassedError,
    Move,
    MoveUnknownError,
    NotFoundError,
    Outcome,
    PromoteRequest,
    Reference,
    Registry,
    RegistryUsageError,
    RollbackRequest,
    Situation,
    State,
    VersionRecord,
    Wait,
)
from pliska.coordinator.registry.requests import TIMEOUT_S, Request, new_op_id
from pliska.coordinator.wire.signing import Signer
from pliska.locks.presentation import show_json, show_rows

POLL_S = 0.5


class Scope(StrEnum):
    """What is rolled back."""

    SERVING = auto()
    TRAINING = auto()


WaitOption = Annotated[
    Wait,
    typer.Option(help="Which serving nodes must be ready before the alias moves."),
]
EmergencyOption = Annotated[
    bool,
    typer.Option(
        "--emergency", help="Move at once, whatever operation is open; wait for nodes afterwards."
    ),
]
TimeoutOption = Annotated[
    int,
    typer.Option(metavar="SECONDS", min=1, help="For nodes to get ready, and then to switch."),
]
ValidForOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Nodes follow the alias only so long, such as 12h or 30d."),
]
SignOption = Annotated[
    Path | None, typer.Option(metavar="KEY", help="Approve with this publisher's key file.")
]


@with_place
def promote(
    place: Place,
    model: ModelArgument,
    version: Annotated[int, typer.Argument(min=1, help="Number of the version.")],
    alias: AliasOption,
    reason: Annotated[str, typer.Option(help="Why; shown in the log.")] = "",
    wait: WaitOption = Wait.ALL,
    emergency: EmergencyOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    valid_for: ValidForOption = None,
    allow_deprecated: Annotated[
        bool, typer.Option("--allow-deprecated", help="Also a version that is DEPRECATED.")
    ] = False,
    allow_schema_change: Annotated[
        bool,
        typer.Option(
            "--allow-schema-change",
            help="Also one whose tensors have other names, dtypes or shapes than what is served.",
        ),
    ] = False,
    canary: CanaryOption = None,
    guard: GuardOption = None,
    bake: BakeOption = "60s",
    interval: IntervalOption = "10s",
    failures: FailuresOption = 3,
    cool_down: CoolDownOption = "10m",
    prometheus: PrometheusOption = None,
    query: QueryOption = None,
    sign: SignOption = None,
    expect_gen: ExpectGenOption = None,
    dry_run: DryRunOption = False,
    op_id: OpIdOption = None,
    actor: ActorOption = None,
) -> None:
    """Point an alias at a version, after verifying every byte of it.

    The processes that serve the alias load it first, beside what they serve; if one
    cannot, nothing moves. With --canary a part of the requests goes to it first, and
    while a guard on its metrics holds, more; when it fails, all go back.
    """
    request = PromoteRequest(
        model=model,
        alias=alias,
        version=version,
        actor=actor or default_actor(),
        reason=reason,
        expect_gen=expect_gen,
        op_id=op_id or new_op_id(),
        wait=wait,
        is_emergency=emergency,
        timeout_s=timeout,
        valid_for_s=None if valid_for is None else duration_s(valid_for),
        allow_deprecated=allow_deprecated,
        allow_schema_change=allow_schema_change,
    )
    if canary is not None:
        options = CanaryOptions(
            percents=canary,
            guard=guard,
            bake=bake,
            interval=interval,
            failures=failures,
            cool_down=cool_down,
            prometheus=prometheus,
            queries=query or [],
        )
        if not dry_run:
            try_out(place, request, options, None if sign is None else load_signer(sign))
            return
        request = options.first_stage(request)
    _move(place, request, sign, dry_run=dry_run)


@with_place
def rollback(
    place: Place,
    model: ModelArgument,
    reason: Annotated[str, typer.Option(help="Why; shown in the log.")],
    alias: Annotated[
        str | None, typer.Option(help="Name of the alias, such as prod; not for training.")
    ] = None,
    scope: Annotated[
        Scope, typer.Option(help="Move an alias (serving), or put a running job back (training).")
    ] = Scope.SERVING,
    to: Annotated[
        int | None, typer.Option(min=1, help="To this version instead of the previous one.")
    ] = None,
    to_round: Annotated[
        int | None, typer.Option(min=1, help="Training: to what this round of the job made.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Training: the job; by default the model's name.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKER", help="Training: go on without this worker; repeatable."),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="To where the alias pointed then.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many versions back.")] = 1,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Let aliases go back to the version left.")
    ] = False,
    wait: WaitOption = Wait.QUORUM,
    emergency: EmergencyOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    valid_for: ValidForOption = None,
    sign: SignOption = None,
    expect_gen: ExpectGenOption = None,
    dry_run: DryRunOption = False,
    op_id: OpIdOption = None,
    actor: ActorOption = None,
) -> None:
    """Take an alias back to the version before, and quarantine the one it leaves.

    The previous version is the newest earlier one that is READY, was not rolled
    back from and that every node could serve, so rolling back again goes further back.

    With --scope training, a running job goes back to the model, optimizer and rule's
    memory of an older version: --to-round N, or --to a version registered with its
    rounds. What was computed on the rounds that this undoes is refused, and versions
    registered from them are quarantined as TAINTED. The same command again waits for
    the same rollback; one for another reason is another one. It takes no --wait,
    --steps, --sign or --expect-gen: those are of aliases.
    """
    if scope is Scope.TRAINING:
        if alias is not None or at is not None or steps != 1 or expect_gen is not None:
            raise RegistryUsageError(
                "--scope training takes --to-round or --to; --alias, --at, --steps and "
                "--expect-gen are for serving"
            )
        wish = TrainingRollback(
            model=model,
            job=job,
            to=to,
            to_round=to_round,
            exclude=tuple(exclude or ()),
            actor=actor or default_actor(),
            reason=reason,
            timeout_s=timeout,
        )
        roll_back_training(place, wish, dry_run=dry_run)
        return
    if alias is None or to_round is not None or job is not None or exclude:
        raise RegistryUsageError(
            "name the alias with --alias; --to-round, --job and --exclude are for --scope training"
        )
    request = RollbackRequest(
        model=model,
        alias=alias,
        actor=actor or default_actor(),
        reason=reason,
        to=to,
        at=None if at is None else _time(at),
        steps=steps,
        quarantine=not no_quarantine,
        expect_gen=expect_gen,
        op_id=op_id or new_op_id(),
        wait=wait,
        is_emergency=emergency,
        timeout_s=timeout,
        valid_for_s=None if valid_for is None else duration_s(valid_for),
    )
    _move(place, request, sign, dry_run=dry_run)


@with_place
def log(
    place: Place,
    model: ModelArgument,
    alias: Annotated[str | None, typer.Option(help="Only this alias.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many, the newest.")] = None,
) -> None:
    """Show every move of the model's aliases, newest first; their hash chains are verified."""
    with place.open() as registry:
        registry.versions(model)
        names = list(registry.aliases(model)) if alias is None else [alias]
        logs = [(registry.log(model, name), registry.ended(model, name)) for name in names]
    rows = [row for history, ended in logs for row in log_rows(history, ended)]
    rows.sort(key=lambda row: (row["time"], row["gen"]), reverse=True)
    show_rows(place.output, "log", LOG_COLUMNS, rows[:limit])


@with_place
def status(
    place: Place,
    model: ModelArgument,
    alias: AliasOption,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Until no operation is open and all nodes follow.")
    ] = False,
    timeout: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="How long to watch.")] = 10
    * TIMEOUT_S,
) -> None:
    """Show where an alias points, its open operation, and what each node serves."""
    until_s, shown = time.monotonic() + timeout, None
    with place.open() as registry:
        registry.versions(model)
        while True:
            situation = registry.situation(model, alias)
            if situation == Situation(None, None):
                raise NotFoundError(f"no alias {alias!r} of model {model!r}")
            if situation != shown:
                _show_status(place, situation, registry.versions(model))
                shown = situation
            if not watch or situation.is_settled:
                return
            if time.monotonic() >= until_s:
                raise DeadlinePassedError(f"{model}@{alias} has not settled in {timeout} s")
            time.sleep(POLL_S)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise RegistryUsageError(f"{text!r} is not a time such as 2031-05-04T03:02:01Z") from error


def _move(place: Place, request: Request, sign: Path | None, *, dry_run: bool) -> None:
    signer = None if sign is None else load_signer(sign)
    with place.open() as registry:
        try:
            _warn(registry, request)
            move = registry.plan(request) if dry_run else _carry_out(registry, request, signer)
        except MoveUnknownError as error:
            if place.is_json:
                show_json({"outcome": "unknown", "op_id": error.op_id, "committed": None})
            raise
    show_move(place, move)
    move.check()


def _warn(registry: Registry, request: Request) -> None:
    """Say so where a promotion is to a version that is allowed by an option only."""
    if not isinstance(request, PromoteRequest) or not request.allow_deprecated:
        return
    target = registry.resolve(Reference(request.model, version=request.version))
    if target.state is State.DEPRECATED:
        _say(f"{target.name} is DEPRECATED: {target.state_reason}")


def _carry_out(registry: Registry, request: Request, signer: Signer | None) -> Move:
    if isinstance(request, PromoteRequest):
        return registry.promote(request, signer, tell=_say)
    return registry.rollback(request, signer, tell=_say)


def show_move(place: Place, move: Move) -> None:
    """Say what became of a request, and show it as data."""
    alias, source, target = f"{move.model}@{move.alias}", move.from_version, move.to_version
    way = f"to version {target}" if source is None else f"from version {source} to {target}"
    if move.canary is not None:
        way = f"to version {target}, {move.canary.percent} % to {move.canary.version}"
    _say(
        {
            Outcome.PLANNED: f"{move.kind} would move {alias} {way} (generation {move.gen})",
            Outcome.MOVED: f"{move.kind} moved {alias} {way} (generation {move.gen})",
            Outcome.DEGRADED: f"{move.kind} moved {alias} {way}, but not everywhere: {move.why}",
            Outcome.ABORTED: f"{move.kind} of {alias} was called off: {move.why}",
            Outcome.JOINED: f"somebody else moved {alias} {way} at the same time: done",
            Outcome.STAYED: f"{alias} points at version {target} already: nothing to do",
        }[move.outcome]
    )
    if place.is_json:
        show_json(move_row(move))
    else:
        show_rows(place.output, "moves", MOVE_COLUMNS, [move_row(move)])


def _show_status(place: Place, situation: Situation, versions: Sequence[VersionRecord]) -> None:
    fields, nodes = status_fields(situation, versions), node_rows(situation, versions)
    if place.is_json:
        show_json({**fields, "nodes": nodes})
        return
    rows = [{"field": name, "value": value} for name, value in fields.items()]
    show_rows(place.output, "status", ["field", "value"], rows)
    show_rows(place.output, "nodes", NODE_COLUMNS, nodes)


def _say(message: str) -> None:
    typer.echo(message, err=True)
