"""The commands of `pliska model` for open operations: call off, finish, approve.

`model` puts them into its group. Exit codes are in its docstring.
"""

from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.commands.model_move_rows import (
    OPERATION_COLUMNS,
    operation_fields,
    show_move,
)
from pliska.coordinator.commands.model_options import (
    ActorOption,
    Place,
    default_actor,
    load_signer,
    with_place,
)
from pliska.coordinator.commands.model_rows import VERSION_COLUMNS, version_row
from pliska.coordinator.registry import Reference, RegistryUsageError
from pliska.coordinator.wire.signing import Signer
from pliska.locks.presentation import show_rows

OperationArgument = Annotated[str, typer.Argument(metavar="OP", help="Id of the operation.")]


@with_place
def abort(place: Place, op_id: OperationArgument, actor: ActorOption = None) -> None:
    """Call off an operation that has not moved its alias yet."""
    with place.open() as registry:
        move = registry.operations(actor or default_actor()).abort(op_id)
    show_move(place, move)


@with_place
def resume(place: Place, op_id: OperationArgument, actor: ActorOption = None) -> None:
    """Finish an operation whose coordinator died: take it over and drive it to its end."""
    with place.open() as registry:
        move = registry.operations(actor or default_actor()).resume(op_id, tell=_say)
    show_move(place, move)
    move.check()


@with_place
def approve(
    place: Place,
    what: Annotated[
        str, typer.Argument(metavar="OP|MODEL:N", help="Id of an operation, or a version.")
    ],
    sign: Annotated[Path, typer.Option(metavar="KEY", help="A publisher's key file.")],
    actor: ActorOption = None,
) -> None:
    """Approve of an operation that waits for approvals, or sign a version that is registered."""
    signer, by = load_signer(sign), actor or default_actor()
    if ":" in what:
        _sign(place, Reference.parse(what), signer, by)
        return
    with place.open() as registry:
        operation = registry.operations(by).approve(what, signer)
    _say(f"operation {what} has {len(operation.approvals)} approvals")
    show_rows(place.output, "operations", OPERATION_COLUMNS, [operation_fields(operation)])


def _sign(place: Place, reference: Reference, signer: Signer, actor: str) -> None:
    if reference.version is None:
        raise RegistryUsageError(f"{reference}: write MODEL:N, the number of a version")
    with place.open() as registry:
        keep = registry.housekeeping(actor)
        version = keep.sign(reference.model, reference.version, signer)
    _say(f"{version.name} has {len(version.signatures)} signatures")
    show_rows(place.output, "versions", VERSION_COLUMNS, [version_row(version, [])])


def _say(message: str) -> None:
    typer.echo(message, err=True)
