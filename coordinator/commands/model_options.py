"""What the commands of `pliska model` have in common: their options, and how they open things."""

import dataclasses
import functools
import getpass
import inspect
import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeGuard

import typer

from pliska.coordinator.registry import (
    IntegrityError,
    Lineage,
    NotFoundError,
    Registry,
    RegistryUsageError,
)
from pliska.coordinator.registry.digest import Digest, is_digest
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import key_id, load_private_key, public_bytes
from pliska.locks import Address, connect
from pliska.locks.presentation import DEFAULT_STORE, OutputFormat, OutputOption, StoreOption

LINEAGE_BYTES_MAX = 1024 * 1024
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

ArtifactsOption = Annotated[
    str | None,
    typer.Option(
        envvar="PLISKA_ARTIFACTS",
        help="Where tensors lie; 'registry' inside an embedded store's directory by default.",
    ),
]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Whose models.")]
SignaturesOption = Annotated[
    int,
    typer.Option(
        envvar="PLISKA_SIGNATURES_MIN",
        min=0,
        help="How many enrolled publishers must have signed a version.",
    ),
]
ModelArgument = Annotated[str, typer.Argument(help="Name of the model.")]
ReferenceArgument = Annotated[
    str, typer.Argument(metavar="MODEL[:N|@ALIAS|@sha256:…]", help="A version; the latest if bare.")
]
AliasOption = Annotated[str, typer.Option(help="Name of the alias, such as prod.")]
ActorOption = Annotated[
    str | None,
    typer.Option(envvar="PLISKA_ACTOR", help="Who does it; you on this machine by default."),
]
ExpectGenOption = Annotated[
    int | None,
    typer.Option(min=0, help="Only if the alias is at this generation (0: has never been set)."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the move; make none.")]
OpIdOption = Annotated[
    str | None, typer.Option(help="Repeat an operation whose outcome was unknown.")
]


ApprovalsOption = Annotated[
    int,
    typer.Option(
        envvar="PLISKA_APPROVALS_MIN",
        min=0,
        help="How many enrolled publishers must approve of a move of an alias.",
    ),
]


CharterOption = Annotated[
    str | None,
    typer.Option(
        envvar="PLISKA_CHARTER",
        metavar="sha256:…",
        help="Trust no signature unless this charter is among those of the namespace.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the options say about where the registry is, whom it trusts, and how to print."""

    output: OutputOption = OutputFormat.TABLE
    namespace: NamespaceOption = "default"
    signatures_min: SignaturesOption = 0
    approvals_min: ApprovalsOption = 0
    charter: CharterOption = None
    store: StoreOption = DEFAULT_STORE
    artifacts: ArtifactsOption = None

    @property
    def is_json(self) -> bool:
        """Whether a program reads the output."""
        return self.output is OutputFormat.JSON

    @contextmanager
    def open(self) -> Iterator[Registry]:
        """Open the registry."""
        artifacts = self.artifacts
        if artifacts is None:
            directory = Address.parse(self.store).local_directory
            if directory is None:
                raise RegistryUsageError(
                    f"{self.store} has no directory of its own: name one for the tensors with "
                    "--artifacts"
                )
            artifacts = str(directory / "registry")
        with closing(connect(self.store)) as backend:
            yield Registry(
                backend,
                open_storage(artifacts),
                self.namespace,
                signatures_min=self.signatures_min,
                approvals_min=self.approvals_min,
                charter=_digest_option("--charter", self.charter),
            )


def _digest_option(what: str, text: str | None) -> Digest | None:
    if text is not None and not is_digest(text):
        raise RegistryUsageError(f"{what} {text[:80]!r} is not 'sha256:' and 64 hex digits")
    return None if text is None else Digest(text)


Own = ParamSpec("Own")


def with_place(command: Callable[Concatenate[Place, Own], None]) -> Callable[..., None]:
    """Give a command the options of `Place` after its own; it takes a `Place` first.

    Any other parameter of a dataclass is a group of options too, which come after
    those of the command alone.
    """
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = sorted((*own, first), key=lambda each: _is_group(each.annotation))
    groups = {each.name: each.annotation for each in parameters if _is_group(each.annotation)}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)  # type: ignore[call-arg]

    by_name = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in parameters
        for option in _options(each)
    ]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in by_name}
    return run


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of a group, or the parameter itself where it is none."""
    if _is_group(parameter.annotation):
        return [*inspect.signature(parameter.annotation, eval_str=True).parameters.values()]
    return [parameter]


def _is_group(annotation: object) -> TypeGuard[type[Any]]:
    return isinstance(annotation, type) and is_dataclass(annotation)


def read_lineage(path: Path | None, parent: int | None, metrics: Sequence[str]) -> Lineage:
    """Return the lineage in a JSON file, with a parent and metrics given beside it.

    Raises:
        RegistryUsageError: The file or a metric is malformed.
        NotFoundError: There is no such file.
    """
    lineage = Lineage() if path is None else _lineage_file(path)
    numbers = {**lineage.metrics, **named_numbers("--metric", metrics)}
    return dataclasses.replace(
        lineage, metrics=numbers, parent=lineage.parent if parent is None else parent
    )


def named_numbers(what: str, texts: Sequence[str]) -> dict[str, float]:
    """Return the numbers in texts such as `accuracy=0.97`, by name."""
    numbers = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            numbers[name] = float(number)
        except ValueError as error:
            raise RegistryUsageError(f"{what} {text!r}: write NAME=NUMBER") from error
        if not equals or not name:
            raise RegistryUsageError(f"{what} {text!r}: write NAME=NUMBER")
    return numbers


def duration_s(text: str) -> int:
    """Return the seconds in `90`, `90s`, `15m`, `12h` or `30d`."""
    matched = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if matched is None:
        raise RegistryUsageError(f"{text!r} is not a time such as 90s, 15m, 12h or 30d")
    return int(matched[1]) * UNITS_S[matched[2] or "s"]


def _lineage_file(path: Path) -> Lineage:
    try:
        with path.open("rb") as file:
            content = file.read(LINEAGE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no file {path}") from error
    except (OSError, ValueError) as error:
        raise RegistryUsageError(f"cannot read {str(path)!r}: {error}") from error
    try:
        given = json.loads(content) if len(content) <= LINEAGE_BYTES_MAX else None
    except (ValueError, RecursionError) as error:
        raise RegistryUsageError(f"{path}: not JSON ({error})") from error
    if not isinstance(given, dict):
        raise RegistryUsageError(f"{path}: not a JSON object of at most {LINEAGE_BYTES_MAX} bytes")
    try:
        return Lineage.from_given(given, str(path))
    except IntegrityError as error:
        raise RegistryUsageError(str(error)) from error


def load_signer(path: Path) -> Signer:
    """Return a signer with the private key in a file."""
    private_key = load_private_key(path)
    return Signer(private_key, key_id(public_bytes(private_key)))


def default_actor() -> str:
    """Return `user@host` of this process."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError) as error:
        raise RegistryUsageError("this user has no name: say who you are with --actor") from error
