import threading

import pytest

from pliska.locks import ManualClock, Revision, SessionLostError
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import CHANGES_KEPT, MemoryStore


def test_a_lease_ends_only_when_the_clock_is_moved() -> None:
    clock = ManualClock()
    backend = MemoryBackend(MemoryStore(clock))
    session = backend.open_session(5)
    record = backend.create("d/a", b"", session)
    woken: list[bool] = []
    thread = threading.Thread(
        target=lambda: woken.append(backend.wait_for_change("d", record.modified, 60))
    )
    thread.start()
    clock.advance(4.9)
    assert backend.get("d/a") == record
    clock.advance(0.2)
    thread.join(10)
    assert woken == [True]
    assert backend.get("d/a") is None
    with pytest.raises(SessionLostError):
        session.renew(1)


def test_whoever_waits_from_before_the_log_reads_again() -> None:
    backend = MemoryBackend(MemoryStore())
    first = backend.create("a", b"")
    stands = backend.create("stands", b"")
    for _ in range(CHANGES_KEPT // 2 + 1):
        backend.create("b", b"")
        backend.delete("b")
    assert backend.wait_for_change("gone/d", first.modified, 0.05)
    assert not backend.wait_for_change("stands", stands.modified, 0.05)
    assert not backend.wait_for_change("never", Revision(0), 0.05)
