"""What `pliska model` shows of aliases: moves, operations and nodes; no decisions."""

from collections.abc import Collection, Sequence
from typing import Any

import typer

from pliska.coordinator.commands.model_options import Place
from pliska.coordinator.registry import (
    Canary,
    EndedOperation,
    HistoryEntry,
    Move,
    NodeRecord,
    Operation,
    Outcome,
    Situation,
    VersionRecord,
)
from pliska.coordinator.registry.policy import standing_entries
from pliska.locks.presentation import show_json, show_rows

LOG_COLUMNS = ["alias", "gen", "time", "kind", "from", "to", "actor", "reason", "status", "ending"]
MOVE_COLUMNS = ["model", "alias", "outcome", "from_version", "to_version", "gen", "quarantined"]
OPERATION_COLUMNS = ["op_id", "model", "alias", "kind", "phase", "version", "approvals"]
NODE_COLUMNS = ["node", "gen", "version", "state", "phase", "reason"]


def log_rows(
    history: Sequence[HistoryEntry], ended: Sequence[EndedOperation]
) -> list[dict[str, Any]]:
    """Return the moves of one alias.

    `status` says which were rolled back from, `ending` which all nodes followed; null
    while that is not known.
    """
    standing = {entry.gen for entry in standing_entries(history)}
    endings = {each.operation.op_id: each.ending for each in ended}
    return [
        {
            "alias": entry.alias,
            "gen": entry.gen,
            "time": entry.at,
            "kind": entry.kind,
            "from": entry.from_version,
            "to": entry.to_version,
            "canary": canary_fields(entry.canary),
            "actor": entry.actor,
            "reason": entry.reason or None,
            "status": _status(entry.gen, len(history), standing),
            "ending": endings.get(entry.op_id),
            "op_id": entry.op_id,
            "manifest_digest": entry.manifest_digest,
            "expires": entry.expires,
            "approvals": len(entry.approvals),
            "hash": entry.hash,
        }
        for entry in history
    ]


def move_row(move: Move) -> dict[str, Any]:
    """Return the fields of a move."""
    return {
        "model": move.model,
        "alias": move.alias,
        "kind": move.kind,
        "outcome": move.outcome,
        "committed": move.is_committed,
        "from_version": move.from_version,
        "to_version": move.to_version,
        "canary": canary_fields(move.canary),
        "gen": move.gen,
        "quarantined": list(move.quarantined),
        "op_id": move.op_id,
        "reason": move.reason or None,
        "nodes": move.nodes,
        "failed": list(move.failed),
        "late": list(move.late),
        "why": move.why or None,
    }


def show_move(place: Place, move: Move) -> None:
    """Say what became of a request, and show it as data."""
    alias, source, target = f"{move.model}@{move.alias}", move.from_version, move.to_version
    way = f"to version {target}" if source is None else f"from version {source} to {target}"
    if move.canary is not None:
        way = f"to version {target}, {move.canary.percent} % to {move.canary.version}"
    typer.echo(
        {
            Outcome.PLANNED: f"{move.kind} would move {alias} {way} (generation {move.gen})",
            Outcome.MOVED: f"{move.kind} moved {alias} {way} (generation {move.gen})",
            Outcome.DEGRADED: f"{move.kind} moved {alias} {way}, but not everywhere: {move.why}",
            Outcome.ABORTED: f"{move.kind} of {alias} was called off: {move.why}",
            Outcome.JOINED: f"somebody else moved {alias} {way} at the same time: done",
            Outcome.STAYED: f"{alias} points at version {target} already: nothing to do",
        }[move.outcome],
        err=True,
    )
    if place.is_json:
        show_json(move_row(move))
    else:
        show_rows(place.output, "moves", MOVE_COLUMNS, [move_row(move)])


def status_fields(situation: Situation, versions: Sequence[VersionRecord]) -> dict[str, Any]:
    """Return where an alias points and what is under way."""
    states = {version.version: version.state for version in versions}
    alias = None if situation.alias is None else situation.alias.record
    operation = None if situation.operation is None else situation.operation.record
    return {
        "gen": situation.gen,
        "version": None if alias is None else alias.version,
        "state": None if alias is None else states.get(alias.version),
        "canary": canary_fields(None if alias is None else alias.canary),
        "moved_by": None if alias is None else alias.actor,
        "is_settled": situation.is_settled,
        "operation": None if operation is None else operation_fields(operation),
    }


def operation_fields(operation: Operation) -> dict[str, Any]:
    """Return what is to be known of an operation."""
    return {
        "op_id": operation.op_id,
        "model": operation.model,
        "alias": operation.alias,
        "kind": operation.kind,
        "phase": operation.phase,
        "version": operation.target,
        "gen": operation.gen,
        "epoch": operation.epoch,
        "driver": operation.driver,
        "deadline": operation.deadline,
        "wait": operation.wait,
        "required": list(operation.required),
        "approvals": len(operation.approvals),
    }


def node_rows(situation: Situation, versions: Sequence[VersionRecord]) -> list[dict[str, Any]]:
    """Return what each node serves, and how far it is with the open operation."""
    served = {version.manifest_digest: version for version in versions}
    return [
        _node_row(node, situation, served.get(node.serving) if node.serving else None)
        for node in situation.nodes
    ]


def canary_fields(canary: Canary | None) -> dict[str, Any] | None:
    """Return what a part of the requests is given to."""
    if canary is None:
        return None
    return {"version": canary.version, "percent": canary.percent}


def _node_row(
    node: NodeRecord, situation: Situation, serves: VersionRecord | None
) -> dict[str, Any]:
    operation = None if situation.operation is None else situation.operation.record
    ack = None if operation is None else node.answer_to(operation.op_id)
    is_current = node.serving_gen >= situation.gen
    phase = "SERVING" if node.serving_gen and is_current else "BEHIND"
    return {
        "node": node.node,
        "incarnation": node.incarnation,
        "gen": node.serving_gen,
        "version": None if serves is None else serves.version,
        "state": None if serves is None else serves.state,
        "phase": phase if ack is None else ack.answer,
        "reason": (ack.why if ack is not None and ack.why else node.stale) or None,
        "serving": node.serving,
        "loaded": list(node.loaded),
        "highest_gen": node.gen,
    }


def _status(gen: int, newest_gen: int, standing: Collection[int]) -> str | None:
    if gen == newest_gen:
        return "current"
    return None if gen in standing else "rolled back"
