"""`pliska job`: look at a job that runs, and switch how its rounds are run."""

import asyncio
import contextlib
import getpass
import time
from typing import Annotated, Any

import typer

from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.coordinator.errors import ModePendingError, UnknownJobError
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.wire.job import Job
from pliska.locks import Backend, connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

app = typer.Typer(no_args_is_help=True)

POLL_S = 0.2
"""Pause before a leader is asked again whether it has taken a mode up."""

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Name of a job in the store.")]
_SHORT = {"sync": Mode.SYNCHRONOUS, "async": Mode.ASYNCHRONOUS}


def _parse_mode(text: str) -> Mode:
    try:
        return _SHORT[text] if text in _SHORT else Mode(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(Mode)}") from error


ModeArgument = Annotated[
    Mode,
    typer.Argument(
        metavar="MODE", parser=_parse_mode, help="synchronous (sync), asynchronous (async), hybrid."
    ),
]


@app.callback()
def job() -> None:
    """Look at jobs and switch how their rounds are run."""


@app.command("mode", epilog="Example: pliska job mode digits hybrid --timeout 30")
def switch_mode(
    job: JobArgument,
    mode: ModeArgument,
    reason: Annotated[str, typer.Option(help="Why; it stands in the log.")] = "",
    timeout: Annotated[
        float,
        typer.Option(min=0.0, help="Wait so many seconds until a round runs in the mode."),
    ] = 0.0,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Switch a job to another mode; the leader takes it up when it opens its next round.

    Exit code 3: the store has no such job; 4: somebody else switched at the same
    time; 6: the mode is asked for, and no round ran in it within --timeout.
    """
    with contextlib.closing(connect(store)) as backend:
        directory, definition = _job(backend, job)
        why = f"{getpass.getuser()}: {reason}" if reason else getpass.getuser()
        asked = directory.switch_mode(definition, mode, why)
        if timeout > 0:
            asyncio.run(_taken_up(directory, asked, timeout))
        _show(output, asyncio.run(_modes(directory, definition)))


@app.command(epilog="Example: pliska job show digits -o json")
def show(
    job: JobArgument,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the mode that a job is run in, the one asked for, and what each mode takes.

    Exit code 3: the store has no such job.
    """
    with contextlib.closing(connect(store)) as backend:
        directory, definition = _job(backend, job)
        _show(output, asyncio.run(_modes(directory, definition)))


def _job(backend: Backend, name: str) -> tuple[JobDirectory, Job]:
    directory = JobDirectory(backend, name)
    definition = directory.definition()
    if definition is None:
        raise UnknownJobError(f"the store {backend.address} has no job {name!r}")
    return directory, definition


async def _taken_up(directory: JobDirectory, asked: ModeSetting, timeout_s: float) -> None:
    """Wait until the leader runs a round in this mode, or a later one.

    Raises:
        ModePendingError: It did not in time.
    """
    until = time.monotonic() + timeout_s
    while True:
        snapshot = await job_snapshot(directory)
        if snapshot.get("mode", {}).get("mode_epoch", -1) >= asked.mode_epoch:
            return
        if time.monotonic() >= until:
            raise ModePendingError(
                f"no round of {directory.job} has run in the {asked.mode} mode within "
                f"{timeout_s:g} s; it is asked for all the same: see `pliska status`"
            )
        await asyncio.sleep(POLL_S)


async def _modes(directory: JobDirectory, definition: Job) -> dict[str, Any]:
    asked = await asyncio.to_thread(directory.mode, definition)
    snapshot = await job_snapshot(directory)
    in_force = snapshot.get("mode", {})
    return {
        "job": directory.job,
        "in_force": in_force.get("mode"),
        "mode_epoch": in_force.get("mode_epoch"),
        "asked_for": asked.mode.value,
        "asked_for_epoch": asked.mode_epoch,
        "reason": asked.reason,
        "policy": definition.mode.policy,
        "quorum": definition.rounds.quorum,
        "hybrid_buffer": definition.hybrid.buffer or definition.rounds.quorum,
        "hybrid_staleness_max": definition.hybrid.staleness_max,
        "asynchronous_buffers": definition.asynchronous.buffers or "as the rule needs",
        "asynchronous_staleness_max": definition.asynchronous.staleness_max,
    }


def _show(output: OutputFormat, modes: dict[str, Any]) -> None:
    if output is OutputFormat.JSON:
        show_json(modes)
        return
    rows = [{"what": name.replace("_", " "), "value": value} for name, value in modes.items()]
    show_rows(output, "job", ("what", "value"), rows)
