"""`pliska status`: who leads, where the round stands, how the workers behave, what was refused."""

import asyncio
import contextlib
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.coordinator.errors import UnknownJobError
from pliska.locks import Backend, connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
)

app = typer.Typer()

UNDONE_SHOWN = 5
"""The newest rollbacks are shown, so many."""
REFRESH_S = 1.0


@app.callback(invoke_without_command=True, epilog="Example: pliska status --watch")
def status(
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this job. Default: every job in the store."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")
    ] = False,
) -> None:
    """Show who leads, the round, the workers and what was refused.

    Exit code 3: the store has no such job.
    """
    with contextlib.closing(connect(store)) as backend:
        if watch:
            _watch(backend, job, output)
        else:
            _print(output, _snapshots(backend, job))


def _snapshots(backend: Backend, job: str | None) -> list[dict[str, Any]]:
    directories = JobDirectory.all(backend)
    if job is not None:
        directories = tuple(each for each in directories if each.job == job)
        if not directories:
            raise UnknownJobError(f"the store {backend.address} has no job {job!r}")
    return [asyncio.run(job_snapshot(directory)) for directory in directories]


def _watch(backend: Backend, job: str | None, output: OutputFormat) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        if output is OutputFormat.JSON:
            while True:
                _print(output, _snapshots(backend, job))
                time.sleep(REFRESH_S)
        with Live(auto_refresh=False) as live:
            while True:
                live.update(_render(_snapshots(backend, job)), refresh=True)
                time.sleep(REFRESH_S)


def _print(output: OutputFormat, snapshots: list[dict[str, Any]]) -> None:
    if output is OutputFormat.JSON:
        show_json({"jobs": snapshots})
    else:
        Console().print(_render(snapshots))


def _render(snapshots: list[dict[str, Any]]) -> RenderableType:
    if not snapshots:
        return "no job was started in this store: `pliska coordinator run --job FILE` starts one"
    return Group(*(part for snapshot in snapshots for part in _render_job(snapshot)))


def _render_job(snapshot: dict[str, Any]) -> list[RenderableType]:
    facts = Table(box=None, show_header=False, pad_edge=False, title_justify="left")
    for name, value in _facts(snapshot):
        facts.add_row(name, value)
    parts: list[RenderableType] = [facts]
    if snapshot.get("workers"):
        parts += ["", _workers(snapshot["workers"])]
    if snapshot.get("replies"):
        parts += ["", _replies(snapshot["replies"], snapshot.get("reasons", {}))]
    return [*parts, ""]


def _facts(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("job", snapshot["job"]), ("leader", snapshot["leader"] or "nobody")]
    if "cannot_lead" in snapshot:
        facts.append(("cannot lead", snapshot["cannot_lead"]))
    facts += _standby_facts(snapshot)
    if "round" in snapshot:
        round_facts = f"{snapshot['round']} of {snapshot['rounds']}, {snapshot['reason']}"
        facts += [("epoch", str(snapshot["epoch"])), ("round", round_facts)]
    if "mode" in snapshot:
        facts += _mode_facts(snapshot["mode"])
    facts.append(("version", str(snapshot["version"])))
    facts += [
        ("undone", f"rounds {first} to {last}, by the rollback in version {last + 1}")
        for first, last in snapshot.get("undone", [])[-UNDONE_SHOWN:]
    ]
    if snapshot.get("accuracy"):
        newest = snapshot["accuracy"][-1]
        facts.append(("accuracy", f"{newest['accuracy']:.4f} at version {newest['version']}"))
    return facts


def _standby_facts(snapshot: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what the standbys have, by the leader's word or else their own."""
    if "waiting" in snapshot:
        return [
            (each["coordinator"], f"at version {each.get('version', '?')}, {each['reason']}")
            for each in snapshot["waiting"]
        ]
    if "replicas" not in snapshot:
        names = ", ".join(snapshot["standbys"])
        return [("standbys", names)] if names else []
    replicas = snapshot["replicas"]
    facts = [
        (each["coordinator"], _standby(each["state"], each["version"], each["reason"]))
        for each in replicas["standbys"]
    ]
    durable = f"version {snapshot['committed_version']}, {replicas['reason']}"
    return [*facts, ("durable", durable)]


def _standby(state: str, version: int, reason: str) -> str:
    return f"standby, {state} at version {version}" + (f": {reason}" if reason else "")


def _mode_facts(mode: dict[str, Any]) -> list[tuple[str, str]]:
    in_force = f"{mode['mode']} (epoch {mode['mode_epoch']}, policy {mode['policy']})"
    if mode["asked_for_epoch"] > mode["mode_epoch"]:
        in_force += f", {mode['asked_for']} from the next round on"
    lag = f"mean {mode['lag_mean']:.2f}, most {mode['lag_most']}, late {mode['late_share']:.0%}"
    facts = [
        ("mode", in_force),
        ("soft deadline", f"{mode['soft_deadline_s']:.3g} s"),
        ("lag", lag),
    ]
    if mode["stragglers"]:
        facts.append(("stragglers", ", ".join(mode["stragglers"])))
    return facts


def _workers(workers: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    counts = ("KEPT", "OUTVOTED", "REFUSED", "CUT")
    for column in ("WORKER", "HERE", "SLOT", "STANDING", *counts, "SUSPICION", "LAST OFFENCE"):
        table.add_column(column, overflow="fold")
    for each in workers:
        table.add_row(
            each["worker"],
            "yes" if each["is_here"] else "no",
            each["slot"] or "-",
            _standing(each),
            str(each["kept"]),
            str(each["outvoted"]),
            str(each["refused"]),
            f"{each['cut_share']:.0%}",
            f"{each['suspicion']:.2f}",
            each["quarantine"] or each["last_offence"] or "-",
        )
    return table


def _standing(worker: dict[str, Any]) -> str:
    if not worker["is_suspected"]:
        return str(worker["standing"])
    return f"{worker['standing']} since {worker['since_round']}"


def _replies(replies: dict[str, int], reasons: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("REPLY", "COUNT", "LAST REASON"):
        table.add_column(column, overflow="fold")
    for code, count in replies.items():
        table.add_row(code, str(count), reasons.get(code, "-"))
    return table
