"""Moves on a real store: two at once, answers that get lost, and deciding on stale ground."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pliska.coordinator.registry import (
    AliasMovedError,
    IntegrityError,
    MoveUnknownError,
    NotFoundError,
    Outcome,
    RefusedError,
    Registry,
    RegistryUsageError,
    State,
)
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import OutcomeUnknownError, StoreUnavailableError, connect


@pytest.fixture
def three(desk: Any) -> Any:
    """Return a registry in which `prod` pointed at 1, 2 and 3."""
    desk.register(1, 2, 3)
    desk.promote(1, 2, 3)
    return desk


@pytest.fixture
def calm(three: Any) -> Any:
    """Return the same registry under another name, for what happens meanwhile."""
    return three


@pytest.fixture
def hasty(three: Any, interrupted: Any, storage: LocalStorage, desk_on: Any) -> Any:
    """Return the registry on a connection whose transactions can be held up."""
    return desk_on(interrupted, storage)


def meet_before_sending(hasty: Any, parties: int) -> None:
    """Let nobody send a first transaction until `parties` have decided theirs."""
    barrier = threading.Barrier(parties)
    waited = threading.local()

    def meet() -> None:
        if not getattr(waited, "done", False):
            waited.done = True
            barrier.wait(timeout=20)

    hasty.backend.before = meet


def test_a_rollback_quarantines_what_it_leaves_in_the_same_move(three: Any) -> None:
    move = three.registry.rollback(three.rollback())
    assert (move.outcome, move.from_version, move.to_version, move.gen) == (
        Outcome.MOVED,
        3,
        2,
        4,
    )
    assert move.quarantined == (3,)
    states = [version.state for version in three.registry.versions("digits")]
    assert states == [State.READY, State.READY, State.QUARANTINED]
    with pytest.raises(RefusedError):
        three.promote(3)


def test_without_quarantine_the_version_stays_ready(three: Any) -> None:
    assert three.registry.rollback(three.rollback(quarantine=False)).quarantined == ()
    three.promote(3)
    assert three.pointed_at() == 3


def test_a_dry_run_says_the_absolute_target_and_changes_nothing(three: Any) -> None:
    before = three.backend.list("registry/default/aliases/digits")
    move = three.registry.plan(three.rollback(steps=2))
    assert (move.outcome, move.to_version, move.gen, move.quarantined) == (
        Outcome.PLANNED,
        1,
        4,
        (3,),
    )
    assert three.backend.list("registry/default/aliases/digits") == before
    assert three.registry.versions("digits")[2].state is State.READY


def test_two_rollbacks_at_once_move_one_step(hasty: Any) -> None:
    meet_before_sending(hasty, 2)
    with ThreadPoolExecutor(2) as pool:
        moves = list(pool.map(lambda _: hasty.registry.rollback(hasty.rollback()), range(2)))
    assert sorted(move.outcome for move in moves) == [Outcome.JOINED, Outcome.MOVED]
    assert len({move.op_id for move in moves}) == 1
    assert [entry.to_version for entry in hasty.registry.log("digits", "prod")] == [1, 2, 3, 2]


def test_of_two_that_expect_the_same_generation_one_is_refused(hasty: Any) -> None:
    meet_before_sending(hasty, 2)

    def attempt(_: int) -> AliasMovedError | None:
        try:
            hasty.registry.rollback(hasty.rollback(expect_gen=3))
        except AliasMovedError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        (refused,) = filter(None, pool.map(attempt, range(2)))
    assert (refused.gen, refused.exit_code) == (4, 4)
    assert hasty.pointed_at() == 2


def test_a_promotion_in_between_makes_the_rollback_a_conflict(calm: Any, hasty: Any) -> None:
    calm.register(4)
    hasty.backend.once(lambda: calm.promote(4))
    with pytest.raises(AliasMovedError, match="generation 4"):
        hasty.registry.rollback(hasty.rollback())
    assert calm.pointed_at() == 4
    assert calm.registry.versions("digits")[2].state is State.READY


def test_a_version_back_under_the_alias_does_not_pass_for_the_old_generation(three: Any) -> None:
    three.promote(1, 3)
    with pytest.raises(AliasMovedError):
        three.registry.promote(three.promotion(2, expect_gen=3))
    assert three.pointed_at() == 3


def test_a_target_quarantined_in_between_is_not_moved_to(calm: Any, hasty: Any) -> None:
    calm.promote(2, alias="stage")
    calm.promote(1, 2, alias="stage")
    hasty.backend.once(lambda: calm.registry.rollback(calm.rollback(alias="stage")))
    move = hasty.registry.rollback(hasty.rollback())
    assert (move.from_version, move.to_version) == (3, 1)


def test_many_at_once_keep_the_history_whole(three: Any) -> None:
    def act(index: int) -> None:
        try:
            if index % 3 == 0:
                three.registry.rollback(three.rollback(quarantine=False))
            else:
                three.promote(index % 3)
        except (AliasMovedError, RefusedError):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(60)))
    history = three.registry.log("digits", "prod")
    assert [entry.gen for entry in history] == list(range(1, len(history) + 1))


class Lost:
    """A desk on a store that loses answers; `three` versions were promoted before."""

    def __init__(self, desk: Any, losing: Any, storage: LocalStorage, desk_on: Any) -> None:
        self.calm = desk
        self.losing = losing
        self.desk = desk_on(losing, storage)


@pytest.fixture
def lost(three: Any, losing: Any, storage: LocalStorage, desk_on: Any) -> Lost:
    return Lost(three, losing, storage, desk_on)


@pytest.mark.parametrize(
    "script",
    [
        ["applied"],
        ["dropped"],
        ["dropped", "dropped", "applied"],
        ["dropped", "ok"],
    ],
)
def test_a_lost_answer_is_found_out_and_the_alias_moves_once(lost: Lost, script: list[str]) -> None:
    lost.losing.script = script
    move = lost.desk.registry.rollback(lost.desk.rollback())
    assert (move.outcome, move.to_version, move.gen) == (Outcome.MOVED, 2, 4)
    assert [entry.to_version for entry in lost.calm.registry.log("digits", "prod")] == [1, 2, 3, 2]


def test_a_dropped_move_that_somebody_overtook_is_a_conflict(lost: Lost) -> None:
    transact = lost.losing.transact

    def overtaken(*_: Any, **__: Any) -> None:
        lost.losing.transact = transact
        lost.calm.promote(1)
        raise OutcomeUnknownError("the connection broke")

    lost.losing.transact = overtaken
    with pytest.raises(AliasMovedError):
        lost.desk.registry.rollback(lost.desk.rollback())
    assert lost.calm.pointed_at() == 1


@pytest.mark.parametrize("fate", ["applied", "dropped"])
def test_where_the_store_cannot_say_the_operation_can_be_repeated_by_its_id(
    lost: Lost, fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost.losing.script = [fate]
    transact = lost.losing.transact

    def cut_off(*arguments: Any, **more: Any) -> Any:
        lost.losing.is_readable = False
        return transact(*arguments, **more)

    lost.losing.transact = cut_off
    monkeypatch.setattr("pliska.coordinator.registry.driver.PATIENCE_S", 0.5)
    with pytest.raises(MoveUnknownError) as unknown:
        lost.desk.registry.rollback(lost.desk.rollback())
    assert unknown.value.exit_code == 9
    assert unknown.value.op_id in str(unknown.value)
    repeated = lost.calm.rollback(op_id=unknown.value.op_id)
    move = lost.calm.registry.rollback(repeated)
    assert (move.outcome, move.to_version, move.gen) == (Outcome.MOVED, 2, 4)
    assert lost.calm.registry.rollback(repeated).gen == 4
    assert lost.calm.pointed_at() == 2


def test_no_answer_that_keeps_being_lost_is_waited_for_for_ever(lost: Lost) -> None:
    lost.losing.script = ["dropped"] * 1000
    with pytest.raises(MoveUnknownError):
        lost.desk.registry.rollback(lost.desk.rollback())
    assert lost.calm.pointed_at() == 3


def test_an_unreachable_store_is_known_not_to_have_moved(lost: Lost) -> None:
    lost.losing.script = ["refused"]
    with pytest.raises(StoreUnavailableError) as unreachable:
        lost.desk.registry.rollback(lost.desk.rollback())
    assert unreachable.value.exit_code == 8
    assert lost.calm.pointed_at() == 3


def test_an_operation_id_means_one_kind_of_move(three: Any) -> None:
    three.registry.rollback(three.rollback(op_id="mine"))
    with pytest.raises(AliasMovedError):
        three.registry.promote(three.promotion(1, op_id="mine"))


@pytest.mark.parametrize("file", ["tensors", "manifests"])
def test_a_damaged_target_is_refused_before_anything_moves(
    three: Any, tmp_path: Any, file: str
) -> None:
    for path in (tmp_path / "artifacts" / "default" / file).rglob("*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
    for attempt in (
        lambda: three.registry.rollback(three.rollback()),
        lambda: three.registry.plan(three.rollback()),
        lambda: three.promote(1),
    ):
        with pytest.raises(IntegrityError):
            attempt()
    assert three.pointed_at() == 3


def test_what_is_not_there_is_not_found(desk: Any) -> None:
    for attempt in (
        lambda: desk.promote(1),
        lambda: desk.registry.rollback(desk.rollback()),
        lambda: desk.registry.log("digits", "prod"),
    ):
        with pytest.raises(NotFoundError):
            attempt()


@pytest.mark.parametrize(
    "fields",
    [
        {"alias": "latest"},
        {"alias": "../prod"},
        {"actor": ""},
        {"actor": "a" * 129},
        {"actor": "ann\nforged line"},
        {"reason": ""},
        {"reason": "x" * 1001},
        {"reason": "\x1b[31mred"},
        {"op_id": ""},
        {"op_id": "x" * 65},
        {"steps": 0},
        {"steps": 1001},
        {"to": 0},
        {"to": 1, "steps": 2},
        {"expect_gen": -1},
    ],
)
def test_a_request_out_of_its_bounds_is_the_callers_mistake(
    desk: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(RegistryUsageError):
        desk.rollback(**fields)


def test_bounds_are_included(desk: Any) -> None:
    desk.rollback(actor="a" * 128, reason="x" * 1000, op_id="x" * 64, steps=1000, expect_gen=0)


def test_two_namespaces_move_apart(
    storage: LocalStorage, tensors: Callable[[int], Any], desk: Any
) -> None:
    backend = connect("memory:")
    for namespace in ("red", "blue"):
        registry = Registry(backend, storage, namespace)
        registry.register("digits", tensors(1), actor="ann")
        registry.register("digits", tensors(2), actor="ann")
        registry.promote(desk.promotion(1 if namespace == "red" else 2))
    pointed = {
        namespace: Registry(backend, storage, namespace).log("digits", "prod")[-1].to_version
        for namespace in ("red", "blue")
    }
    assert pointed == {"red": 1, "blue": 2}
