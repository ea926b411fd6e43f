"""`pliska model diff`: what changed from one version to another."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from pliska.coordinator.commands.model_options import Place, with_place
from pliska.coordinator.registry import (
    ChangedTensor,
    Difference,
    Reference,
    TensorEntry,
    VersionRecord,
)
from pliska.coordinator.registry.tensor import TensorType
from pliska.locks.presentation import OutputFormat, show_json, show_rows

REFERENCE = "MODEL[:N|@ALIAS|@sha256:…]"
TENSOR_COLUMNS = ["tensor", "change", "before", "after", "l2", "relative", "largest", "cosine"]
FIELD_COLUMNS = ["field", "before", "after"]


@with_place
def diff(
    place: Place,
    before: Annotated[str, typer.Argument(metavar=REFERENCE, help="The older version.")],
    after: Annotated[str, typer.Argument(metavar=REFERENCE, help="The newer version.")],
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 where the tensors differ.")
    ] = False,
) -> None:
    """Show which tensors, metrics and lineage differ between two versions, and by how much."""
    with place.open() as registry:
        old, new = (registry.resolve(Reference.parse(each)) for each in (before, after))
        found = registry.difference(old, new)
    fields = difference_fields(old, new, found)
    if place.is_json:
        show_json(fields)
    else:
        _show(fields)
    if exit_code and not found.is_empty:
        raise typer.Exit(1)


def difference_fields(
    before: VersionRecord, after: VersionRecord, found: Difference
) -> dict[str, Any]:
    """Return all that differs; a number that JSON cannot hold is null."""
    tensors = [
        *(_whole(entry, "removed") for entry in found.removed),
        *(_whole(entry, "added") for entry in found.added),
        *(_changed(each) for each in found.changed),
    ]
    return {
        "before": before.name,
        "after": after.name,
        "same_tensors": found.same,
        "tensors": tensors,
        "metrics": _pairs(found.metrics),
        "lineage": _pairs(found.lineage),
    }


def _whole(entry: TensorEntry, change: str) -> dict[str, Any]:
    """Return a tensor that only one of both has."""
    kind = _text(entry.type)
    return {
        "tensor": entry.name,
        "change": change,
        "before": kind if change == "removed" else None,
        "after": kind if change == "added" else None,
    }


def _changed(each: ChangedTensor) -> dict[str, Any]:
    row = {
        "tensor": each.name,
        "change": "changed",
        "before": _text(each.before),
        "after": _text(each.after),
    }
    distance = each.distance
    if distance is None:
        return row
    return {
        **row,
        "l2": _finite(distance.l2),
        "relative": _finite(distance.relative),
        "largest": _finite(distance.largest),
        "cosine": _finite(distance.cosine),
    }


def _pairs(fields: Mapping[str, tuple[Any, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"before": pair[0], "after": pair[1]} for name, pair in fields.items()}


def _text(kind: TensorType) -> str:
    return f"{kind.dtype}{list(kind.shape)}"


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _show(fields: Mapping[str, Any]) -> None:
    tensors = fields["tensors"]
    typer.echo(
        f"{fields['before']} → {fields['after']}: {len(tensors)} tensors differ, "
        f"{fields['same_tensors']} are the same"
    )
    if tensors:
        show_rows(OutputFormat.TABLE, "tensors", TENSOR_COLUMNS, tensors)
    for part in ("metrics", "lineage"):
        rows = [{"field": f"{part}.{name}", **pair} for name, pair in fields[part].items()]
        if rows:
            show_rows(OutputFormat.TABLE, part, FIELD_COLUMNS, rows)
