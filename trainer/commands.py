"""`pliska worker`: run a worker."""

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from pliska.aggregation import AttackName
from pliska.locks.presentation import DEFAULT_STORE, StoreOption

app = typer.Typer(no_args_is_help=True)


@app.callback()
def worker() -> None:
    """Run workers."""


@app.command(epilog="Example: pliska worker run --job digits --key w1.pem")
def run(
    job: Annotated[str, typer.Option(metavar="NAME", help="Name of a job in the store.")],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="Private key; whose it is stands in the keyring.")
    ],
    store: StoreOption = DEFAULT_STORE,
    leader_timeout: Annotated[
        float, typer.Option(min=1.0, help="Give up after so many seconds without a leader.")
    ] = 120.0,
    donate: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Give parameters to workers that join, who reach this one by HOST.",
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="With --donate: the address to listen on, if another."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --donate; 0 takes any free one.")
    ] = 0,
    attack: Annotated[
        AttackName | None, typer.Option(help="For drills: lie in this way instead of helping.")
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="How strong the attack is, in its own terms.")
    ] = None,
    accomplice: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKER", help="A worker that lies too; may be repeated."),
    ] = None,
) -> None:
    """Compute gradients for a job and sign them, until the job is finished."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    from pliska.trainer.donation import Door
    from pliska.trainer.start import Attacking, start_worker

    if donate is None and (bind is not None or port):
        raise typer.BadParameter("--bind and --port say where to --donate: name a host")
    door = None if donate is None else Door(donate, bind or donate, port)

    attacking = None
    if attack is not None:
        attacking = Attacking(attack, scale, frozenset(accomplice or ()))
    version = asyncio.run(start_worker(store, job, key, leader_timeout, attacking, door))
    typer.echo(f"finished at version {version}", err=True)
