"""`pliska model charter`: whose signatures count in a namespace, agreed upon by k of n keys."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pliska.coordinator.commands.model_options import Place, load_signer, with_place
from pliska.coordinator.registry.charter import (
    CHARTER_BYTES_MAX,
    Charter,
    charter_signers,
    merge_signatures,
    next_charter,
    sign_charter,
)
from pliska.coordinator.registry.input_file import read_input
from pliska.coordinator.registry.new_file import new_file
from pliska.discovery import load_public_key, public_text
from pliska.locks.presentation import show_rows

COLUMNS = ["number", "hash", "quorum", "keys", "signed_by"]

app = typer.Typer(no_args_is_help=True)

DraftArgument = Annotated[Path, typer.Argument(help="A draft, as `charter draft` wrote it.")]
NewFileArgument = Annotated[Path, typer.Argument(help="The file to write; must not exist.")]


@app.command()
@with_place
def show(place: Place) -> None:
    """Show all charters of the namespace, the one in force last."""
    with place.open() as registry:
        charters = registry.namespace.charters.read()
    show_rows(place.output, "charters", COLUMNS, [_row(charter) for charter in charters])


@app.command()
@with_place
def draft(
    place: Place,
    path: NewFileArgument,
    key: Annotated[
        list[Path], typer.Option(help="File with the public key of a member; may be repeated.")
    ],
    quorum: Annotated[int, typer.Option(min=1, help="How many members it takes to change it.")],
) -> None:
    """Write down whose signatures shall count from now on, to be signed."""
    keys = tuple(public_text(load_public_key(each)) for each in key)
    with place.open() as registry:
        charters = registry.namespace.charters.read()
        drafted = next_charter(place.namespace, charters[-1] if charters else None, keys, quorum)
    _write(path, drafted)
    show_rows(place.output, "charters", COLUMNS, [_row(drafted)])


@app.command()
def sign(
    draft: DraftArgument,
    path: NewFileArgument,
    key: Annotated[Path, typer.Option(help="Private key of a member, the former or the next.")],
) -> None:
    """Sign a draft, with no need of the store; each member writes a file of its own."""
    _write(path, sign_charter(_read(draft), load_signer(key)))


@app.command()
@with_place
def enact(
    place: Place,
    paths: Annotated[list[Path], typer.Argument(help="The signed copies of one draft.")],
) -> None:
    """Put a charter in force that enough members signed, of the former one and of its own."""
    charter = merge_signatures(tuple(_read(path) for path in paths))
    with place.open() as registry:
        registry.namespace.charters.enact(charter)
    show_rows(place.output, "charters", COLUMNS, [_row(charter)])


def _read(path: Path) -> Charter:
    return Charter.from_bytes(read_input(path, CHARTER_BYTES_MAX), str(path))


def _write(path: Path, charter: Charter) -> None:
    with new_file(path) as file:
        file.write(charter.to_bytes())


def _row(charter: Charter) -> dict[str, Any]:
    return {
        "number": charter.number,
        "hash": charter.hash,
        "quorum": charter.quorum,
        "keys": list(charter.key_ids),
        "signed_by": sorted(charter_signers(charter, charter)),
    }
