"""`pliska config`: read, set, watch and roll back the configuration in the store."""

import getpass
import json
import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pliska.discovery.config_snapshot import read_snapshot
from pliska.discovery.config_store import Authorship, ConfigStore
from pliska.discovery.config_view import ConfigView
from pliska.discovery.errors import ConfigUsageError, NoSettingError, ValueRefusedError
from pliska.discovery.interruption import ends_when_told
from pliska.discovery.schema import Json, Schema, ValueKind, parse_json
from pliska.discovery.setting import Setting
from pliska.locks import StoreError, connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    SCHEMA_VERSION,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

config = typer.Typer(no_args_is_help=True)

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="Words with dots between them, such as training.lr.")
]
NoteOption = Annotated[str, typer.Option(help="Why; kept in the history.")]
IfRevisionOption = Annotated[
    int | None,
    typer.Option("--if-revision", help="Only if KEY is at this revision; 0 if it never was set."),
]


@config.command(epilog="Example: pliska config get training.lr")
def get(
    key: KeyArgument,
    snapshot: Annotated[
        Path | None,
        typer.Option(help="Take the value from this file when the store does not answer."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print the value of KEY; with -o json also its revision, age and schema."""
    try:
        with closing(connect(store)) as backend:
            setting, age_s = ConfigStore(backend).get(key), 0.0
    except StoreError as error:
        setting, age_s = _from_snapshot(snapshot, key, error)
    if output is OutputFormat.JSON:
        show_json({"setting": _row(setting), "age_s": age_s, "is_stale": age_s > 0})
    else:
        typer.echo(_shown(setting.value))


@config.command("set", epilog="Example: pliska config set training.lr 0.05 --if-revision 3")
def set_value(
    key: KeyArgument,
    value: Annotated[
        str, typer.Argument(help="As the schema of KEY says; JSON, else text, if it has none.")
    ],
    if_revision: IfRevisionOption = None,
    note: NoteOption = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Give KEY a VALUE. What its schema refuses is not written (exit code 7)."""
    with closing(connect(store)) as backend:
        configuration = ConfigStore(backend)
        parsed = _parsed(configuration, key, value)
        setting = configuration.set(key, parsed, if_revision, _authorship(note))
    typer.echo(f"{key} is {_shown(setting.value)} at revision {setting.revision}")


@config.command(epilog='Example: pliska config unset training.lr --note "back to the default"')
def unset(
    key: KeyArgument,
    if_revision: IfRevisionOption = None,
    note: NoteOption = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Take the value of KEY away. Its schema and its history stay."""
    with closing(connect(store)) as backend:
        setting = ConfigStore(backend).delete(key, if_revision, _authorship(note))
    typer.echo(f"{key} is not set since revision {setting.revision}")


@config.command("list", epilog="Example: pliska config list -o json")
def list_settings(
    output: OutputOption = OutputFormat.TABLE, store: StoreOption = DEFAULT_STORE
) -> None:
    """Show all keys that are set or have a schema."""
    with closing(connect(store)) as backend:
        listing = ConfigStore(backend).list()
    for reason in listing.problems.values():
        typer.echo(f"left out: {reason}", err=True)
    shown = [each for each in listing.settings if each.is_set or each.schema is not None]
    columns = ["key", "shown", "revision", "kind", "written_at", "author"]
    show_rows(output, "settings", columns, [_row(each) for each in shown])


@config.command(epilog="Example: pliska config watch training.lr --snapshot config.json")
def watch(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="All keys when none is named.")
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(help="Keep what is known in this file, and begin with it without a store."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print KEYs as they are now and after every change, one JSON object a line.

    Changes in quick succession may be skipped, never the last one. Interrupt
    the command to end it.
    """
    with (
        ends_when_told(),
        closing(connect(store)) as backend,
        ConfigView(backend, snapshot) as view,
        view.watch(*keys or []) as changes,
    ):
        for setting in changes:
            is_stale = view.known.reason != ""
            event = {"schema_version": SCHEMA_VERSION, "is_stale": is_stale, **_row(setting)}
            typer.echo(json.dumps(event))


@config.command(epilog="Example: pliska config history training.lr")
def history(
    key: KeyArgument,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show the revisions of KEY, the newest first."""
    with closing(connect(store)) as backend:
        revisions = ConfigStore(backend).history(key)
    if not revisions:
        raise NoSettingError(f"{key} was never set")
    columns = ["revision", "change", "shown", "written_at", "author", "note"]
    show_rows(output, "revisions", columns, [_row(each) for each in revisions])


@config.command(epilog="Example: pliska config rollback training.lr --to 3")
def rollback(
    key: KeyArgument,
    to: Annotated[int | None, typer.Option(help="A revision from the history.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The revision of that time, as 2026-11-30T12:00:00Z."),
    ] = None,
    note: NoteOption = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Give KEY the value it had before. That is a new revision; nothing is forgotten."""
    if (to is None) == (to_time is None):
        raise ConfigUsageError("say either --to REVISION or --to-time TIME")
    by = _authorship(note)
    with closing(connect(store)) as backend:
        configuration = ConfigStore(backend)
        if to is not None:
            setting = configuration.roll_back(key, to, by)
        else:
            setting = configuration.roll_back_to_time(key, _time(to_time or ""), by)
    state = f"is {_shown(setting.value)}" if setting.is_set else "is not set"
    typer.echo(f"{key} {state} at revision {setting.revision}: {setting.note}")


@config.command(epilog="Example: pliska config schema training.lr --kind number --minimum 0")
def schema(
    key: KeyArgument,
    kind: Annotated[ValueKind | None, typer.Option(help="What its values are.")] = None,
    minimum: Annotated[float | None, typer.Option(help="Of an integer or number.")] = None,
    maximum: Annotated[float | None, typer.Option(help="Of an integer or number.")] = None,
    choice: Annotated[
        list[str] | None, typer.Option(help="One of the values allowed; may be repeated.")
    ] = None,
    characters_max: Annotated[int | None, typer.Option(help="Of a text.")] = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
    note: NoteOption = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Say what KEY may hold, from now on; without --kind, show what was said."""
    with closing(connect(store)) as backend:
        configuration = ConfigStore(backend)
        if kind is None:
            _show_schema(configuration.schema(key), key)
            return
        bare = Schema(kind=kind)
        declared = Schema(
            kind=kind,
            minimum=minimum,
            maximum=maximum,
            choices=None if not choice else tuple(bare.parse(each) for each in choice),
            characters_max=characters_max,
            description=description,
        )
        setting = configuration.declare(key, declared, _authorship(note))
    problem = setting.problem()
    typer.echo(f"{key} is declared as {kind} at revision {setting.revision}")
    if problem is not None:
        typer.echo(f"its present value is not delivered any more: {problem}", err=True)


def _from_snapshot(snapshot: Path | None, key: str, error: StoreError) -> tuple[Setting, float]:
    found = None if snapshot is None else read_snapshot(snapshot)
    setting = None if found is None else found.find(key)
    if found is None or setting is None or not setting.is_set:
        raise error
    age_s = found.age_s(datetime.now(UTC))
    typer.echo(f"from a snapshot of {found.store}, {age_s:.0f} s old, since {error}", err=True)
    return setting, age_s


def _parsed(configuration: ConfigStore, key: str, text: str) -> Json:
    """A value as a person wrote it, by the schema of the key."""
    known = configuration.schema(key)
    if known is not None:
        return known.parse(text)
    try:
        return parse_json(text)
    except ValueRefusedError:
        return text


def _authorship(note: str) -> Authorship:
    return Authorship(f"{getpass.getuser()}@{socket.gethostname()}", note)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigUsageError(
            f"{text[:80]!r} is no time: write it as 2026-11-30T12:00:00Z"
        ) from error


def _show_schema(declared: Schema | None, key: str) -> None:
    if declared is None:
        raise NoSettingError(f"{key} has no schema: anything may be set")
    show_json({"key": key, "schema": declared.to_document()})


def _row(setting: Setting) -> dict[str, Any]:
    return {
        "key": setting.key,
        "shown": _shown(setting.value) if setting.is_set else None,
        "is_set": setting.is_set,
        "value": setting.value,
        "revision": setting.revision,
        "kind": None if setting.schema is None else str(setting.schema.kind),
        "change": str(setting.change),
        "written_at": setting.written_at.isoformat(timespec="seconds"),
        "author": setting.author or None,
        "note": setting.note or None,
    }


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
