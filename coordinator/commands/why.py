"""`pliska why`: what became of every worker's gradient in one round."""

from typing import Annotated

import typer

from pliska.coordinator.audit.explanation import explain
from pliska.coordinator.commands.audit_rows import FATE_COLUMNS, explanation_row
from pliska.coordinator.commands.audit_source import (
    AuditSource,
    JobArgument,
    JobFileOption,
    KeysOption,
    RoundArgument,
    StorageOption,
)
from pliska.coordinator.errors import NotKeptError
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

app = typer.Typer()

_ONE_COMMAND = {"allow_interspersed_args": True}
"""Options may stand behind the arguments, though this is a group without commands."""


@app.callback(
    invoke_without_command=True,
    epilog="Example: pliska why digits 12 w3",
    subcommand_metavar="",
    context_settings=_ONE_COMMAND,
)
def why(
    job: JobArgument,
    round_number: RoundArgument,
    worker: Annotated[
        str | None, typer.Argument(metavar="WORKER", help="Only this worker.")
    ] = None,
    storage: StorageOption = None,
    keys: KeysOption = None,
    job_file: JobFileOption = None,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say what became of every worker's gradient in ROUND, and what would have changed it.

    Exit code 3: there is no such round, or nothing is known of WORKER in it.
    """
    source = AuditSource.open(job, store, storage, keys, job_file)
    _, commit, after = source.commits_at(round_number)
    record = commit.record
    told = explain(
        record,
        source.log.head(record.version, commit.digest).annex,
        source.receipts_at(commit, after),
        source.require_job().reputation,
    )
    rows = [explanation_row(each) for each in told if worker in (None, each.worker)]
    if worker is not None and not rows:
        raise NotKeptError(f"nothing is known of worker {worker!r} in round {round_number}")
    if output is OutputFormat.JSON:
        facts = {"job": job, "round": record.round, "version": record.version, "mode": record.mode}
        show_json({**facts, "rule": record.rule, "workers": rows})
        return
    typer.echo(f"round {record.round} of {job}, version {record.version}, rule {record.rule}")
    show_rows(output, "workers", FATE_COLUMNS, rows)
