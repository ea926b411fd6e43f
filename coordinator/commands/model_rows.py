"""What `pliska model` shows of versions: fields and columns, no decisions."""

from collections.abc import Mapping, Sequence
from typing import Any

from pliska.coordinator.commands.model_upkeep_rows import MARK_COLUMNS, mark_row
from pliska.coordinator.registry import AliasState, Manifest, Mark, VersionRecord
from pliska.coordinator.registry.signatures import signer_ids
from pliska.locks.presentation import OutputFormat, show_rows

VERSION_COLUMNS = ["model", "version", "state", "aliases", "nbytes", "registered_at", "by"]


def alias_names(aliases: Mapping[str, AliasState], version: int) -> list[str]:
    """Return the aliases that point at the version."""
    return [name for name, state in aliases.items() if state.version == version]


def version_row(version: VersionRecord, aliases: Sequence[str]) -> dict[str, Any]:
    """Return the fields of one version."""
    return {
        "model": version.model,
        "version": version.version,
        "state": version.state,
        "state_reason": version.state_reason or None,
        "aliases": list(aliases),
        "content_id": version.content_id,
        "manifest_digest": version.manifest_digest,
        "parent": version.parent,
        "tensors": version.tensors,
        "nbytes": version.nbytes,
        "registered_at": version.registered_at,
        "by": version.registered_by,
        "signed_by": list(signer_ids(version)),
    }


def version_fields(
    version: VersionRecord,
    aliases: Sequence[str],
    manifest: Manifest | None,
    marks: Sequence[Mark],
) -> dict[str, Any]:
    """Return all that is known of one version; lineage and tensors come from its manifest."""
    fields = {**version_row(version, aliases), "marks": [mark_row(mark) for mark in marks]}
    if manifest is None:
        return fields
    tensors = [
        {
            "name": entry.name,
            "dtype": entry.type.dtype,
            "shape": list(entry.type.shape),
            "digest": entry.digest,
        }
        for entry in manifest.tensors
    ]
    return {
        **fields,
        "lineage": manifest.lineage.to_fields(),
        "metadata": dict(manifest.metadata),
        "tensors": tensors,
    }


def show_fields(fields: Mapping[str, Any]) -> None:
    """Print `version_fields` for people: one field a line, then its marks and tensors."""
    lines = []
    for name, value in fields.items():
        if name in ("marks", "tensors") and isinstance(value, list):
            lines.append({"field": name, "value": len(value)})
        elif isinstance(value, Mapping):
            lines += [
                {"field": f"{name}.{inner}", "value": _flat(known)}
                for inner, known in value.items()
                if known not in (None, [], {})
            ]
        else:
            lines.append({"field": name, "value": value})
    show_rows(OutputFormat.TABLE, "fields", ["field", "value"], lines)
    show_rows(OutputFormat.TABLE, "marks", MARK_COLUMNS, fields["marks"])
    if isinstance(fields["tensors"], list):
        show_rows(OutputFormat.TABLE, "tensors", ["name", "dtype", "shape"], fields["tensors"])


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [f"{name}={known}" for name, known in value.items()]
    return value
