"""`pliska demo`: the demonstration on the command line."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer

from pliska.aggregation import AttackName

app = typer.Typer(no_args_is_help=False)

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell has it."""

DEFAULT_DIRECTORY = Path("pliska-demo")


@app.callback(
    invoke_without_command=True, epilog="Example: pliska demo --attack alie --rule trimmed-mean"
)
def demo(
    workers: Annotated[int, typer.Option(help="Worker processes of each run.")] = 8,
    byzantine: Annotated[
        int, typer.Option(help="How many of them attack; the rule is set up to bear them.")
    ] = 2,
    attack: Annotated[
        AttackName, typer.Option(help="What the attackers do.")
    ] = AttackName.SIGN_FLIP,
    scale: Annotated[
        float | None, typer.Option(help="How strong the attack is, in its own terms.")
    ] = None,
    rule: Annotated[str, typer.Option(help="The robust rule.")] = "multi-krum",
    data: Annotated[
        str, typer.Option(help="digits, or mnist:DIR with the four files of MNIST.")
    ] = "digits",
    rounds: Annotated[int, typer.Option(help="Rounds of each run.")] = 120,
    seed: Annotated[int, typer.Option(help="Of the model, the batches and the split.")] = 7,
    session_timeout: Annotated[
        float, typer.Option(help="Seconds of silence after which a leader is replaced.")
    ] = 3.0,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where everything goes; new or empty. Default: below ./pliska-demo."),
    ] = None,
) -> None:
    """Train through lying workers and a dead coordinator, and roll a model back.

    Starts real processes on this machine: coordinators, and workers of which
    some attack. Exit code 1: something that is claimed did not hold; it is named.
    """
    from pliska.trainer.demo.options import DemoOptions
    from pliska.trainer.demo.site import Site
    from pliska.trainer.demo.start import find_command, require_extra, run_and_report

    options = DemoOptions(
        workers=workers,
        byzantine=byzantine,
        attack=attack,
        scale=scale,
        rule=rule,
        data=data,
        rounds=rounds,
        seed=seed,
        session_timeout_s=session_timeout,
    )
    require_extra()
    command = find_command()
    site = Site.at(directory or DEFAULT_DIRECTORY / time.strftime("%Y-%m-%dT%H-%M-%S"))
    try:
        run_and_report(options, site, command)
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo(f"interrupted; no process is left, logs are in {site.logs}", err=True)
        raise typer.Exit(INTERRUPTED) from None
