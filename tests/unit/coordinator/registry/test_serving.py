"""A serving process among promotions, rollbacks, failures and attacks; real threads and files."""

import dataclasses
import errno
import struct
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.errors import StorageFullError
from pliska.coordinator.registry import (
    IntegrityError,
    NotServingError,
    Outcome,
    RefusedError,
    RegistryUsageError,
    ServedModel,
    Wait,
    WhenStale,
)
from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend, connect

Serve = Callable[..., ServedModel[bytes]]
KEYS = Keys("default")
SOON_S = 20.0


def real_time() -> datetime:
    return datetime.now(UTC)


def head(number: int) -> bytes:
    """What a node makes of version `number`."""
    return struct.pack("<2f", number, number + 0.5)


@pytest.fixture
def desk(backend: Backend, storage: LocalStorage, desk_on: Any) -> Any:
    """Return a registry in real time: deadlines have to pass."""
    return desk_on(backend, storage, now=real_time)


@pytest.fixture
def two(desk: Any) -> Any:
    """Return a registry with versions 1, 2 and 3, and `prod` at 1."""
    desk.register(1, 2, 3)
    desk.promote(1)
    return desk


def test_it_serves_what_the_alias_points_at_and_switches_with_it(two: Any, serve: Serve) -> None:
    served = serve()
    before = served.current
    assert (before.model, before.version, before.gen, before.stale) == (head(1), 1, 1, "")
    move = two.registry.promote(two.promotion(2))
    assert (move.outcome, move.nodes, move.gen) == (Outcome.MOVED, 1, 2)
    after = served.current
    assert (after.model, after.version, after.gen) == (head(2), 2, 2)
    assert (before.model, before.version) == (head(1), 1), "a reader keeps the model it was given"
    assert two.registry.rollback(two.rollback()).outcome is Outcome.MOVED
    assert served.current.version == 1


def test_the_next_model_is_loaded_while_the_old_one_serves(two: Any, serve: Serve) -> None:
    loading, may_go_on = threading.Event(), threading.Event()

    def load(loaded: Any) -> bytes:
        if loaded.version.version == 2:
            loading.set()
            assert may_go_on.wait(SOON_S)
        return loaded.tensors["head"]

    served = serve(load=load)
    promoting = threading.Thread(target=lambda: two.promote(2))
    promoting.start()
    assert loading.wait(SOON_S)
    assert (served.current.version, served.current.stale) == (1, "")
    assert two.pointed_at() == 1
    may_go_on.set()
    promoting.join(SOON_S)
    assert served.current.version == 2


def test_a_model_that_cannot_be_loaded_calls_the_promotion_off(two: Any, serve: Serve) -> None:
    def load(loaded: Any) -> bytes:
        if loaded.version.version == 2:
            raise ValueError("shapes\ndo not fit")
        return loaded.tensors["head"]

    serve("n1")
    served = serve("n2", load=load)
    move = two.registry.promote(two.promotion(2))
    assert (move.outcome, move.failed, move.is_committed) == (Outcome.ABORTED, ("n2",), False)
    with pytest.raises(Exception, match="n2") as called_off:
        move.check()
    assert called_off.value.exit_code == 7  # type: ignore[attr-defined]
    assert (served.current.version, served.current.stale) == (1, "")
    _, n2 = two.registry.situation("digits", "prod").nodes
    assert n2.ack.why == "cannot load version 2: ValueError: shapes do not fit"
    assert two.registry.promote(two.promotion(3)).outcome is Outcome.MOVED


def test_a_quorum_goes_on_without_the_node_that_fails(two: Any, serve: Serve) -> None:
    def load(loaded: Any) -> bytes:
        if loaded.version.version == 2:
            raise MemoryError
        return loaded.tensors["head"]

    nodes = [serve("n1"), serve("n2"), serve("n3", load=load)]
    move = two.registry.promote(two.promotion(2, wait=Wait.QUORUM))
    assert (move.outcome, move.failed) == (Outcome.DEGRADED, ("n3",))
    assert move.check() is move, "more than half is what was asked for"
    assert [node.current.version for node in nodes] == [2, 2, 1]
    assert _until(lambda: "MemoryError" in nodes[2].current.stale)
    assert not two.registry.situation("digits", "prod").is_settled


def test_previous_skips_what_a_node_could_not_serve(two: Any, serve: Serve) -> None:
    def load(loaded: Any) -> bytes:
        if loaded.version.version == 2:
            raise MemoryError
        return loaded.tensors["head"]

    for node, loads in (("n1", {}), ("n2", {}), ("n3", {"load": load})):
        serve(node, **loads)
    two.registry.promote(two.promotion(2, wait=Wait.QUORUM))
    two.promote(3)
    assert two.registry.rollback(two.rollback()).to_version == 1


def test_a_node_that_is_late_calls_the_promotion_off_at_the_deadline(
    two: Any, serve: Serve
) -> None:
    may_go_on = threading.Event()

    def load(loaded: Any) -> bytes:
        assert loaded.version.version == 1 or may_go_on.wait(SOON_S)
        return loaded.tensors["head"]

    served = serve(load=load)
    move = two.registry.promote(two.promotion(2, timeout_s=1))
    assert (move.outcome, move.late, move.is_committed) == (Outcome.ABORTED, ("n1",), False)
    with pytest.raises(Exception, match="n1") as late:
        move.check()
    assert late.value.exit_code == 6  # type: ignore[attr-defined]
    may_go_on.set()
    assert served.current.version == 1
    assert two.pointed_at() == 1


def test_an_emergency_does_not_wait_and_says_who_lags(two: Any, serve: Serve) -> None:
    may_go_on = threading.Event()

    def load(loaded: Any) -> bytes:
        assert loaded.version.version == 1 or may_go_on.wait(SOON_S)
        return loaded.tensors["head"]

    stays = serve("n1", load=load)
    stops = serve("n2", load=load, when_stale=WhenStale.STOP)
    move = two.registry.promote(two.promotion(2, timeout_s=1, is_emergency=True))
    assert (move.outcome, move.late, move.is_committed) == (Outcome.DEGRADED, ("n1", "n2"), True)
    with pytest.raises(Exception, match="stays so"):
        move.check()
    assert two.pointed_at() == 2
    assert (stays.current.version, "generation 2" in stays.current.stale) == (1, True)
    with pytest.raises(NotServingError, match="generation 2"):
        _ = stops.current
    may_go_on.set()
    for node in (stays, stops):
        assert node.wait_for_gen(2, SOON_S)
        assert (node.current.version, node.current.stale) == (2, "")


def is_serving_thread() -> bool:
    """Whether it is the node that reads, in one of its lanes, and not who promotes."""
    return threading.current_thread().name.startswith("pliska-serving")


def test_a_load_that_nobody_wants_any_more_is_given_up(
    two: Any, serve: Serve, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.coordinator.registry.node.WANTED_CHECK_S", 0.0)
    reading, may_go_on = threading.Event(), threading.Event()
    loads = []

    def load(loaded: Any) -> bytes:
        loads.append(loaded.version.version)
        return loaded.tensors["head"]

    served = serve(load=load)
    read = served._node._parts.blobs.read_tensor

    def slow(entry: Any) -> bytes:
        if entry.name == "frozen" and is_serving_thread():
            reading.set()
            assert may_go_on.wait(SOON_S)
        return read(entry)

    monkeypatch.setattr(served._node._parts.blobs, "read_tensor", slow)
    promoting = threading.Thread(
        target=lambda: two.registry.promote(two.promotion(2, op_id="given-up"))
    )
    promoting.start()
    assert reading.wait(SOON_S)
    assert two.registry.operations("bob").abort("given-up").outcome is Outcome.ABORTED
    may_go_on.set()
    promoting.join(SOON_S)
    two.promote(3)
    assert served.current.version == 3
    assert loads == [1, 3]


def test_it_holds_only_what_it_serves_or_prepares(two: Any, serve: Serve) -> None:
    served = serve()
    for version in (2, 3, 1):
        two.promote(version)
    assert served.wait_for_gen(4, SOON_S)
    assert _until(lambda: len(two.registry.situation("digits", "prod").nodes[0].loaded) == 1)


def test_a_canary_gets_its_share_and_the_rest_stays(two: Any, serve: Serve) -> None:
    served = serve()
    move = two.registry.promote(two.promotion(2, canary_percent=25))
    assert (move.to_version, move.canary.version) == (1, 2)
    drawn = [served.draw(point / 100) for point in range(100)]
    assert [each.version for each in drawn] == [2] * 25 + [1] * 75
    assert all(each.is_canary == (each.version == 2) and each.gen == 2 for each in drawn)
    assert served.current.version == 1
    back = two.registry.rollback(two.rollback())
    assert (back.to_version, back.canary, back.quarantined) == (1, None, (2,))
    assert {served.draw(point / 100).version for point in range(100)} == {1}
    with pytest.raises(RegistryUsageError):
        served.draw(1.0)


def test_it_needs_something_to_serve(desk: Any, serve: Serve) -> None:
    desk.register(1)
    with pytest.raises(NotServingError, match="never set") as refused:
        serve(timeout_s=0.3)
    assert refused.value.exit_code == 7


def test_the_first_promotion_is_prepared_too(desk: Any, serve: Serve) -> None:
    desk.register(1)
    starting = threading.Thread(target=lambda: serve(timeout_s=SOON_S))
    starting.start()
    assert _until(lambda: desk.registry.situation("digits", "prod").nodes)
    move = desk.registry.promote(desk.promotion(1))
    starting.join(SOON_S)
    assert (move.outcome, move.nodes) == (Outcome.MOVED, 1)


def test_a_second_process_with_the_same_state_is_refused(
    two: Any, serve: Serve, tmp_path: Path
) -> None:
    serve(state=tmp_path / "shared")
    with pytest.raises(RefusedError, match="directory of its own"):
        serve(state=tmp_path / "shared")


# What an attacker with the store, or an accident, could do to an alias.


def replace_alias(desk: Any, **fields: Any) -> None:
    """Write an alias and its newest entry as somebody with the store could."""
    history = desk.registry.log("digits", "prod")
    entry = dataclasses.replace(history[-1], **fields)
    _put(desk, KEYS.history_entry("digits", "prod", entry.gen), entry.to_bytes())
    _put(desk, KEYS.alias("digits", "prod"), AliasRecord.after(entry).to_bytes())


def _put(desk: Any, key: str, value: bytes) -> None:
    found = desk.backend.get(key)
    desk.backend.update(key, value, found.modified)


def go_back(desk: Any) -> None:
    """Restore the alias and history of generation 1."""
    desk.promote(2)
    first = desk.registry.log("digits", "prod")[0]
    _put(desk, KEYS.alias("digits", "prod"), AliasRecord.after(first).to_bytes())
    desk.backend.delete(KEYS.history_entry("digits", "prod", 2))


def test_a_lower_generation_is_refused_also_after_a_restart(
    two: Any, serve: Serve, tmp_path: Path
) -> None:
    served = serve()
    go_back(two)
    assert _until(lambda: "went back from generation 2 to 1" in served.current.stale)
    assert served.current.version == 2
    served.close()
    with pytest.raises(NotServingError, match="went back from generation 2 to 1"):
        serve(timeout_s=0.3)


def test_a_fork_is_refused_also_after_a_restart(two: Any, serve: Serve) -> None:
    served = serve()
    version = two.registry.versions("digits")[1]
    replace_alias(two, to_version=2, manifest_digest=version.manifest_digest)
    assert _until(lambda: "not the one that was accepted" in served.current.stale)
    assert served.current.version == 1
    served.close()
    with pytest.raises(NotServingError, match="not the one that was accepted"):
        serve(timeout_s=0.3)


def test_a_history_that_was_changed_is_not_followed(two: Any, serve: Serve) -> None:
    served = serve()
    served.close()
    two.promote(2)
    replace_alias(two, prev_hash="sha256:" + "1" * 64)
    with pytest.raises(NotServingError, match="does not follow"):
        serve(timeout_s=0.3)


def test_an_alias_that_was_removed_stops_nobody(two: Any, serve: Serve) -> None:
    served = serve()
    two.backend.delete(KEYS.alias("digits", "prod"))
    assert _until(lambda: "the alias is gone" in served.current.stale)
    assert served.current.version == 1


def test_an_alias_that_expired_is_not_followed(
    two: Any, serve: Serve, storage: LocalStorage, desk_on: Any
) -> None:
    two.registry.promote(two.promotion(2, valid_for_s=60))
    serve("early")
    long_after = desk_on(two.backend, storage, now=lambda: real_time() + timedelta(minutes=2))
    with pytest.raises(NotServingError, match="expired at"):
        serve("late", registry=long_after.registry, timeout_s=0.3)
    assert two.registry.promote(two.promotion(2, valid_for_s=60)).gen == 3, "a renewal"


def test_records_that_are_not_ours_stop_nobody(two: Any, serve: Serve) -> None:
    served = serve()
    for value in (b"", b"{}", b"\x80\x04K\x01."):
        _put(two, KEYS.alias("digits", "prod"), value)
        assert _until(lambda: served.current.stale)
        assert served.current.version == 1


def test_a_damaged_target_is_not_loaded(
    two: Any, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    real = served._node._parts.blobs.read_tensor
    damaged = {two.registry.manifest(two.registry.versions("digits")[1]).tensors[1].digest}

    def read(entry: Any) -> bytes:
        if entry.digest in damaged and is_serving_thread():
            raise IntegrityError(f"{entry.name}: its stored bytes have another digest")
        return real(entry)

    monkeypatch.setattr(served._node._parts.blobs, "read_tensor", read)
    move = two.registry.promote(two.promotion(2))
    assert (move.outcome, move.failed) == (Outcome.ABORTED, ("n1",))
    assert served.current.version == 1


def test_a_full_disk_keeps_the_running_model(
    two: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()

    def full(*_: Any) -> None:
        raise StorageFullError(f"cannot write: {errno.errorcode[errno.ENOSPC]}")

    with monkeypatch.context() as disk:
        disk.setattr(served._accepted._storage, "write", full)
        two.promotion(2)
        moved = threading.Thread(
            target=lambda: two.registry.promote(two.promotion(2, wait=Wait.NONE))
        )
        moved.start()
        moved.join(SOON_S)
        assert _until(lambda: "ENOSPC" in served.current.stale)
        assert (served.current.version, served.current.gen) == (1, 1)
    assert served.wait_for_gen(2, SOON_S)


# The lease.


def test_a_lost_lease_is_said_or_stops_it_and_it_comes_back(two: Any, serve: Serve) -> None:
    says, stops = serve("n1"), serve("n2", when_stale=WhenStale.STOP)
    for served in (says, stops):
        session = served._presence._session
        session._end("the test ended it")
    assert says.current.stale == "its lease in the store was lost"
    with pytest.raises(NotServingError, match="lease"):
        _ = stops.current
    for served in (says, stops):
        assert _until(lambda served=served: served._stale(served._standing) == "")
    two.promote(2)
    assert [served.current.version for served in (says, stops)] == [2, 2]
    assert {node.node for node in two.registry.situation("digits", "prod").nodes} == {"n1", "n2"}


def test_a_dead_node_is_not_waited_for(two: Any, serve: Serve) -> None:
    serve("n1")
    serve("n2").close()
    move = two.registry.promote(two.promotion(2))
    assert (move.outcome, move.nodes) == (Outcome.MOVED, 1)


def test_a_name_that_cannot_be_a_node_is_refused(two: Any, serve: Serve) -> None:
    with pytest.raises(RegistryUsageError):
        serve("../n1")


def test_an_error_of_ours_is_not_hidden(
    two: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve()

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(served._node, "take", fail)
        two.registry.promote(two.promotion(2, wait=Wait.NONE))
        assert _until(lambda: "internal error: a bug" in served.current.stale)
    assert served.wait_for_gen(2, SOON_S)
    assert _until(lambda: not served.current.stale)


def _until(holds: Callable[[], object]) -> bool:
    """Wait until something holds that no event announces."""
    waited = threading.Event()
    for _ in range(int(SOON_S / 0.02)):
        if holds():
            return True
        waited.wait(0.02)
    return False


def test_two_stores_do_not_meet(
    two: Any, serve: Serve, storage: LocalStorage, desk_on: Any
) -> None:
    serve()
    other = desk_on(connect("memory:"), storage)
    other.register(1)
    assert other.registry.situation("digits", "prod").nodes == ()
