"""`pliska lock`: run a command under a lock; show who holds locks, and take one away."""

from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer

from pliska.locks.address import connect
from pliska.locks.backends.base import Backend
from pliska.locks.child import SIGNAL_EXIT_CODE, Child, SignalRelay
from pliska.locks.errors import AcquireCancelledError, LockFreeError
from pliska.locks.fencing import FencingToken
from pliska.locks.grant import Grant
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_rows,
)
from pliska.locks.queue import Contending, break_lock, lock_names, lock_queue
from pliska.locks.read_write_lock import ReadWriteLock
from pliska.locks.session import Session

lock = typer.Typer(no_args_is_help=True)

LOST_EXIT_CODE = 10
KILL_GRACE_S = 2.0
"""How long a command has after SIGTERM when its lock is lost."""

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The lock, such as backup/nightly.")
]


class OnLost(StrEnum):
    """What happens to a command whose lock is lost."""

    KILL = "kill"
    WARN = "warn"


@lock.command(epilog="Example: pliska lock run nightly --timeout 60 -- rsync -a data/ backup/")
def run(
    name: NameArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Run as it is, without a shell.")
    ],
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Give up after so long. Default: never."),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Hold it together with others who say --shared.")
    ] = False,
    on_lost: Annotated[
        OnLost, typer.Option(help="What happens to the command when the lock is lost.")
    ] = OnLost.KILL,
    lease: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="The lock is free so long after this is cut off."),
    ] = 10.0,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Run COMMAND while holding the lock NAME.

    COMMAND finds its fencing token in PLISKA_LOCK_TOKEN and the lock's name in
    PLISKA_LOCK_NAME. Signals are passed on to it; it never outlives this
    process. When the lock is lost it gets SIGTERM, and SIGKILL two seconds
    later, or runs on with a warning.

    Exit code: COMMAND's own, or 128 plus the signal that ended it. Else
    6: the lock did not come free in time. 8: the store cannot be reached.
    10: the lock was lost and COMMAND killed. 126, 127: COMMAND cannot be run,
    was not found. 128 plus a signal also when that ended the wait.
    """
    with (
        closing(connect(store)) as backend,
        SignalRelay() as relay,
        Session.open(backend, lease) as session,
    ):
        sides = ReadWriteLock(session, name)
        side = sides.read if shared else sides.write
        try:
            grant = side.acquire(timeout, relay.cancelled)
        except AcquireCancelledError:
            raise typer.Exit(SIGNAL_EXIT_CODE + (relay.received or 0)) from None
        try:
            exit_code = _run_under(grant, name, command, relay, on_lost)
        finally:
            grant.release()
    raise typer.Exit(exit_code)


@lock.command("list", epilog="Example: pliska lock list -o json")
def list_locks(
    output: OutputOption = OutputFormat.TABLE, store: StoreOption = DEFAULT_STORE
) -> None:
    """Show the locks that somebody holds or waits for."""
    with closing(connect(store)) as backend:
        rows = [_summary(backend, name) for name in lock_names(backend)]
    show_rows(output, "locks", ["name", "mode", "holders", "waiting", "owners"], rows)


@lock.command(epilog="Example: pliska lock show nightly")
def show(
    name: NameArgument,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show who holds the lock NAME and who waits for it, in the order in which they came."""
    with closing(connect(store)) as backend:
        queue = lock_queue(backend, name)
    columns = ["state", "mode", "token", "owner", "session"]
    show_rows(output, "contenders", columns, [_row(each) for each in queue])


@lock.command("break", epilog="Example: pliska lock break nightly --token 4711")
def break_(
    name: NameArgument,
    token: Annotated[
        int | None,
        typer.Option(help="Take it from the holder with this token only, as `lock show` tells it."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Take the lock NAME away from those who hold it.

    A holder who is connected knows within a second; one who is not may act on
    until its lease has run out. Exit code 3: nobody holds it.
    """
    with closing(connect(store)) as backend:
        broken = break_lock(backend, name, None if token is None else FencingToken(token))
        if not broken:
            with_token = "" if token is None else f" with token {token}"
            raise LockFreeError(f"nobody holds the lock {name!r}{with_token}: nothing was broken")
    show_rows(output, "broken", ["mode", "token", "owner", "session"], [_row(e) for e in broken])


def _run_under(
    grant: Grant, name: str, command: list[str], relay: SignalRelay, on_lost: OnLost
) -> int:
    environment = {"PLISKA_LOCK_TOKEN": str(grant.token), "PLISKA_LOCK_NAME": name}
    child = Child(command, environment)
    relay.pass_on_to(child)
    is_killed = False

    def lose() -> None:
        nonlocal is_killed
        if on_lost is OnLost.WARN:
            typer.echo(f"warning: the lock {name!r} was lost; the command runs on", err=True)
            return
        is_killed = True
        child.stop(KILL_GRACE_S)

    grant.on_lost(lose)
    exit_code = child.wait()
    if is_killed:
        typer.echo(f"error: the lock {name!r} was lost; the command was killed", err=True)
        return LOST_EXIT_CODE
    return exit_code


def _summary(backend: Backend, name: str) -> dict[str, str | int | list[str]]:
    queue = lock_queue(backend, name)
    holders = [each for each in queue if each.is_holding]
    return {
        "name": name,
        "mode": _mode(holders[0]) if holders else "free",
        "holders": len(holders),
        "waiting": len(queue) - len(holders),
        "owners": [each.owner for each in holders],
    }


def _row(contending: Contending) -> dict[str, str | int | None]:
    return {
        "state": "holds" if contending.is_holding else "waits",
        "mode": _mode(contending),
        "token": contending.token,
        "owner": contending.owner or None,
        "session": contending.session_id,
    }


def _mode(contending: Contending) -> str:
    return "shared" if contending.is_shared else "exclusive"
