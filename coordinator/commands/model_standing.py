"""The commands of `pliska model` that show where an alias stands and how it came there.

They change nothing; `model_moves` does. `model` puts them into its group.
"""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from pliska.coordinator.commands.model_move_rows import (
    LOG_COLUMNS,
    NODE_COLUMNS,
    log_rows,
    node_rows,
    status_fields,
)
from pliska.coordinator.commands.model_options import (
    AliasOption,
    ModelArgument,
    Place,
    with_place,
)
from pliska.coordinator.registry import (
    DeadlinePassedError,
    NotFoundError,
    Situation,
    VersionRecord,
)
from pliska.coordinator.registry.requests import TIMEOUT_S
from pliska.locks.presentation import show_json, show_rows

POLL_S = 0.5


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


def _show_status(place: Place, situation: Situation, versions: Sequence[VersionRecord]) -> None:
    fields, nodes = status_fields(situation, versions), node_rows(situation, versions)
    if place.is_json:
        show_json({**fields, "nodes": nodes})
        return
    rows = [{"field": name, "value": value} for name, value in fields.items()]
    show_rows(place.output, "status", ["field", "value"], rows)
    show_rows(place.output, "nodes", NODE_COLUMNS, nodes)
