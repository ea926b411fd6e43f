"""`pliska coordinator`: run a coordinator daemon."""

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from pliska.locks import Address, LockUsageError
from pliska.locks.presentation import DEFAULT_STORE, StoreOption

app = typer.Typer(no_args_is_help=True)

HALTED = 1
"""Exit code when the job cannot go on; the log says why."""


@app.callback()
def coordinator() -> None:
    """Run coordinators."""


@app.command(
    epilog="Example: pliska coordinator run --job jobs/digits.toml --store embedded:./.pliska"
)
def run(
    job: Annotated[Path, typer.Option(metavar="FILE", help="The job file.")],
    store: StoreOption = DEFAULT_STORE,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="PLISKA_STORAGE",
            metavar="PATH",
            help="Where log, checkpoints and models go; shared by the job's coordinators. "
            "Default: beside an embedded store.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of this coordinator. Default: host name and process id."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Private key to sign with; made when missing. Default: beside an embedded store.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    advertise: Annotated[
        str | None, typer.Option(help="Address that others reach it by. Default: --host.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 0,
    session_timeout: Annotated[
        float,
        typer.Option(
            min=1.0, max=600.0, help="Seconds of silence after which a leader is replaced."
        ),
    ] = 5.0,
    worker_lease: Annotated[
        float,
        typer.Option(min=0.5, max=3600.0, help="Seconds of silence after which a worker is gone."),
    ] = 10.0,
) -> None:
    """Lead a job, or stand by until the leader is gone.

    Exit code 0: the job is finished, or the coordinator was stopped; 1: the job
    is halted and needs an operator.
    """
    from pliska.coordinator.wire.job import load_job

    checked = load_job(job)  # before torch is waited for: most mistakes show here
    from pliska.coordinator.daemon import CoordinatorOptions, run_coordinator
    from pliska.coordinator.rounds.round_state import Phase

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = CoordinatorOptions(
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        store=store,
        storage=storage or str(_beside(store, "storage", "--storage")),
        key=key or _beside(store, "coordinator.pem", "--key"),
        host=host,
        advertise=advertise,
        port=port,
        session_timeout_s=session_timeout,
        worker_lease_s=worker_lease,
    )
    ended = asyncio.run(run_coordinator(checked, options))
    if ended is Phase.HALTED:
        raise typer.Exit(HALTED)


def _beside(store: str, name: str, option: str) -> Path:
    directory = Address.parse(store).local_directory
    if directory is None:
        raise LockUsageError(f"the store {store} has no directory of its own: give {option}")
    return directory / name
