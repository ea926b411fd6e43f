"""`pliska model watch`: what happens to models, one line each, from any point on."""

import json
import os
import select
import sys
from typing import Annotated, Any

import typer

from pliska.coordinator.commands.model_move_rows import canary_fields
from pliska.coordinator.commands.model_options import Place, with_place
from pliska.coordinator.commands.model_upkeep_rows import mark_row
from pliska.coordinator.registry import (
    Cursor,
    EndedOperation,
    Event,
    HistoryEntry,
    Mark,
    Reference,
    RegistryUsageError,
)
from pliska.discovery.interruption import ends_when_told
from pliska.locks.presentation import SCHEMA_VERSION


@with_place
def watch(
    place: Place,
    of: Annotated[
        str | None, typer.Argument(metavar="[MODEL[@ALIAS]]", help="Only this model or alias.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="CURSOR", help="Go on after this line; 0 from the beginning."
        ),
    ] = None,
) -> None:
    """Print what happens to versions and aliases, one line each, until interrupted.

    With -o json each line has a cursor, and --from CURSOR goes on after it: no event
    is lost or told twice. The first line says where it begins.
    """
    model, alias = (None, None) if of is None else _model_and_alias(of)
    with ends_when_told(), place.open() as registry:
        events = registry.events(model, alias)
        start = events.newest() if from_ is None else events.check(Cursor.parse(from_))
        try:
            _print(place, {"cursor": str(start), "event": "watching"})
            for event in events.follow(start):
                if event is not None:
                    _print(place, _fields(event))
                elif _is_closed(sys.stdout.fileno()):
                    break
        except BrokenPipeError:
            _forget_output()


def _model_and_alias(text: str) -> tuple[str, str | None]:
    named = Reference.parse(text)
    if named.version is not None or named.digest is not None:
        raise RegistryUsageError(f"{text!r}: watch a model or an alias, not a version")
    return named.model, named.alias


def _print(place: Place, fields: dict[str, Any]) -> None:
    if place.is_json:
        line = json.dumps({"schema_version": SCHEMA_VERSION, **fields})
    else:
        shown = (f"{name}={value}" for name, value in fields.items() if value is not None)
        line = " ".join("".join(c if c.isprintable() else "\ufffd" for c in text) for text in shown)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fields(event: Event) -> dict[str, Any]:
    cursor, record = str(event.cursor), event.record
    match record:
        case Mark():
            return {"cursor": cursor, "event": "version", **mark_row(record)}
        case HistoryEntry():
            return {"cursor": cursor, "event": "alias", **_entry_fields(record)}
        case EndedOperation():
            return {"cursor": cursor, "event": "ended", **_ended_fields(record)}


def _entry_fields(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "model": entry.model,
        "alias": entry.alias,
        "gen": entry.gen,
        "kind": entry.kind,
        "from": entry.from_version,
        "to": entry.to_version,
        "canary": canary_fields(entry.canary),
        "time": entry.at,
        "actor": entry.actor,
        "reason": entry.reason or None,
        "op_id": entry.op_id,
        "manifest_digest": entry.manifest_digest,
    }


def _ended_fields(ended: EndedOperation) -> dict[str, Any]:
    return {
        "model": ended.operation.model,
        "alias": ended.operation.alias,
        "ending": ended.ending,
        "gen": ended.gen,
        "time": ended.at,
        "why": ended.why,
        "failed": list(ended.failed),
        "late": list(ended.late),
        "op_id": ended.operation.op_id,
    }


def _is_closed(descriptor: int) -> bool:
    """Whether nobody can read any more what is written there: the other end of a pipe is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def _forget_output() -> None:
    """Let the interpreter's last flush go nowhere: it would complain of the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
