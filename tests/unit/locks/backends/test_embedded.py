"""What only the embedded store promises: durability, one machine, its own file (E3, E4, E7)."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliska.locks import (
    Backend,
    Guarantee,
    LockUsageError,
    Revision,
    SessionLostError,
    StoreFormatError,
    StoreUnavailableError,
    connect,
)
from pliska.locks.backends import host
from pliska.locks.backends.embedded_database import Database
from pliska.locks.backends.embedded_schema import APPLICATION_ID, WAL_BYTES_MAX, WAL_PAGES
from pliska.locks.backends.embedded_table import CHANGES_KEPT, REVISIONS_RESERVED
from pliska.locks.backends.host import HostClock

Open = Callable[[], Backend]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def open_store(directory: Path) -> Iterator[Open]:
    backends: list[Backend] = []

    def open_one() -> Backend:
        backends.append(connect(f"embedded:{directory}"))
        return backends[-1]

    yield open_one
    for backend in backends:
        backend.close()


def edit(directory: Path, statement: str, *values: object) -> None:
    """Change the file behind the store's back, from a process of its own.

    Opening it here would drop this process's record locks on it.
    """
    program = (
        "import ast, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "with connection: connection.execute(sys.argv[2], ast.literal_eval(sys.argv[3]))\n"
        "connection.close()\n"
    )
    path = str(directory / "coordination.db")
    subprocess.run([sys.executable, "-c", program, path, statement, repr(values)], check=True)


def test_it_says_what_it_guarantees(open_store: Open) -> None:
    assert open_store().guarantees == {
        Guarantee.LINEARIZABLE_READS,
        Guarantee.DURABLE_WRITES,
        Guarantee.CRASH_DETECTION,
    }


def test_records_outlive_the_last_client(open_store: Open) -> None:
    first = open_store()
    record = first.create("a", b"kept")
    first.close()
    assert open_store().get("a") == record


def test_power_loss_gives_no_revision_twice(open_store: Open, directory: Path) -> None:
    backend = open_store()
    session = backend.open_session(60)
    issued = [backend.create(f"m/{i}", b"", session).created for i in range(50)]
    backend.close()
    # What remains when the writes since the last durable one are lost, and the machine boots.
    edit(directory, "UPDATE store SET revision = 1, boot_id = 'before'")
    after = open_store().create("m/after", b"")
    assert after.created > max(issued)


def test_the_reserve_is_renewed_durably_before_it_runs_out(
    open_store: Open, directory: Path
) -> None:
    backend = open_store()
    edit(directory, "UPDATE store SET revision = reserved - 2")
    session = backend.open_session(60)
    last = [backend.create(f"m/{i}", b"", session).created for i in range(5)][-1]
    with sqlite3.connect(f"file:{directory / 'coordination.db'}?mode=ro", uri=True) as connection:
        revision, reserved = connection.execute("SELECT revision, reserved FROM store").fetchone()
    connection.close()
    assert revision == last
    assert last < reserved <= last + REVISIONS_RESERVED


def test_a_reboot_ends_every_session(open_store: Open, directory: Path) -> None:
    backend = open_store()
    session = backend.open_session(3600)
    backend.create("m/a", b"", session)
    backend.create("kept", b"")
    backend.close()
    edit(directory, "UPDATE store SET boot_id = 'before'")
    after = open_store()
    assert after.list("m").records == ()
    assert after.get("kept") is not None
    with pytest.raises(SessionLostError):
        after.create("m/b", b"", session)


def test_a_client_that_another_clock_took_the_store_from_stops_writing(
    open_store: Open, directory: Path
) -> None:
    backend = open_store()
    session = backend.open_session(60)
    edit(directory, "UPDATE store SET boot_id = 'of another machine'")
    with pytest.raises(StoreFormatError, match="another clock"):
        session.renew(5)
    with pytest.raises(StoreFormatError, match="another clock"):
        backend.create("a", b"")


def test_another_time_namespace_is_refused_while_sessions_live(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = open_store()
    session = here.open_session(60)
    clock = HostClock.of_this_process()
    elsewhere = HostClock(clock.boot_id, "time:[1]")
    monkeypatch.setattr(host.HostClock, "of_this_process", lambda: elsewhere)
    with pytest.raises(LockUsageError, match="time namespace"):
        open_store()
    session.close(5)
    open_store().create("a", b"")


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_was_taken_away_is_noticed(open_store: Open, directory: Path, how: str) -> None:
    backend = open_store()
    backend.create("a", b"")
    path = directory / "coordination.db"
    if how == "deleted":
        shutil.rmtree(directory)
    else:
        path.rename(directory / "old.db")
        path.write_bytes(b"")
    for call in (
        lambda: backend.get("a"),
        lambda: backend.create("b", b""),
        lambda: backend.wait_for_change("a", Revision(10), 1),
    ):
        with pytest.raises(StoreFormatError, match="deleted or replaced"):
            call()


def test_a_newer_schema_is_refused(open_store: Open, directory: Path) -> None:
    open_store().close()
    edit(directory, "PRAGMA user_version = 2")
    with pytest.raises(StoreFormatError, match="schema version 2"):
        open_store()


def test_another_programs_database_is_refused_and_left_alone(
    open_store: Open, directory: Path
) -> None:
    directory.mkdir()
    edit(directory, "CREATE TABLE theirs (x)")
    before = (directory / "coordination.db").read_bytes()
    with pytest.raises(StoreFormatError, match="another program"):
        open_store()
    assert (directory / "coordination.db").read_bytes() == before
    assert APPLICATION_ID.to_bytes(4, "big") == b"PLSK"


def test_a_file_that_is_no_database_is_refused(open_store: Open, directory: Path) -> None:
    directory.mkdir()
    (directory / "coordination.db").write_bytes(b"not a database, but long enough for one" * 100)
    with pytest.raises(StoreFormatError, match="no database"):
        open_store()


def test_a_damaged_database_is_an_error_of_ours(open_store: Open, directory: Path) -> None:
    backend = open_store()
    for number in range(200):
        backend.create(f"a/{number}", bytes(1000))
    backend.close()
    path = directory / "coordination.db"
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    with pytest.raises(StoreFormatError, match="damaged"):  # noqa: PT012 - whichever reads it first
        damaged = open_store()
        damaged.list("a")
        damaged.create("b", b"")


def test_the_write_ahead_log_stays_bounded(open_store: Open, directory: Path) -> None:
    backend = open_store()
    session = backend.open_session(60)
    for number in range(2_000):
        backend.create(f"a/{number}", bytes(4_000), session)
    wal_bytes = (directory / "coordination.db-wal").stat().st_size
    assert wal_bytes <= max(WAL_BYTES_MAX, 2 * WAL_PAGES * 4096)


def test_the_change_log_is_pruned_and_whoever_waits_from_before_reads_again(
    open_store: Open, directory: Path
) -> None:
    backend = open_store()
    stands = backend.create("stands", b"")
    gone = backend.create("d/gone", b"")
    backend.delete("d/gone")
    # As if so many changes had come in between.
    edit(directory, "UPDATE store SET revision = ?, reserved = 99999", CHANGES_KEPT + 999)
    session = backend.open_session(60)
    backend.create("elsewhere", b"", session)
    with sqlite3.connect(f"file:{directory / 'coordination.db'}?mode=ro", uri=True) as connection:
        assert connection.execute("SELECT count(*) FROM changes").fetchone()[0] == 1
    connection.close()
    assert backend.wait_for_change("d", gone.created, 0.05), "the log cannot tell: read again"
    assert not backend.wait_for_change("stands", stands.modified, 0.05), "it stands unmodified"
    assert not backend.wait_for_change("never", Revision(0), 0.05), "there was and is none"


def test_a_database_at_its_limit_of_idle_connections_closes_the_rest(directory: Path) -> None:
    directory.mkdir()
    database = Database(directory, 5)
    with database.connection() as first, database.connection() as second:
        assert first is not second
    with database.connection() as again:
        assert again in (first, second)
    database.close()
    database.close()
    with pytest.raises(StoreUnavailableError, match="closed"), database.connection():
        pass
    with pytest.raises(sqlite3.ProgrammingError):
        first.execute("SELECT 1")


def test_a_failed_transaction_leaves_the_connection_usable(open_store: Open) -> None:
    backend = open_store()
    session = backend.open_session(60)
    session.close(5)
    for _ in range(3):
        with pytest.raises(SessionLostError):
            backend.create("a", b"", session)
    assert backend.get("a") is None
    backend.create("a", b"")
