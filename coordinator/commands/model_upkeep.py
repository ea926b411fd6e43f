"""The commands of `pliska model` that keep a registry in order: marks, pins, gc, fsck.

`model` puts them into its group. Exit codes are in its docstring.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from pliska.coordinator.commands.model_options import (
    ActorOption,
    ModelArgument,
    Place,
    default_actor,
    duration_s,
    load_signer,
    with_place,
)
from pliska.coordinator.commands.model_rows import alias_names
from pliska.coordinator.commands.model_upkeep_rows import (
    FATE_COLUMNS,
    MARK_COLUMNS,
    PIN_COLUMNS,
    PROBLEM_COLUMNS,
    fate_row,
    mark_row,
    pin_row,
    problem_row,
)
from pliska.coordinator.registry import (
    Collected,
    Housekeeping,
    IntegrityError,
    Marking,
    Retention,
    State,
)
from pliska.coordinator.wire.signing import Signer
from pliska.locks.presentation import show_json, show_rows

VersionArgument = Annotated[int, typer.Argument(min=1, help="Number of the version.")]
ReasonOption = Annotated[str, typer.Option(help="Why; others read it later.")]
SignOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="KEY", help="Sign with this publisher's key file. May be repeated."),
]
Act = Callable[[Housekeeping, Sequence[Signer]], Marking]


@with_place
def quarantine(
    place: Place,
    model: ModelArgument,
    version: VersionArgument,
    reason: ReasonOption,
    sign: SignOption = None,
    actor: ActorOption = None,
) -> None:
    """Let no alias be moved to a version any more, nor to what was trained from it.

    Processes that serve it go on until their alias is moved: roll back for that.
    """
    _mark(place, sign, actor, lambda keep, by: keep.quarantine(model, version, reason, by))


@with_place
def deprecate(
    place: Place,
    model: ModelArgument,
    version: VersionArgument,
    reason: ReasonOption,
    sign: SignOption = None,
    actor: ActorOption = None,
) -> None:
    """Let aliases be moved to a version only with --allow-deprecated."""
    _mark(place, sign, actor, lambda keep, by: keep.deprecate(model, version, reason, by))


@with_place
def reinstate(
    place: Place,
    model: ModelArgument,
    version: VersionArgument,
    reason: ReasonOption,
    sign: SignOption = None,
    actor: ActorOption = None,
) -> None:
    """Take a quarantine or a deprecation back; needs as many signatures as a version does."""
    _mark(place, sign, actor, lambda keep, by: keep.reinstate(model, version, reason, by))


@with_place
def pin(
    place: Place,
    model: ModelArgument,
    version: VersionArgument,
    reason: Annotated[str, typer.Option(help="Why; `gc` and `pins` show it.")] = "",
    actor: ActorOption = None,
) -> None:
    """Keep a version, whatever `gc` is told."""
    with place.open() as registry:
        pinned = registry.housekeeping(actor or default_actor()).pin(model, version, reason)
    show_rows(place.output, "pins", PIN_COLUMNS, [pin_row(pinned)])


@with_place
def unpin(
    place: Place, model: ModelArgument, version: VersionArgument, actor: ActorOption = None
) -> None:
    """Take a pin away; `gc` may remove the version again."""
    with place.open() as registry:
        was_pinned = registry.housekeeping(actor or default_actor()).unpin(model, version)
    _say(f"{model}:{version} {'is not pinned any more' if was_pinned else 'was not pinned'}")


@with_place
def pins(
    place: Place, model: Annotated[str | None, typer.Argument(help="Only this model.")] = None
) -> None:
    """Show which versions are pinned, and why."""
    with place.open() as registry:
        names = registry.models() if model is None else [model]
        rows = [pin_row(each) for name in names for each in registry.pins(name)]
    show_rows(place.output, "pins", PIN_COLUMNS, rows)


@with_place
def gc(
    place: Place,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="Keep so many of each model's newest versions.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep what is younger, such as 30d.")
    ] = None,
    history: Annotated[
        int, typer.Option(min=0, help="Keep what an alias pointed at in so many newest moves.")
    ] = Retention().history,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; else only show it.")] = False,
    actor: ActorOption = None,
) -> None:
    """Show the versions and files that nothing needs, and remove them with --yes.

    Without --keep-last or --older-than no version goes, only files that no version
    names. What an alias, an open operation, a serving node or a pin needs always stays.
    """
    retention = Retention(
        # What is older goes; the newest stays, though it may be the only one.
        keep_last=1 if keep_last is None and older_than is not None else keep_last,
        age_min=timedelta(seconds=0 if older_than is None else duration_s(older_than)),
        history=history,
    )
    with place.open() as registry:
        keep = registry.housekeeping(actor or default_actor())
        collected = keep.collect(retention) if yes else keep.planned(retention)
    _show_collected(place, collected, is_done=yes)


@with_place
def fsck(
    place: Place,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte of every copy.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Copy what one copy lacks from another that has it.")
    ] = False,
) -> None:
    """Check all records, hash chains and signatures, and that every file is in every copy.

    Files that no version names are counted; `gc` removes them.
    """
    with place.open() as registry:
        inspector = registry.inspector(reads_every_byte=deep)
        inspection = inspector.inspect()
        if repair:
            inspection = inspector.repaired(inspection)
    rows = [problem_row(problem) for problem in inspection.problems]
    _say(
        f"checked {inspection.models} models, {inspection.versions} versions, "
        f"{inspection.aliases} aliases and {inspection.files} files"
        + (", every byte" if deep else "; --deep reads every byte")
    )
    if inspection.garbage:
        _say(
            f"{len(inspection.garbage)} files of {inspection.garbage_nbytes} bytes belong to no "
            "version" + (", or to one that is being registered" if inspection.uploads else "")
        )
    if place.is_json:
        show_json(
            {
                "is_sound": inspection.is_sound,
                "models": inspection.models,
                "versions": inspection.versions,
                "aliases": inspection.aliases,
                "files": inspection.files,
                "is_deep": deep,
                "problems": rows,
                "garbage": list(inspection.garbage),
                "garbage_nbytes": inspection.garbage_nbytes,
                "uploads": [record.name for record in inspection.uploads],
            }
        )
    elif rows:
        show_rows(place.output, "problems", PROBLEM_COLUMNS, rows)
    if not inspection.is_sound:
        left = sum(not problem.is_repaired for problem in inspection.problems)
        raise IntegrityError(f"{left} problems in namespace {place.namespace!r}")


def _mark(place: Place, sign: Sequence[Path] | None, actor: str | None, act: Act) -> None:
    signers = [load_signer(path) for path in sign or []]
    with place.open() as registry:
        marking = act(registry.housekeeping(actor or default_actor()), signers)
        version = marking.version
        aliases = alias_names(registry.aliases(version.model), version.version)
        marks = registry.marks(version)
    _say(f"{version.name} is {version.state}{'' if marking.changed else ' already'}")
    if aliases and version.state is State.QUARANTINED:
        _say(f"{', '.join(aliases)} points at it still: `pliska model rollback` moves it away")
    show_rows(place.output, "marks", MARK_COLUMNS, [mark_row(mark) for mark in marks])


def _show_collected(place: Place, collected: Collected, *, is_done: bool) -> None:
    rows = [fate_row(fate) for fate in collected.fates]
    verb = "removed" if is_done else "would remove"
    going = sum(row["goes"] for row in rows)
    _say(f"{verb} {going} versions, {len(collected.files)} files, {collected.nbytes} bytes")
    if collected.held_by:
        names = ", ".join(record.name for record in collected.held_by)
        _say(f"no file goes while {names} is being registered")
    if not is_done:
        _say("nothing was changed: --yes removes it")
    if not place.is_json:
        show_rows(place.output, "versions", FATE_COLUMNS, rows)
        return
    document: dict[str, Any] = {
        "is_done": is_done,
        "versions": rows,
        "files": list(collected.files),
        "nbytes": collected.nbytes,
        "held_by": [record.name for record in collected.held_by],
    }
    show_json(document)


def _say(message: str) -> None:
    typer.echo(message, err=True)
