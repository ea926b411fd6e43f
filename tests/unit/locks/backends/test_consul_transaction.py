import pytest

from pliska.locks import (
    Absent,
    Change,
    Check,
    ConflictError,
    Create,
    Delete,
    Existing,
    Revision,
    SessionLostError,
    StoreFormatError,
    StoreUnavailableError,
    Unmodified,
    Update,
)
from pliska.locks.backends.consul_pair import GO_LOCK_FLAGS, flags_from, record_of
from pliska.locks.backends.consul_transaction import Operation, operations, unbound_keys

FLAGS = flags_from(5)
VALUE = {"Value": "dg==", "Flags": FLAGS}


def bodies(
    checks: list[Check], changes: list[Change], **pins: Revision
) -> list[tuple[str, str, object]]:
    planned = operations("p/", checks, changes, pins, FLAGS)
    return [
        (str(each.body["Verb"]), str(each.body["Key"]), each.body.get("Index")) for each in planned
    ]


def test_each_check_binds_to_what_it_is_about() -> None:
    checks: list[Check] = [Absent("a"), Unmodified("b", Revision(7)), Existing("c", Revision(8))]
    assert bodies(checks, []) == [
        ("check-not-exists", "p/a", None),
        ("check-index", "p/b", 7),
        ("check-index", "p/c", 8),
    ]
    assert bodies(checks, [], c=Revision(9))[2] == ("check-index", "p/c", 9)


def test_a_record_of_a_session_is_locked_and_any_other_set_if_absent() -> None:
    own, free = operations("", [], [Create("a", b"v", "s"), Create("b", b"v")], {}, FLAGS)[1:]
    assert own.body == {"Verb": "lock", "Key": "a", "Session": "s", **VALUE}
    assert free.body == {"Verb": "cas", "Key": "b", "Index": 0, **VALUE}


def test_existence_is_proven_by_a_check_a_pin_or_a_read() -> None:
    update, delete = Update("a", b"v"), Delete("a")
    assert bodies([], [update]) == [("get", "p/a", None), ("set", "p/a", None)]
    assert bodies([], [delete]) == [("get", "p/a", None), ("delete", "p/a", None)]
    assert bodies([], [update], a=Revision(3)) == [("cas", "p/a", 3)]
    assert bodies([], [delete], a=Revision(3)) == [("delete-cas", "p/a", 3)]
    assert bodies([Existing("a", Revision(3))], [update])[1:] == [("set", "p/a", None)]
    assert bodies([Unmodified("a", Revision(3))], [delete])[1:] == [("delete", "p/a", None)]


def test_a_check_proves_existence_only_until_the_first_change() -> None:
    planned = bodies([Unmodified("a", Revision(3))], [Delete("a"), Delete("a")])
    assert [verb for verb, _, _ in planned] == ["check-index", "delete", "get", "delete"]


def test_only_unproven_changes_of_what_exists_are_unbound() -> None:
    changes: list[Change] = [Create("a", b""), Update("b", b""), Delete("c"), Delete("d")]
    assert unbound_keys([Existing("d", Revision(1))], changes) == ["b", "c"]


@pytest.mark.parametrize(
    ("verb", "reason", "error"),
    [
        ("lock", 'invalid session "s"', SessionLostError),
        ("lock", "failed session lookup: index error", SessionLostError),
        ("lock", 'failed to lock key "a" due to lock delay', StoreUnavailableError),
        ("lock", 'failed to lock key "a", lock is already held', ConflictError),
        ("check-index", 'current modify index 3 != 5 of "session"', ConflictError),
    ],
)
def test_a_refusal_is_told_by_its_kind(verb: str, reason: str, error: type[Exception]) -> None:
    assert type(Operation(Absent("a"), {"Verb": verb}).error(reason)) is error


PAIR = {"Key": "p/a", "Value": b"v", "Flags": FLAGS, "CreateIndex": 3, "ModifyIndex": 5}


def test_a_pair_is_read_as_a_record() -> None:
    record = record_of(PAIR, "p/")
    assert (record.key, record.value, record.created, record.modified) == ("a", b"v", 3, 5)
    assert record.session_id is None
    assert record_of({**PAIR, "Value": None}, "p/").value == b""
    assert record_of({**PAIR, "Session": "s"}, "p/").session_id == "s"


def test_a_held_lock_of_other_clients_began_with_its_last_write() -> None:
    held = {**PAIR, "Flags": GO_LOCK_FLAGS, "Session": "s"}
    assert record_of(held, "p/").created == 5
    assert record_of({**PAIR, "Flags": GO_LOCK_FLAGS}, "p/").created == 3


@pytest.mark.parametrize(
    "change",
    [{"Key": "other/a"}, {"Key": 1}, {"Value": "text"}, {"Flags": None}, {"ModifyIndex": "5"}],
)
def test_what_is_no_pair_is_an_error(change: dict[str, object]) -> None:
    with pytest.raises(StoreFormatError):
        record_of({**PAIR, **change}, "p/")


def test_no_two_writes_are_equal_and_none_looks_like_a_lock_of_others() -> None:
    assert flags_from(1) != flags_from(2)
    assert GO_LOCK_FLAGS < flags_from(0) < 2**64
