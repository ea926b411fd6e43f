"""The commands of `pliska model` that move an alias: promote it, or roll it back.

`model` puts them into its group; `model_operations` has those for operations that are
open, `model_standing` shows what became of them. Exit codes are in the docstring of `model`.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.commands.model_canary import CanaryOptions, first_stage, try_out
from pliska.coordinator.commands.model_move_rows import show_move
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
from pliska.coordinator.commands.model_training import (
    TrainingOptions,
    TrainingRollback,
    roll_back_training,
)
from pliska.coordinator.registry import (
    Move,
    MoveUnknownError,
    PromoteRequest,
    Reference,
    Registry,
    RegistryUsageError,
    RollbackRequest,
    State,
    Wait,
)
from pliska.coordinator.registry.requests import TIMEOUT_S, Request, new_op_id
from pliska.coordinator.wire.signing import Signer
from pliska.locks.presentation import show_json


class Scope(StrEnum):
    """What is rolled back."""

    SERVING = auto()
    TRAINING = auto()


WaitOption = Annotated[
    Wait,
    typer.Option(help="Which serving nodes must be ready before the alias moves."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """The options of every move of an alias, forward or back."""

    emergency: Annotated[
        bool,
        typer.Option(
            "--emergency",
            help="Move at once, whatever operation is open; wait for nodes afterwards.",
        ),
    ] = False
    timeout: Annotated[
        int,
        typer.Option(metavar="SECONDS", min=1, help="For nodes to get ready, and then to switch."),
    ] = TIMEOUT_S
    valid_for: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Nodes follow the alias only so long, such as 12h or 30d."
        ),
    ] = None
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY", help="Approve with this publisher's key file."),
    ] = None
    expect_gen: ExpectGenOption = None
    dry_run: DryRunOption = False
    op_id: OpIdOption = None
    actor: ActorOption = None

    def actor_name(self) -> str:
        """Return who does it."""
        return self.actor or default_actor()

    def signer(self) -> Signer | None:
        """Return who approves; raises where the key file cannot be read."""
        return None if self.sign is None else load_signer(self.sign)

    def valid_for_s(self) -> int | None:
        """Return how long nodes follow the alias."""
        return None if self.valid_for is None else duration_s(self.valid_for)


@with_place
def promote(
    place: Place,
    model: ModelArgument,
    version: Annotated[int, typer.Argument(min=1, help="Number of the version.")],
    alias: AliasOption,
    how: MoveOptions,
    canary: CanaryOptions,
    reason: Annotated[str, typer.Option(help="Why; shown in the log.")] = "",
    wait: WaitOption = Wait.ALL,
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
        actor=how.actor_name(),
        reason=reason,
        expect_gen=how.expect_gen,
        op_id=how.op_id or new_op_id(),
        wait=wait,
        is_emergency=how.emergency,
        timeout_s=how.timeout,
        valid_for_s=how.valid_for_s(),
        allow_deprecated=allow_deprecated,
        allow_schema_change=allow_schema_change,
    )
    plan = canary.plan()
    if plan is None:
        _move(place, request, how)
    elif how.dry_run:
        _move(place, first_stage(plan, request), how)
    else:
        try_out(place, request, plan, canary.source(), how.signer())


@with_place
def rollback(
    place: Place,
    model: ModelArgument,
    how: MoveOptions,
    training: TrainingOptions,
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
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="To where the alias pointed then.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many versions back.")] = 1,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Let aliases go back to the version left.")
    ] = False,
    wait: WaitOption = Wait.QUORUM,
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
        if alias is not None or at is not None or steps != 1 or how.expect_gen is not None:
            raise RegistryUsageError(
                "--scope training takes --to-round or --to; --alias, --at, --steps and "
                "--expect-gen are for serving"
            )
        wish = _training_rollback(model, to, reason, training, how)
        roll_back_training(place, wish, dry_run=how.dry_run)
        return
    if alias is None or training.is_given:
        raise RegistryUsageError(
            "name the alias with --alias; --to-round, --job and --exclude are for --scope training"
        )
    request = RollbackRequest(
        model=model,
        alias=alias,
        actor=how.actor_name(),
        reason=reason,
        to=to,
        at=None if at is None else _time(at),
        steps=steps,
        quarantine=not no_quarantine,
        expect_gen=how.expect_gen,
        op_id=how.op_id or new_op_id(),
        wait=wait,
        is_emergency=how.emergency,
        timeout_s=how.timeout,
        valid_for_s=how.valid_for_s(),
    )
    _move(place, request, how)


def _training_rollback(
    model: str, to: int | None, reason: str, training: TrainingOptions, how: MoveOptions
) -> TrainingRollback:
    return TrainingRollback(
        model=model,
        job=training.job,
        to=to,
        to_round=training.to_round,
        exclude=tuple(training.exclude or ()),
        actor=how.actor_name(),
        reason=reason,
        timeout_s=how.timeout,
    )


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise RegistryUsageError(f"{text!r} is not a time such as 2031-05-04T03:02:01Z") from error


def _move(place: Place, request: Request, how: MoveOptions) -> None:
    signer = how.signer()
    with place.open() as registry:
        try:
            _warn(registry, request)
            move = registry.plan(request) if how.dry_run else _carry_out(registry, request, signer)
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


def _say(message: str) -> None:
    typer.echo(message, err=True)
