"""Operations that somebody left open: finished, called off, overtaken, approved by others."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.registry import (
    Ending,
    MoveUnknownError,
    NotFoundError,
    NotServingError,
    OperationOpenError,
    Outcome,
    Phase,
    RefusedError,
    ServedModel,
    Wait,
)
from pliska.coordinator.registry.rollout import Rollout
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import Backend

Serve = Callable[..., ServedModel[bytes]]
SOON_S = 20.0


@pytest.fixture
def desk(backend: Backend, storage: LocalStorage, desk_on: Any) -> Any:
    """Return a registry in real time, with versions 1 to 3 and `prod` at 2."""
    desk = desk_on(backend, storage, now=lambda: datetime.now(UTC))
    desk.register(1, 2, 3)
    desk.promote(1, 2)
    return desk


class Died(BaseException):
    """A process was killed here."""


class Mortal:
    """A store whose client dies before, or after, its n-th call, and makes no more."""

    def __init__(self, inner: Backend, dies_at: int, *, is_after: bool) -> None:
        self._inner = inner
        self._left = dies_at
        self._is_after = is_after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("get", "list", "transact", "wait_for_change"):
            return method

        def call(*arguments: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._is_after):
                raise Died
            self.calls.append(name)
            result = method(*arguments, **more)
            if self._left == 0:
                raise Died
            return result

        return call


CALLS_MAX = 60
"""More than any of the rollbacks below makes."""


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("how", ["resume", "abort", "again", "another", "emergency"])
def test_whenever_a_coordinator_dies_another_can_go_on(
    desk: Any, serve: Serve, storage: LocalStorage, desk_on: Any, how: str, is_after: bool
) -> None:
    """Death before and after every call; then the alias is at one of two places, whole."""
    served = serve()
    died_at = 0
    for dies_at in range(1, CALLS_MAX):
        desk.promote(3)
        assert served.wait_for_gen(_gen(desk), SOON_S)
        begin = _gen(desk)
        backend = Mortal(desk.backend, dies_at, is_after=is_after)
        mortal = desk_on(backend, storage, now=lambda: datetime.now(UTC))
        request = desk.rollback(op_id=f"{how}-{dies_at}", quarantine=False)
        try:
            mortal.registry.rollback(request)
        except Died:
            died_at = dies_at
        clean_up(desk, how, request)
        check_whole(desk, begin, request)
        assert served.wait_for_gen(_gen(desk), SOON_S)
        assert desk.registry.situation("digits", "prod").operation is None
        if died_at != dies_at:
            break
        if desk.pointed_at() == 3:
            desk.promote(2)
    assert died_at > 8, "the rollback made fewer calls than there are steps"
    assert died_at < CALLS_MAX - 1


def _gen(desk: Any) -> int:
    return desk.registry.situation("digits", "prod").gen


def clean_up(desk: Any, how: str, request: Any) -> None:
    """What a person does about an operation that was left behind, if one was."""
    operations = desk.registry.operations("bob")
    if how == "again":
        assert desk.registry.rollback(request).is_committed
        return
    elsewhere = 1 if desk.pointed_at() != 1 else 2
    if how == "another":
        try:
            desk.registry.promote(desk.promotion(elsewhere))
        except OperationOpenError as open_:
            operations.resume(open_.op_id)
        return
    if how == "emergency":
        desk.registry.promote(desk.promotion(elsewhere, is_emergency=True))
        return
    try:
        _ = operations.resume(request.op_id) if how == "resume" else operations.abort(request.op_id)
    except NotFoundError:
        return  # it died before it had begun
    except RefusedError:
        operations.resume(request.op_id)  # it had moved the alias


def check_whole(desk: Any, begin: int, request: Any) -> None:
    """The operation moved the alias once or never, and what is written down says which."""
    history = desk.registry.log("digits", "prod")
    moves = [entry for entry in history if entry.op_id == request.op_id]
    ended = {each.operation.op_id: each for each in desk.registry.ended("digits", "prod")}
    assert len(moves) <= 1
    if request.op_id in ended:
        assert (ended[request.op_id].ending is Ending.ABORTED) == (not moves)
    else:
        assert not moves
    for entry in history[begin:]:
        assert ended[entry.op_id].gen == entry.gen


def test_an_operation_that_waits_can_be_called_off(desk: Any, serve: Serve) -> None:
    loading = threading.Event()
    served = serve(load=_blocked(loading))
    outcomes: list[Any] = []
    waiting = threading.Thread(
        target=lambda: outcomes.append(desk.registry.promote(desk.promotion(3, op_id="slow")))
    )
    waiting.start()
    operation, ended = _when_open(desk, "slow")
    assert (operation.phase, operation.required, ended) == (Phase.PREPARE, ("n1",), None)
    assert desk.registry.operations("bob").abort("slow").outcome is Outcome.ABORTED
    waiting.join(SOON_S)
    (move,) = outcomes
    assert (move.outcome, move.why) == (Outcome.ABORTED, "called off by bob")
    with pytest.raises(Exception, match="called off by bob") as called_off:
        move.check()
    assert called_off.value.exit_code == 4  # type: ignore[attr-defined]
    assert desk.registry.operations("bob").abort("slow").outcome is Outcome.ABORTED, "again"
    loading.set()
    assert served.current.version == 2


def test_a_second_operation_is_refused_and_names_the_first(desk: Any, serve: Serve) -> None:
    loading = threading.Event()
    serve(load=_blocked(loading))
    waiting = threading.Thread(target=lambda: desk.registry.promote(desk.promotion(3, op_id="one")))
    waiting.start()
    _when_open(desk, "one")
    with pytest.raises(OperationOpenError, match="one") as refused:
        desk.registry.rollback(desk.rollback())
    assert (refused.value.op_id, refused.value.exit_code) == ("one", 4)
    loading.set()
    waiting.join(SOON_S)
    assert desk.pointed_at() == 3


def test_an_equal_operation_joins_and_waits(desk: Any, serve: Serve) -> None:
    loading = threading.Event()
    serve(load=_blocked(loading))
    outcomes: list[Any] = []

    def promote(op_id: str) -> None:
        outcomes.append(desk.registry.promote(desk.promotion(3, op_id=op_id)))

    waiting = [threading.Thread(target=promote, args=(op_id,)) for op_id in ("one", "two")]
    waiting[0].start()
    _when_open(desk, "one")
    waiting[1].start()
    waiting[1].join(0.3)
    assert waiting[1].is_alive()
    loading.set()
    for thread in waiting:
        thread.join(SOON_S)
    assert sorted(move.outcome for move in outcomes) == [Outcome.JOINED, Outcome.MOVED]
    assert {move.op_id for move in outcomes} == {"one"}
    assert _gen(desk) == 3


def test_a_rollback_does_not_follow_one_that_nodes_still_follow(desk: Any, serve: Serve) -> None:
    loading = threading.Event()
    desk.promote(3)
    serve(load=_blocked(loading, version=2))
    emergency = threading.Thread(
        target=lambda: desk.registry.rollback(desk.rollback(is_emergency=True, timeout_s=15))
    )
    emergency.start()
    _when_open(desk, None)
    with pytest.raises(OperationOpenError, match="further back"):
        desk.registry.rollback(desk.rollback())
    assert desk.pointed_at() == 2
    explicit = desk.registry.rollback(desk.rollback(to=1, wait=Wait.NONE))
    assert explicit.to_version == 1, "who names the version means it"
    loading.set()
    emergency.join(SOON_S)


def test_an_operation_past_its_deadline_stands_in_nobodys_way(
    desk: Any, serve: Serve, storage: LocalStorage, desk_on: Any
) -> None:
    loading = threading.Event()
    serve(load=_blocked(loading))
    left_by_the_dead(desk, storage, desk_on, desk.promotion(3, op_id="left", timeout_s=1))
    assert desk.registry.operations("bob").find("left")[1] is None
    loading.set()
    threading.Event().wait(1.1)
    assert desk.registry.promote(desk.promotion(1)).outcome is Outcome.MOVED
    _, ended = desk.registry.operations("bob").find("left")
    assert (ended.ending, ended.why) == (Ending.ABORTED, "another operation took its place")


def test_a_driver_that_was_taken_over_can_do_no_more(
    desk: Any, serve: Serve, storage: LocalStorage, desk_on: Any
) -> None:
    loading = threading.Event()
    serve(load=_blocked(loading))
    outcomes: list[Any] = []
    first = threading.Thread(
        target=lambda: outcomes.append(desk.registry.promote(desk.promotion(3, op_id="one")))
    )
    first.start()
    before, _ = _when_open(desk, "one")
    second = threading.Thread(
        target=lambda: outcomes.append(desk.registry.operations("bob").resume("one"))
    )
    second.start()
    while desk.registry.operations("bob").find("one")[0].epoch == 1:
        second.join(0.02)
    after, _ = desk.registry.operations("bob").find("one")
    assert (before.epoch, after.epoch) == (1, 2)
    assert before.driver.startswith("ann ")
    assert after.driver.startswith("bob ")
    loading.set()
    for thread in (first, second):
        thread.join(SOON_S)
    assert [(move.outcome, move.gen) for move in outcomes] == [(Outcome.MOVED, 3)] * 2


def test_what_is_not_there_cannot_be_found(desk: Any) -> None:
    for attempt in (
        lambda: desk.registry.operations("bob").abort("other"),
        lambda: desk.registry.operations("bob").resume("other"),
    ):
        with pytest.raises(NotFoundError):
            attempt()


def test_a_move_that_was_made_cannot_be_called_off(desk: Any) -> None:
    desk.registry.promote(desk.promotion(3, op_id="made"))
    with pytest.raises(RefusedError, match="roll back instead"):
        desk.registry.operations("bob").abort("made")
    assert desk.registry.operations("bob").resume("made").outcome is Outcome.MOVED


def test_a_lost_answer_to_an_abort_says_to_do_it_again(
    desk: Any, serve: Serve, storage: LocalStorage, desk_on: Any, losing: Any
) -> None:
    loading = threading.Event()
    serve(load=_blocked(loading))
    left_by_the_dead(desk, storage, desk_on, desk.promotion(3, op_id="left"))
    lost = desk_on(losing, storage)
    losing.script = ["applied"]
    with pytest.raises(MoveUnknownError):
        lost.registry.operations("bob").abort("left")
    assert lost.registry.operations("bob").abort("left").outcome is Outcome.ABORTED
    loading.set()


# Approvals.


@pytest.fixture
def publishers(backend: Backend) -> list[Signer]:
    """Three enrolled publishers."""
    signers = []
    for number in range(3):
        private_key = Ed25519PrivateKey.generate()
        public_key = public_bytes(private_key)
        Keyring(backend).enroll(f"publisher{number}", Role.PUBLISHER, public_key)
        signers.append(Signer(private_key, key_id(public_key)))
    return signers


@pytest.fixture
def strict(desk: Any, storage: LocalStorage, desk_on: Any) -> Any:
    """Return the registry with moves that two publishers have to approve of."""
    return desk_on(desk.backend, storage, now=lambda: datetime.now(UTC), approvals_min=2)


def test_a_move_waits_until_enough_publishers_approve(
    strict: Any, publishers: list[Signer], serve: Serve
) -> None:
    outcomes: list[Any] = []
    waiting = threading.Thread(
        target=lambda: outcomes.append(
            strict.registry.promote(strict.promotion(3, op_id="big"), publishers[0])
        )
    )
    waiting.start()
    _when_open(strict, "big")
    operations = strict.registry.operations("bob")
    assert len(operations.approve("big", publishers[0]).approvals) == 1, "a key counts once"
    waiting.join(0.5)
    assert strict.pointed_at() == 2
    operations.approve("big", publishers[1])
    waiting.join(SOON_S)
    assert [move.outcome for move in outcomes] == [Outcome.MOVED]
    assert len(strict.registry.log("digits", "prod")[-1].approvals) == 2
    served = serve(registry=strict.registry)
    assert served.current.version == 3
    with pytest.raises(RefusedError):
        operations.approve("big", publishers[2])


def test_without_waiting_all_approvals_are_needed_at_once(
    strict: Any, publishers: list[Signer]
) -> None:
    for more in ({"wait": Wait.NONE}, {"is_emergency": True}):
        with pytest.raises(RefusedError, match="1 of 2 approvals"):
            strict.registry.promote(strict.promotion(3, **more), publishers[0])
    assert strict.pointed_at() == 2


def test_approvals_that_do_not_come_call_it_off(strict: Any, publishers: list[Signer]) -> None:
    move = strict.registry.promote(strict.promotion(3, timeout_s=1), publishers[0])
    assert (move.outcome, move.is_committed) == (Outcome.ABORTED, False)


def test_a_node_counts_approvals_itself(
    desk: Any, strict: Any, publishers: list[Signer], serve: Serve
) -> None:
    desk.registry.promote(desk.promotion(3), publishers[0])
    with pytest.raises(NotServingError, match="1 of 2 approvals"):
        serve(registry=strict.registry, timeout_s=0.5)


def test_a_revoked_publisher_approves_of_nothing(
    strict: Any, publishers: list[Signer], backend: Backend
) -> None:
    Keyring(backend).revoke("publisher0", "left")
    with pytest.raises(RefusedError, match="0 of 2 approvals"):
        strict.registry.promote(strict.promotion(3, wait=Wait.NONE), publishers[0])


def left_by_the_dead(desk: Any, storage: LocalStorage, desk_on: Any, request: Any) -> None:
    """Begin an operation whose coordinator dies right after that."""

    class DiesAfterTransaction:
        def __getattr__(self, name: str) -> Any:
            return getattr(desk.backend, name)

        def transact(self, *arguments: Any, **more: Any) -> Any:
            desk.backend.transact(*arguments, **more)
            raise Died

    dying = desk_on(DiesAfterTransaction(), storage, now=lambda: datetime.now(UTC))
    with pytest.raises(Died):
        Rollout(dying.registry.namespace, request).carry_out()


def _blocked(gate: threading.Event, version: int = 3) -> Callable[..., bytes]:
    """Load, but version `version` only once the gate is open."""

    def load(loaded: Any) -> bytes:
        assert loaded.version.version != version or gate.wait(SOON_S)
        return loaded.tensors["head"]

    return load


def _when_open(desk: Any, op_id: str | None) -> Any:
    """Wait until an operation is open, and return it."""
    waited = threading.Event()
    for _ in range(1000):
        operation = desk.registry.situation("digits", "prod").operation
        if operation is not None and op_id in (None, operation.record.op_id):
            return desk.registry.operations("bob").find(operation.record.op_id)
        waited.wait(0.02)
    raise AssertionError("no operation was begun")
