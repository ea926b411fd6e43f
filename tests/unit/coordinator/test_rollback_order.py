import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError, RollbackConflictError
from pliska.coordinator.records.rollback import EXCLUDED_MAX
from pliska.coordinator.rollback_order import (
    ORDER_BYTES_MAX,
    RollbackOrder,
    place_order,
    read_order,
    refuse_order,
)
from pliska.coordinator.wire.limits import WHY_CHARACTERS_MAX
from pliska.locks import Absent, ConflictError, connect

ORDER = RollbackOrder(number=1, target=4, actor="ann", reason="poison", excluded=("w1", "w2"))


@pytest.fixture
def directory() -> Iterator[JobDirectory]:
    directory = JobDirectory(connect("memory:"), "toy")
    yield directory
    directory.backend.close()


def test_an_order_comes_back_from_the_store(directory: JobDirectory) -> None:
    assert read_order(directory) is None
    assert place_order(directory, ORDER) == ORDER
    assert read_order(directory) == ORDER


def test_the_same_order_again_joins_the_one_that_is_open(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    assert place_order(directory, replace(ORDER, actor="bob")) == ORDER


def test_the_same_order_again_names_the_one_that_was_carried_out(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    assert place_order(directory, replace(ORDER, number=2)) == ORDER


def test_another_order_waits_for_the_open_one(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    with pytest.raises(RollbackConflictError, match="to version 4 is under way already, by ann"):
        place_order(directory, replace(ORDER, target=3))
    # Once that is carried out, its author sees the next training epoch.
    following = replace(ORDER, number=2, target=3)
    assert place_order(directory, following) == following


def test_an_order_that_was_refused_can_be_placed_again(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    refuse_order(directory, ORDER, "gone", [])
    assert read_order(directory) == replace(ORDER, refused="gone")
    assert place_order(directory, ORDER) == ORDER


def test_whoever_does_not_lead_refuses_nothing(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    with pytest.raises(ConflictError):
        refuse_order(directory, ORDER, "gone", [Absent(directory.rollback_key)])
    assert read_order(directory) == ORDER


def test_an_order_that_changed_meanwhile_is_not_refused(directory: JobDirectory) -> None:
    place_order(directory, ORDER)
    refuse_order(directory, replace(ORDER, target=3), "gone", [])
    assert read_order(directory) == ORDER


def test_texts_and_workers_fit_up_to_their_limits() -> None:
    names = tuple(f"w{number:03d}" for number in range(EXCLUDED_MAX))
    full = replace(ORDER, reason="ü" * WHY_CHARACTERS_MAX, excluded=names)
    assert RollbackOrder.from_bytes(full.to_bytes()) == full


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0},
        {"number": True},
        {"number": 10**6},
        {"target": -1},
        {"target": 2**64},
        {"target": "4"},
        {"actor": ""},
        {"reason": "x" * (WHY_CHARACTERS_MAX + 1)},
        {"reason": "\ud800"},
        {"reason": None},
        {"excluded": ["b", "a"]},
        {"excluded": ["a", "a"]},
        {"excluded": ["a b"]},
        {"excluded": ["a\u00fc"]},
        {"excluded": [""]},
        {"excluded": ["a" * 129]},
        {"excluded": [f"w{number:03d}" for number in range(EXCLUDED_MAX + 1)]},
        {"excluded": {"a": 1}},
        {"refused": 7},
    ],
)
def test_hostile_values_are_refused(change: dict[str, Any]) -> None:
    fields = {**json.loads(ORDER.to_bytes()), **change}
    with pytest.raises(DamagedStateError, match="rollback order in the store cannot be read"):
        RollbackOrder.from_bytes(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 30_000, b'"' + b"x" * ORDER_BYTES_MAX + b'"'],
)
def test_what_is_no_order_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedStateError, match="cannot be read"):
        RollbackOrder.from_bytes(data)
