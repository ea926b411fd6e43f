"""What `pliska.locks.backends.base.Backend` promises, on every store."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    Absent,
    Backend,
    Change,
    Check,
    ConflictError,
    Create,
    Delete,
    Existing,
    Listing,
    LockUsageError,
    Record,
    Revision,
    Session,
    SessionLostError,
    StoreUnavailableError,
    Unmodified,
    Update,
)
from pliska.locks.backends.base import RECORD_BYTES_MAX, TRANSACTION_OPERATIONS_MAX

Connect = Callable[[], Backend]
NEVER = Revision(0)


@pytest.mark.replicated
def test_a_created_record_is_read_back_by_another_client(
    backend: Backend, connect_store: Connect
) -> None:
    created = backend.create("a/b", b"value")
    assert created.created == created.modified
    assert connect_store().get("a/b") == created


def test_an_absent_record_reads_as_none(backend: Backend) -> None:
    assert backend.get("a/b") is None


def test_creating_what_exists_conflicts_and_changes_nothing(backend: Backend) -> None:
    created = backend.create("a", b"first")
    with pytest.raises(ConflictError):
        backend.create("a", b"second")
    assert backend.get("a") == created


def test_an_update_keeps_the_creation_and_moves_the_modification(backend: Backend) -> None:
    created = backend.create("a", b"1")
    updated = backend.update("a", b"2", created.modified)
    assert updated == Record("a", b"2", created.created, updated.modified)
    assert updated.modified > created.modified
    assert backend.get("a") == updated


@pytest.mark.replicated
def test_an_update_from_an_old_revision_conflicts(backend: Backend) -> None:
    created = backend.create("a", b"1")
    backend.update("a", b"2", created.modified)
    with pytest.raises(ConflictError):
        backend.update("a", b"3", created.modified)
    record = backend.get("a")
    assert record is not None
    assert record.value == b"2"


def test_an_update_of_an_absent_record_conflicts(backend: Backend) -> None:
    with pytest.raises(ConflictError):
        backend.update("a", b"1", Revision(1))
    assert backend.get("a") is None


def test_delete_says_whether_the_record_was_there(backend: Backend) -> None:
    backend.create("a", b"")
    assert backend.delete("a")
    assert not backend.delete("a")
    assert backend.get("a") is None


def test_delete_from_an_old_revision_conflicts(backend: Backend) -> None:
    created = backend.create("a", b"1")
    updated = backend.update("a", b"2", created.modified)
    with pytest.raises(ConflictError):
        backend.delete("a", created.modified)
    assert backend.delete("a", updated.modified)
    with pytest.raises(ConflictError):
        backend.delete("a", updated.modified)


def test_a_record_created_anew_has_a_greater_creation(backend: Backend) -> None:
    first = backend.create("a", b"same")
    backend.delete("a")
    second = backend.create("a", b"same")
    assert second.created > first.created


@pytest.mark.replicated
def test_revisions_only_grow(backend: Backend, connect_store: Connect) -> None:
    clients = [backend, connect_store()]
    revisions = [clients[i % 2].create(f"a/{i}", b"").created for i in range(10)]
    assert revisions == sorted(set(revisions))


def test_a_listing_has_the_direct_children_oldest_first(backend: Backend) -> None:
    for key in ("d/z", "d/a", "d/deep/er", "dd/x", "d/m"):
        backend.create(key, key.encode())
    listing = backend.list("d")
    assert [record.key for record in listing.records] == ["d/z", "d/a", "d/m"]
    assert listing.revision >= max(record.modified for record in listing.records)
    backend.update("d/z", b"", listing.records[0].modified)
    assert [record.key for record in backend.list("d").records] == ["d/z", "d/a", "d/m"]


def test_a_creation_tells_who_is_there_already(
    backend: Backend, open_session: Callable[[], Session]
) -> None:
    session = open_session()
    other = backend.create("queue/other", b"first")
    record, listing = session.backend.create_and_list(
        "queue/own", b"second", session.backend_session
    )
    assert listing is not None
    assert listing.records == (other, record)
    assert listing.revision >= record.created
    assert record.session_id == session.id
    with pytest.raises(ConflictError):
        session.backend.create_and_list("queue/own", b"", session.backend_session)


def test_a_record_of_no_session_is_created_and_listed_too(backend: Backend) -> None:
    record, listing = backend.create_and_list("queue/a", b"value")
    assert listing is not None
    assert listing.records == (record,)


def test_an_empty_directory_lists_nothing(backend: Backend) -> None:
    assert backend.list("nothing").records == ()


def test_the_directories_below_one_are_named(backend: Backend) -> None:
    for key in ("d/a/1", "d/b/deep/er", "d/record", "dd/x/1", "d0/y/1"):
        backend.create(key, b"")
    assert backend.directories("d") == ("a", "b")
    assert backend.directories("d/b") == ("deep",)
    assert backend.directories("nothing") == ()


def test_an_update_leaves_a_record_to_its_session(backend: Backend, connect_store: Connect) -> None:
    session = backend.open_session(30)
    mine = backend.create("d/mine", b"1", session)
    backend.transact([Existing(mine.key, mine.created)], [Update(mine.key, b"2")])
    updated = connect_store().get("d/mine")
    assert updated is not None
    assert (updated.value, updated.created, updated.session_id) == (b"2", mine.created, session.id)
    backend.transact([Existing(mine.key, mine.created)], [Create("d/guarded", b"")])
    session.close(5)
    assert backend.get("d/mine") is None


@pytest.mark.replicated
def test_a_transaction_applies_everything_at_one_revision(backend: Backend) -> None:
    old = backend.create("old", b"1")
    gone = backend.create("gone", b"")
    revision = backend.transact(
        [Unmodified("old", old.modified), Existing("gone", gone.created), Absent("new")],
        [Create("new", b"2"), Update("old", b"3"), Delete("gone")],
    )
    assert backend.get("new") == Record("new", b"2", revision, revision)
    assert backend.get("old") == Record("old", b"3", old.created, revision)
    assert backend.get("gone") is None


REFUSED: list[tuple[list[Check], list[Change]]] = [
    ([Absent("old")], [Create("new", b"")]),
    ([Unmodified("old", Revision(10**9))], [Create("new", b"")]),
    ([Unmodified("none", Revision(1))], [Create("new", b"")]),
    ([Existing("old", Revision(10**9))], [Create("new", b"")]),
    ([Existing("none", Revision(1))], [Create("new", b"")]),
    ([], [Create("new", b""), Create("old", b"")]),
    ([], [Create("new", b""), Update("none", b"")]),
    ([], [Create("new", b""), Delete("none")]),
    ([], [Update("old", b"changed"), Delete("none")]),
    ([], [Delete("old"), Delete("none")]),
]


@pytest.mark.parametrize(("checks", "changes"), REFUSED)
def test_a_refused_transaction_applies_nothing(
    backend: Backend, checks: list[Check], changes: list[Change]
) -> None:
    old = backend.create("old", b"as it was")
    with pytest.raises(ConflictError):
        backend.transact(checks, changes)
    assert backend.get("old") == old
    assert backend.get("new") is None


def test_a_guard_does_not_take_a_record_created_anew_for_the_old_one(backend: Backend) -> None:
    first = backend.create("holder", b"")
    backend.delete("holder")
    backend.create("holder", b"")
    with pytest.raises(ConflictError):
        backend.transact([Existing("holder", first.created)], [Create("write", b"")])


@pytest.mark.replicated
def test_compare_and_set_has_one_winner_for_each_revision(
    backend: Backend, connect_store: Connect
) -> None:
    backend.create("counter", b"0")

    def count(client: Backend) -> None:
        done = 0
        while done < 20:
            record = client.get("counter")
            assert record is not None
            try:
                client.update("counter", b"%d" % (int(record.value) + 1), record.modified)
            except ConflictError:
                continue
            done += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, [backend, backend, connect_store(), connect_store()]))
    record = backend.get("counter")
    assert record is not None
    assert record.value == b"80"


@pytest.mark.replicated
def test_closing_a_session_deletes_its_records_and_no_others(
    backend: Backend, connect_store: Connect
) -> None:
    session, other = backend.open_session(30), backend.open_session(30)
    mine = backend.create("d/mine", b"", session)
    backend.create("d/other", b"", other)
    backend.create("d/nobody", b"")
    assert mine.session_id == session.id
    session.close(5)
    assert [r.key for r in connect_store().list("d").records] == ["d/other", "d/nobody"]
    session.close(5)


@pytest.mark.replicated
def test_a_lease_that_runs_out_deletes_the_records(
    backend: Backend, connect_store: Connect
) -> None:
    session = backend.open_session(0.3)
    record = backend.create("d/mine", b"", session)
    observer = connect_store()
    assert observer.get("d/mine") == record
    deadline_s = time.monotonic() + 5
    while observer.wait_for_change("d/mine", record.modified, 1) and observer.get("d/mine"):
        assert time.monotonic() < deadline_s
    assert observer.list("d").records == ()
    with pytest.raises(SessionLostError):
        session.renew(5)
    with pytest.raises(SessionLostError):
        backend.create("d/again", b"", session)
    session.close(5)


def test_renewal_keeps_a_session_beyond_its_lease(backend: Backend) -> None:
    session = backend.open_session(0.5)
    backend.create("mine", b"", session)
    for _ in range(8):
        assert not backend.wait_for_change("mine", backend.list("mine").revision, 0.1)
        session.renew(5)
    assert backend.get("mine") is not None


def test_a_guard_fails_once_the_session_has_ended(backend: Backend) -> None:
    session = backend.open_session(30)
    mine = backend.create("mine", b"", session)
    backend.transact([Existing("mine", mine.created)], [Create("write/1", b"")])
    session.close(5)
    with pytest.raises(ConflictError):
        backend.transact([Existing("mine", mine.created)], [Create("write/2", b"")])


def test_waiting_returns_at_once_when_the_change_has_happened(backend: Backend) -> None:
    record = backend.create("d/a", b"")
    assert backend.wait_for_change("d/a", Revision(record.modified - 1), 60)
    assert backend.wait_for_change("d", Revision(record.modified - 1), 60)
    backend.delete("d/a")
    assert backend.wait_for_change("d/a", record.modified, 60)
    assert backend.wait_for_change("d", record.modified, 60)


def test_waiting_ends_without_a_change(backend: Backend) -> None:
    backend.create("d/a", b"")
    listing = backend.list("d")
    started_s = time.monotonic()
    assert not backend.wait_for_change("d/a", listing.revision, 0.2)
    assert 0.15 < time.monotonic() - started_s < 2


CHANGES: list[Callable[[Backend], object]] = [
    lambda backend: backend.create("d/new", b""),
    lambda backend: backend.transact([], [Update("d/a", b"2")]),
    lambda backend: backend.delete("d/a"),
]


@pytest.mark.parametrize("change", CHANGES, ids=["create", "update", "delete"])
def test_a_change_by_another_client_wakes_whoever_waits(
    backend: Backend, connect_store: Connect, change: Callable[[Backend], object]
) -> None:
    backend.create("d/a", b"1")
    listing = backend.list("d")
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(backend.wait_for_change, "d", listing.revision, 30)
        change(connect_store())
        assert woken.result(timeout=10)


@pytest.mark.replicated
def test_the_end_of_a_session_wakes_whoever_waits_for_its_record(
    backend: Backend, connect_store: Connect
) -> None:
    session = connect_store().open_session(30)
    backend.create("d/a", b"", session)
    listing = backend.list("d")
    with ThreadPoolExecutor(2) as pool:
        by_key = pool.submit(backend.wait_for_change, "d/a", listing.revision, 30)
        by_directory = pool.submit(backend.wait_for_change, "d", listing.revision, 30)
        session.close(5)
        assert by_key.result(timeout=10)
        assert by_directory.result(timeout=10)


def test_a_change_elsewhere_wakes_nobody(backend: Backend) -> None:
    # A store may take a directory that comes into being for a change beside it.
    for key in ("d/a", "d/b/first", "e/first"):
        backend.create(key, b"")
    revision = backend.list("d").revision
    with ThreadPoolExecutor(2) as pool:
        by_key = pool.submit(backend.wait_for_change, "d/a", revision, 0.5)
        by_directory = pool.submit(backend.wait_for_change, "d", revision, 0.5)
        backend.create("d/b/deep", b"")
        backend.create("e/a", b"")
        assert not by_key.result(timeout=10)
        assert not by_directory.result(timeout=10)


@pytest.mark.replicated
def test_no_change_between_reading_and_waiting_is_missed(
    backend: Backend, connect_store: Connect
) -> None:
    writer, total = connect_store(), 200

    def write() -> None:
        for number in range(total):
            writer.create(f"d/{number}", b"")

    thread = threading.Thread(target=write)
    thread.start()
    listing = backend.list("d")
    while len(listing.records) < total:
        assert backend.wait_for_change("d", listing.revision, 20)
        listing = backend.list("d")
    thread.join()


@pytest.mark.replicated
def test_whoever_waits_and_lists_sees_the_change_that_it_waited_for(
    backend: Backend, connect_store: Connect
) -> None:
    writer = connect_store()
    session = writer.open_session(30)
    with ThreadPoolExecutor(1) as pool:
        for number in range(20):
            key = f"d/{number}"
            owner = session if number % 2 else None
            writer.create(key, b"1", owner)
            for path, change in (
                (key, lambda key=key: writer.transact([], [Update(key, b"2")])),
                ("d", lambda number=number: writer.create(f"d/beside-{number}", b"")),
                (key, lambda key=key: writer.delete(key)),
            ):
                before = backend.list("d")
                seen = pool.submit(changed_listing, backend, path, before)
                change()
                assert seen.result(timeout=20).records == backend.list("d").records
    session.close(5)


def changed_listing(backend: Backend, path: str, before: Listing) -> Listing:
    """The listing of "d" once it is another one than `before`."""
    after = before
    while after.records == before.records:
        seen = backend.wait_and_list(path, after.revision, "d", 30)
        assert seen is not None
        assert seen.revision >= after.revision
        after = seen
    return after


@pytest.mark.replicated
def test_whoever_waits_and_lists_is_not_kept_by_a_change_that_has_happened(
    backend: Backend, connect_store: Connect
) -> None:
    writer = connect_store()
    session = writer.open_session(30)
    for owner in (session, None):
        record = writer.create("d/a", b"1", owner)
        before = backend.list("d")
        writer.transact([], [Update("d/a", b"2")])
        updated = changed_listing(backend, "d/a", before)
        assert [each.value for each in updated.records] == [b"2"]
        writer.delete("d/a")
        deleted = changed_listing(backend, "d/a", updated)
        assert deleted.records == ()
        assert deleted.revision > record.created
    session.close(5)


def test_whoever_waits_and_lists_gets_nothing_without_a_change(backend: Backend) -> None:
    session = backend.open_session(30)
    for owner in (session, None):
        backend.create("d/a", b"", owner)
        listing = backend.list("d")
        for path in ("d/a", "d"):
            started_s = time.monotonic()
            while seen := backend.wait_and_list(path, listing.revision, "d", 0.2):
                assert seen.records == listing.records
            assert 0.15 < time.monotonic() - started_s < 5
            assert backend.wait_and_list(path, listing.revision, "d", 0.0) is None
        backend.delete("d/a")
    session.close(5)


def test_many_threads_wait_and_each_is_woken(backend: Backend, connect_store: Connect) -> None:
    writer, count = connect_store(), 40
    revision = backend.list("d").revision
    with ThreadPoolExecutor(count) as pool:
        waits = [pool.submit(backend.wait_for_change, f"d/{i}", revision, 30) for i in range(count)]
        for i in range(count):
            writer.create(f"d/{i}", b"")
        assert all(wait.result(timeout=20) for wait in waits)


def test_a_value_at_the_limit_is_kept_and_one_byte_more_refused(backend: Backend) -> None:
    backend.create("a", bytes(RECORD_BYTES_MAX))
    record = backend.get("a")
    assert record is not None
    assert len(record.value) == RECORD_BYTES_MAX
    with pytest.raises(LockUsageError, match="at most"):
        backend.create("b", bytes(RECORD_BYTES_MAX + 1))


def test_a_transaction_at_the_limit_is_applied_and_one_more_operation_refused(
    backend: Backend,
) -> None:
    changes = [Create(f"a/{i}", b"") for i in range(TRANSACTION_OPERATIONS_MAX - 1)]
    backend.transact([Absent("b")], changes)
    assert len(backend.list("a").records) == TRANSACTION_OPERATIONS_MAX - 1
    with pytest.raises(LockUsageError, match="operations"):
        backend.transact([Absent("b"), Absent("c")], changes)
    with pytest.raises(LockUsageError, match="at least one change"):
        backend.transact([Absent("b")], [])


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "a\0b", "a\nb", "x" * 513])
def test_a_key_that_some_store_could_not_hold_is_refused(backend: Backend, key: str) -> None:
    with pytest.raises(LockUsageError):
        backend.create(key, b"")
    with pytest.raises(LockUsageError):
        backend.get(key)
    with pytest.raises(LockUsageError):
        backend.list(key)


def test_a_closed_backend_says_so(connect_store: Connect) -> None:
    backend = connect_store()
    backend.create("a", b"")
    backend.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        backend.get("a")
    with pytest.raises(StoreUnavailableError, match="closed"):
        backend.wait_for_change("a", NEVER, 1)
    backend.close()
