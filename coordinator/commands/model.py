"""`pliska model`: register versions, point aliases at them, roll back, look and verify.

Data goes to stdout, messages to stderr. Exit codes: 0 done or already so,
2 usage, 3 not found, 4 conflict, 5 integrity or unsafe format, 6 a deadline passed
(the JSON says whether the alias moved), 7 refused by policy or by the nodes,
8 store unreachable (nothing was applied), 9 outcome unknown. This file has the
commands for versions; the other modules whose names begin with `model_` have the rest.
"""

from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.commands import (
    model_canary,
    model_charter,
    model_diff,
    model_moves,
    model_operations,
    model_pack,
    model_publication,
    model_standing,
    model_upkeep,
    model_watch,
)
from pliska.coordinator.commands.model_options import (
    ActorOption,
    ModelArgument,
    Place,
    ReferenceArgument,
    default_actor,
    load_signer,
    read_lineage,
    with_place,
)
from pliska.coordinator.commands.model_rows import (
    VERSION_COLUMNS,
    alias_names,
    show_fields,
    version_fields,
    version_row,
)
from pliska.coordinator.registry import IntegrityError, Reference, State
from pliska.locks.presentation import show_json, show_rows

app = typer.Typer(no_args_is_help=True)


@app.command("list")
@with_place
def list_versions(
    place: Place,
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    alias: Annotated[str | None, typer.Option(help="Only what this alias points at.")] = None,
    state: Annotated[State | None, typer.Option(help="Only versions in this state.")] = None,
) -> None:
    """Show the versions of all models, or of one."""
    rows = []
    with place.open() as registry:
        for name in registry.models() if model is None else [model]:
            aliases = registry.aliases(name)
            for version in registry.versions(name):
                row = version_row(version, alias_names(aliases, version.version))
                if state in (None, version.state) and alias in (None, *row["aliases"]):
                    rows.append(row)
    show_rows(place.output, "versions", VERSION_COLUMNS, rows)


@app.command()
@with_place
def show(place: Place, reference: ReferenceArgument) -> None:
    """Show what a version consists of and where it comes from."""
    with place.open() as registry:
        version = registry.resolve(Reference.parse(reference))
        aliases = alias_names(registry.aliases(version.model), version.version)
        has_files = version.state not in (State.PENDING, State.DELETED)
        manifest = registry.manifest(version) if has_files else None
        marks = registry.marks(version)
    fields = version_fields(version, aliases, manifest, marks)
    if place.is_json:
        show_json(fields)
    else:
        show_fields(fields)


@app.command()
@with_place
def register(
    place: Place,
    model: ModelArgument,
    path: Annotated[Path, typer.Argument(help="A safetensors file; or .onnx, .pt2.")],
    parent: Annotated[int | None, typer.Option(help="The version it was trained from.")] = None,
    lineage: Annotated[
        Path | None, typer.Option(help="JSON file: job, rounds, rule, f, metrics, …")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="May be repeated.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign with this publisher's key file.")
    ] = None,
    actor: ActorOption = None,
) -> None:
    """Store the tensors of a file as a version of MODEL and print the version's number.

    The same tensors are the same version: registering them again prints the
    number they have.
    """
    origin = read_lineage(lineage, parent, metric or [])
    signer = None if sign is None else load_signer(sign)
    with place.open() as registry:
        registered = registry.register_file(
            model, path, actor=actor or default_actor(), lineage=origin, signer=signer
        )
        version = registered.version
        aliases = alias_names(registry.aliases(model), version.version)
    if registered.created:
        _say(f"registered {version.name}: {version.tensors} tensors, {version.nbytes} bytes")
    else:
        _say(f"{version.name} ({version.state}) has this content already; its lineage stands")
    if place.is_json:
        show_json({**version_row(version, aliases), "created": registered.created})
    else:
        typer.echo(version.version)


app.command()(model_moves.promote)
app.command()(model_moves.rollback)
app.command()(model_standing.status)
app.command()(model_standing.log)
app.command()(model_operations.abort)
app.command()(model_operations.resume)
app.command()(model_operations.approve)
app.command()(model_canary.metric)
app.command()(model_watch.watch)
app.command()(model_diff.diff)
app.command()(model_upkeep.quarantine)
app.command()(model_upkeep.deprecate)
app.command()(model_upkeep.reinstate)
app.command()(model_upkeep.pin)
app.command()(model_upkeep.unpin)
app.command()(model_upkeep.pins)
app.command()(model_upkeep.gc)
app.command()(model_upkeep.fsck)
app.add_typer(
    model_charter.app, name="charter", help="Whose signatures count, agreed upon by k of n keys."
)
app.command()(model_pack.pack)
app.command()(model_publication.publish)
app.command()(model_publication.adopt)


@app.command()
@with_place
def export(
    place: Place,
    reference: ReferenceArgument,
    path: Annotated[
        Path, typer.Argument(help="The file to write: .onnx, .pt2, else safetensors; a new one.")
    ],
    like: Annotated[
        Path | None, typer.Option(help="For .onnx and .pt2: a file whose graph it gets.")
    ] = None,
) -> None:
    """Write a version as a file, verifying every byte."""
    with place.open() as registry:
        version = registry.export(Reference.parse(reference), path, like)
        aliases = alias_names(registry.aliases(version.model), version.version)
    _say(f"wrote {version.name} ({version.state}) to {path}")
    show_rows(place.output, "versions", VERSION_COLUMNS, [version_row(version, aliases)])


@app.command()
@with_place
def verify(
    place: Place,
    reference: Annotated[
        str, typer.Argument(metavar="MODEL[:N|@ALIAS|@sha256:…]", help="A version; all if bare.")
    ],
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every copy.")] = False,
) -> None:
    """Check a version's records, hash chains, manifest, signatures and files, in every copy."""
    named = Reference.parse(reference)
    rows = []
    with place.open() as registry:
        if named == Reference(named.model):
            versions = [v for v in registry.versions(named.model) if v.state is not State.PENDING]
            registry.aliases(named.model)
        else:
            versions = [registry.resolve(named)]
        inspector = registry.inspector(reads_every_byte=deep)
        for version in versions:
            problems = [problem.what for problem in inspector.version(version)]
            rows.append({"version": version.name, "is_sound": not problems, "problems": problems})
    if not deep:
        _say("the bytes of tensors were not read: --deep reads them")
    show_rows(place.output, "checks", ["version", "is_sound", "problems"], rows)
    damaged = [row["version"] for row in rows if not row["is_sound"]]
    if damaged:
        raise IntegrityError(f"damaged: {', '.join(map(str, damaged))}")


def _say(message: str) -> None:
    typer.echo(message, err=True)
