"""What all commands share: the store they work on, and how they show what they found.

A table for people, JSON for programs; data goes to stdout, messages to stderr.
Used by the commands of this package and of every one above it.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

SCHEMA_VERSION = 1
"""Grows when a field of the JSON output changes its meaning or goes away."""


class OutputFormat(StrEnum):
    """Who reads the output."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table for people, JSON for programs.")
]


DEFAULT_STORE = "embedded:./.pliska"

StoreOption = Annotated[
    str,
    typer.Option(
        envvar="PLISKA_STORE",
        help="Address of the coordination store: embedded:PATH, zookeeper://HOST:PORT/PATH or "
        "consul://HOST:PORT/PATH.",
    ),
]


def show_rows(
    output: OutputFormat, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Print rows as a table with `columns`, or all their fields as a JSON list called `name`."""
    if output is OutputFormat.JSON:
        show_json({name: [dict(row) for row in rows]})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    # What is shown may be anybody's words: it is text, never markup for the terminal.
    Console(markup=False, emoji=False, highlight=False).print(table)


def show_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object with its schema version."""
    typer.echo(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return _visible(", ".join(str(item) for item in value)) or "-"
    return _visible(str(value))


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
