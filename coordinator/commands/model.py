"""`pliska model`: register versions, point aliases at them, roll back, look and verify.

Data goes to stdout, messages to stderr. Exit codes: 0 done or already so,
2 usage, 3 not found, 4 conflict, 5 integrity or unsafe format, 7 refused by
policy, 8 store unreachable (nothing was applied), 9 outcome unknown.
"""

from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.commands.model_options import (
    ActorOption,
    AliasOption,
    ArtifactsOption,
    DryRunOption,
    ExpectGenOption,
    ModelArgument,
    NamespaceOption,
    OpIdOption,
    ReferenceArgument,
    SignaturesOption,
    default_actor,
    load_signer,
    open_registry,
    read_lineage,
)
from pliska.coordinator.commands.model_rows import (
    LOG_COLUMNS,
    MOVE_COLUMNS,
    VERSION_COLUMNS,
    alias_names,
    log_rows,
    move_row,
    show_fields,
    version_fields,
    version_row,
)
from pliska.coordinator.registry import (
    IntegrityError,
    Move,
    Outcome,
    PromoteRequest,
    Reference,
    RollbackRequest,
    State,
)
from pliska.coordinator.registry.requests import Request, new_op_id
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_versions(
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    alias: Annotated[str | None, typer.Option(help="Only what this alias points at.")] = None,
    state: Annotated[State | None, typer.Option(help="Only versions in this state.")] = None,
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Show the versions of all models, or of one."""
    rows = []
    with open_registry(store, artifacts, namespace) as registry:
        for name in registry.models() if model is None else [model]:
            aliases = registry.aliases(name)
            for version in registry.versions(name):
                row = version_row(version, alias_names(aliases, version.version))
                if state in (None, version.state) and alias in (None, *row["aliases"]):
                    rows.append(row)
    show_rows(output, "versions", VERSION_COLUMNS, rows)


@app.command()
def show(
    reference: ReferenceArgument,
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    signatures_min: SignaturesOption = 0,
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Show what a version consists of and where it comes from."""
    with open_registry(store, artifacts, namespace, signatures_min) as registry:
        version = registry.resolve(Reference.parse(reference))
        aliases = alias_names(registry.aliases(version.model), version.version)
        manifest = None if version.state is State.PENDING else registry.manifest(version)
    fields = version_fields(version, aliases, manifest)
    if output is OutputFormat.JSON:
        show_json(fields)
    else:
        show_fields(fields)


@app.command()
def log(
    model: ModelArgument,
    alias: Annotated[str | None, typer.Option(help="Only this alias.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many, the newest.")] = None,
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Show every move of the model's aliases, newest first; their hash chains are verified."""
    with open_registry(store, artifacts, namespace) as registry:
        registry.versions(model)
        names = list(registry.aliases(model)) if alias is None else [alias]
        histories = [registry.log(model, name) for name in names]
    rows = [row for history in histories for row in log_rows(history)]
    rows.sort(key=lambda row: (row["time"], row["gen"]), reverse=True)
    show_rows(output, "log", LOG_COLUMNS, rows[:limit])


@app.command()
def register(
    model: ModelArgument,
    path: Annotated[Path, typer.Argument(help="A safetensors file.")],
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
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Store a safetensors file as a version of MODEL and print the version's number.

    The same tensors are the same version: registering them again prints the
    number they have.
    """
    origin = read_lineage(lineage, parent, metric or [])
    signer = None if sign is None else load_signer(sign)
    with open_registry(store, artifacts, namespace) as registry:
        registered = registry.register_file(
            model, path, actor=actor or default_actor(), lineage=origin, signer=signer
        )
        version = registered.version
        aliases = alias_names(registry.aliases(model), version.version)
    if registered.created:
        _say(f"registered {version.name}: {version.tensors} tensors, {version.nbytes} bytes")
    else:
        _say(f"{version.name} ({version.state}) has this content already; its lineage stands")
    if output is OutputFormat.JSON:
        show_json({**version_row(version, aliases), "created": registered.created})
    else:
        typer.echo(version.version)


@app.command()
def promote(
    model: ModelArgument,
    version: Annotated[int, typer.Argument(min=1, help="Number of the version.")],
    alias: AliasOption,
    reason: Annotated[str, typer.Option(help="Why; shown in the log.")] = "",
    expect_gen: ExpectGenOption = None,
    dry_run: DryRunOption = False,
    op_id: OpIdOption = None,
    actor: ActorOption = None,
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    signatures_min: SignaturesOption = 0,
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Point an alias at a version, after verifying every byte of it."""
    request = PromoteRequest(
        model=model,
        alias=alias,
        version=version,
        actor=actor or default_actor(),
        reason=reason,
        expect_gen=expect_gen,
        op_id=op_id or new_op_id(),
    )
    with open_registry(store, artifacts, namespace, signatures_min) as registry:
        move = registry.plan(request) if dry_run else registry.promote(request)
    _show_move(move, request, output)


@app.command()
def rollback(
    model: ModelArgument,
    alias: AliasOption,
    reason: Annotated[str, typer.Option(help="Why; shown in the log.")],
    to: Annotated[
        int | None, typer.Option(min=1, help="To this version instead of the previous one.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="How many versions back.")] = 1,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Let aliases go back to the version left.")
    ] = False,
    expect_gen: ExpectGenOption = None,
    dry_run: DryRunOption = False,
    op_id: OpIdOption = None,
    actor: ActorOption = None,
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    signatures_min: SignaturesOption = 0,
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Take an alias back to the version before, and quarantine the one it leaves.

    The previous version is the newest earlier one that is READY and was not
    rolled back from, so rolling back again goes further back.
    """
    request = RollbackRequest(
        model=model,
        alias=alias,
        actor=actor or default_actor(),
        reason=reason,
        to=to,
        steps=steps,
        quarantine=not no_quarantine,
        expect_gen=expect_gen,
        op_id=op_id or new_op_id(),
    )
    with open_registry(store, artifacts, namespace, signatures_min) as registry:
        move = registry.plan(request) if dry_run else registry.rollback(request)
    _show_move(move, request, output)


@app.command()
def export(
    reference: ReferenceArgument,
    path: Annotated[Path, typer.Argument(help="The safetensors file to write; must not exist.")],
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    signatures_min: SignaturesOption = 0,
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Write a version as a safetensors file, verifying every byte."""
    with open_registry(store, artifacts, namespace, signatures_min) as registry:
        version = registry.export(Reference.parse(reference), path)
        aliases = alias_names(registry.aliases(version.model), version.version)
    _say(f"wrote {version.name} ({version.state}) to {path}")
    show_rows(output, "versions", VERSION_COLUMNS, [version_row(version, aliases)])


@app.command()
def verify(
    reference: Annotated[
        str, typer.Argument(metavar="MODEL[:N|@ALIAS|@sha256:…]", help="A version; all if bare.")
    ],
    output: OutputOption = OutputFormat.TABLE,
    namespace: NamespaceOption = "default",
    signatures_min: SignaturesOption = 0,
    store: StoreOption = DEFAULT_STORE,
    artifacts: ArtifactsOption = None,
) -> None:
    """Check records, hash chains, manifests, signatures and every byte of the tensors."""
    named = Reference.parse(reference)
    rows = []
    with open_registry(store, artifacts, namespace, signatures_min) as registry:
        if named == Reference(named.model):
            versions = [v for v in registry.versions(named.model) if v.state is not State.PENDING]
            registry.aliases(named.model)
        else:
            versions = [registry.resolve(named)]
        for version in versions:
            problem = None
            try:
                registry.verify(version)
            except IntegrityError as error:
                problem = str(error)
            rows.append({"version": version.name, "is_sound": problem is None, "problem": problem})
    show_rows(output, "checks", ["version", "is_sound", "problem"], rows)
    damaged = [row["version"] for row in rows if not row["is_sound"]]
    if damaged:
        raise IntegrityError(f"damaged: {', '.join(map(str, damaged))}")


def _show_move(move: Move, request: Request, output: OutputFormat) -> None:
    alias, source, target = f"{move.model}@{move.alias}", move.from_version, move.to_version
    way = f"to version {target}" if source is None else f"from version {source} to {target}"
    _say(
        {
            Outcome.PLANNED: f"{request.kind} would move {alias} {way} (generation {move.gen})",
            Outcome.MOVED: f"{request.kind} moved {alias} {way} (generation {move.gen})",
            Outcome.DEGRADED: f"{request.kind} moved {alias} {way}, but not everywhere: {move.why}",
            Outcome.ABORTED: f"{request.kind} of {alias} was called off: {move.why}",
            Outcome.JOINED: f"somebody else moved {alias} {way} at the same time: done",
            Outcome.STAYED: f"{alias} points at version {target} already: nothing to do",
        }[move.outcome]
    )
    if output is OutputFormat.JSON:
        show_json(move_row(move))
    else:
        show_rows(output, "moves", MOVE_COLUMNS, [move_row(move)])


def _say(message: str) -> None:
    typer.echo(message, err=True)
