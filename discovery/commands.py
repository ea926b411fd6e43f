"""`pliska key`: make keys, and enrol, list, rotate and revoke them in the store."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from pliska.discovery.enrolled import Enrolled, Role
from pliska.discovery.errors import KeyFileMissingError, NotEnrolledError
from pliska.discovery.keyring import Keyring
from pliska.discovery.keys import (
    SCHEME,
    key_id,
    load_private_key,
    load_public_key,
    new_private_key,
    parse_public_text,
    public_bytes,
    public_text,
    write_private_key,
)
from pliska.discovery.rotation import sign_rotation
from pliska.locks import connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_rows,
)

key = typer.Typer(no_args_is_help=True)


@key.command(epilog="Example: pliska key new w1.pem")
def new(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where the private key goes; never overwritten."),
    ],
) -> None:
    """Make a private key in FILE, readable by you alone, and show its public half.

    Keep FILE on the machine that signs with it. Give the public key (or FILE,
    when it is the same machine) to `pliska key enroll`.
    """
    private = new_private_key()
    write_private_key(file, private)
    public = public_bytes(private)
    typer.echo(f"private key  {file}")
    typer.echo(f"key id       {key_id(public)}")
    typer.echo(f"public key   {public_text(public)}")


@key.command(epilog="Example: pliska key enroll w1 w1.pem --store embedded:./.pliska")
def enroll(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who signs with the key, such as w1.")
    ],
    public_key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help=f"A private or public key file, or a public key as text ({SCHEME}…).",
        ),
    ],
    role: Annotated[Role, typer.Option(help="What its signatures may do.")] = Role.WORKER,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Let NAME sign with KEY, from now on.

    Only the public half of a key is stored. A key has one name and a name has
    one key: to change it, see `pliska key rotate`.
    """
    public = _public_key(public_key)
    with closing(connect(store)) as backend:
        enrolled = Keyring(backend).enroll(name, role, public)
    typer.echo(f"enrolled {enrolled.role} {enrolled.name} with {enrolled.key_id}")


@key.command("list", epilog="Example: pliska key list --role worker -o json")
def list_keys(
    role: Annotated[Role | None, typer.Option(help="Show only keys of this role.")] = None,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show the enrolled keys, in the order of their enrolment."""
    with closing(connect(store)) as backend:
        enrolled = Keyring(backend).list(role)
    columns = ["name", "role", "state", "key_id", "reason"]
    show_rows(output, "keys", columns, [_row(each) for each in enrolled])


@key.command(epilog='Example: pliska key revoke w1 --reason "laptop lost"')
def revoke(
    key_or_name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name, or a key id to be exact.")
    ],
    reason: Annotated[str, typer.Option(help="Why; shown in the list of keys.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Refuse whatever NAME's key signs, at once and for ever.

    The key stays in the list with its reason. NAME can then be enrolled with a
    new key.
    """
    with closing(connect(store)) as backend:
        revoked = Keyring(backend).revoke(key_or_name, reason)
    typer.echo(f"revoked {revoked.key_id} of {revoked.role} {revoked.name}: {revoked.reason}")


@key.command(epilog="Example: pliska key rotate w1 --old w1.pem --new w1-2.pem")
def rotate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key changes.")],
    old: Annotated[Path, typer.Option(help="File of the private key that NAME has now.")],
    new: Annotated[
        Path, typer.Option(help="File of the private key it gets, made by `pliska key new`.")
    ],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Give NAME another key, with the signatures of both; the old one counts no more at once.

    Restart whoever signs as NAME with the new key.
    """
    old_key, new_key = load_private_key(old), load_private_key(new)
    with closing(connect(store)) as backend:
        keyring = Keyring(backend)
        enrolled = keyring.named(name)
        if enrolled is None:
            raise NotEnrolledError(f"nobody is enrolled as {name!r}: see `pliska key list`")
        rotated = keyring.rotate(name, sign_rotation(enrolled, old_key, new_key))
    typer.echo(f"rotated {rotated.role} {name} from {enrolled.key_id} to {rotated.key_id}")


def _public_key(text: str) -> bytes:
    """A public key from what the user wrote: the key itself, or the name of a file."""
    if text.startswith(SCHEME):
        return parse_public_text(text)
    try:
        return load_public_key(text)
    except KeyFileMissingError as error:
        raise KeyFileMissingError(
            f"{error}: name a key file, or write the public key itself ({SCHEME}…)"
        ) from error


def _row(enrolled: Enrolled) -> dict[str, str | int | None]:
    return {
        "name": enrolled.name,
        "role": enrolled.role,
        "state": enrolled.state,
        "key_id": enrolled.key_id,
        "reason": enrolled.reason or None,
        "public_key": public_text(enrolled.public_key),
        "revision": enrolled.revision,
    }
