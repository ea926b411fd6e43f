"""The `pliska` command: finds the commands of every package and runs one of them.

A command is an entry point of the group `pliska.commands` and is imported only
when it is asked for, so that `pliska --help` never waits for torch.
"""

import sys
from importlib.metadata import EntryPoint, entry_points, version

import typer

SUMMARIES = {
    "aggregate": "Combine files of tensors by a robust rule.",
    "audit": "Check a job's files, compute rounds again, prove what became of a gradient.",
    "config": "Read, set, watch and roll back the configuration in the store.",
    "coordinator": "Run a coordinator daemon: it leads the job or stands by.",
    "demo": "Train through lying workers and a dead coordinator, and roll a model back.",
    "job": "Switch how a job's rounds are run: synchronous, asynchronous, hybrid.",
    "key": "Make, enrol, list, rotate and revoke the keys of workers and coordinators.",
    "lock": "Run a command under a lock; list, show and break locks.",
    "model": "Register, promote and roll back model versions.",
    "service": "Register, list, resolve, watch and drain instances of services.",
    "status": "Show who leads, the round, the workers and what was rejected.",
    "why": "Say what became of every worker's gradient in a round.",
    "worker": "Run a worker: it computes gradients and signs them.",
}
"""One line each for `pliska --help`, which imports no command."""


def main() -> None:
    """Run the command line in `sys.argv`.

    An error that carries an `exit_code` is a message for the user, not a
    traceback; anything else is a bug of ours and shows where it happened.
    """
    try:
        assemble(sys.argv[1:])()
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if exit_code is None:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(exit_code)


def assemble(arguments: list[str]) -> typer.Typer:
    """Build the root command; only the command named by the first argument is imported."""
    root = typer.Typer(
        help="Train one model with workers that need not be trusted.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    root.callback()(_root)
    for entry_point in sorted(entry_points(group="pliska.commands"), key=lambda entry: entry.name):
        _add(root, entry_point, load=arguments[:1] == [entry_point.name])
    return root


def _add(root: typer.Typer, entry_point: EntryPoint, *, load: bool) -> None:
    summary = SUMMARIES.get(entry_point.name)
    if load:
        root.add_typer(entry_point.load(), name=entry_point.name, help=summary)
    else:
        root.command(entry_point.name, help=summary)(_not_loaded)


def _not_loaded() -> None:
    raise AssertionError("only the command named first on the command line runs")


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"pliska {version('pliska')}")
        raise typer.Exit


_VERSION = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show it.")


def _root(version: bool = _VERSION) -> None:
    """Accept the options that stand before a command."""
