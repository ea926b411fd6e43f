import itertools
import json
from typing import Any

import pytest

from pliska.coordinator.registry import IntegrityError, Reference
from pliska.coordinator.registry.keys import Keys
from pliska.locks import Backend

KEYS = Keys("default")
ALIAS = KEYS.alias("digits", "prod")
ENTRIES = [KEYS.history_entry("digits", "prod", gen) for gen in (1, 2, 3)]


@pytest.fixture
def promoted(desk: Any) -> Any:
    """Return a registry in which `prod` pointed at 1, 2, 3 and then went back to 2."""
    desk.register(1, 2, 3)
    desk.promote(1, 2, 3)
    desk.registry.rollback(desk.rollback())
    return desk


def edit(backend: Backend, key: str, **fields: object) -> None:
    """Change fields of a stored record, in canonical form, as somebody at the store could."""
    record = backend.get(key)
    assert record is not None
    document = {**json.loads(record.value), **fields}
    value = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    backend.update(key, value, record.modified)


def test_history_is_contiguous_chained_and_the_alias_is_its_newest_entry(promoted: Any) -> None:
    history = promoted.registry.log("digits", "prod")
    assert [entry.gen for entry in history] == [1, 2, 3, 4]
    assert [entry.to_version for entry in history] == [1, 2, 3, 2]
    for before, after in itertools.pairwise(history):
        assert after.prev_hash == before.hash
    record = promoted.backend.get(ALIAS)
    alias = json.loads(record.value)
    assert (alias["gen"], alias["version"]) == (4, 2)
    assert alias["entry_hash"] == history[-1].hash
    assert alias["prev_hash"] == history[-2].hash


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 3},
        {"gen": 3},
        {"gen": 5},
        {"actor": "mallory"},
        {"op_id": "other"},
        {"manifest_digest": "sha256:" + "0" * 64},
        {"entry_hash": "sha256:" + "0" * 64},
        {"prev_hash": "sha256:" + "0" * 64},
        {"more": 1},
        {"format": "pliska-alias-2"},
    ],
)
def test_an_alias_changed_by_hand_is_refused(promoted: Any, fields: dict[str, object]) -> None:
    edit(promoted.backend, ALIAS, **fields)
    assert_refused(promoted)


@pytest.mark.parametrize("key", [*ENTRIES, KEYS.history_entry("digits", "prod", 4)])
@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "another"},
        {"to_version": 7},
        {"from_version": 7},
        {"kind": "promote", "actor": "mallory"},
        {"gen": 9},
        {"alias": "stage"},
        {"model": "other"},
        {"namespace": "other"},
    ],
)
def test_a_history_entry_changed_by_hand_is_refused(
    promoted: Any, key: str, fields: dict[str, object]
) -> None:
    edit(promoted.backend, key, **fields)
    assert_refused(promoted)


@pytest.mark.parametrize("key", [ALIAS, *ENTRIES, KEYS.history_entry("digits", "prod", 4)])
def test_a_record_that_was_removed_is_noticed(promoted: Any, key: str) -> None:
    promoted.backend.delete(key)
    assert_refused(promoted)


@pytest.mark.parametrize("value", [b"", b"{}", b"not JSON", b"\x80\x04K\x01."])
def test_a_record_that_is_not_ours_is_refused(promoted: Any, value: bytes) -> None:
    for key in (ALIAS, ENTRIES[1]):
        record = promoted.backend.get(key)
        promoted.backend.update(key, value, record.modified)
        assert_refused(promoted)


def test_a_replayed_alias_record_is_refused(promoted: Any) -> None:
    old = promoted.backend.get(ALIAS).value
    promoted.promote(1)
    record = promoted.backend.get(ALIAS)
    promoted.backend.update(ALIAS, old, record.modified)
    assert_refused(promoted)


def test_an_entry_added_by_hand_is_refused(promoted: Any) -> None:
    newest = promoted.backend.get(KEYS.history_entry("digits", "prod", 4))
    document = {**json.loads(newest.value), "gen": 5}
    value = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    promoted.backend.create(KEYS.history_entry("digits", "prod", 5), value)
    assert_refused(promoted)


def test_the_history_of_another_alias_does_not_pass_for_this_one(promoted: Any) -> None:
    promoted.promote(1, alias="stage")
    entry = promoted.backend.get(KEYS.history_entry("digits", "stage", 1))
    place = promoted.backend.get(ENTRIES[0])
    promoted.backend.update(place.key, entry.value, place.modified)
    assert_refused(promoted)


def assert_refused(desk: Any) -> None:
    """Nothing reads, follows or moves the alias, and the exit code says integrity."""
    reference = Reference.parse("digits@prod")
    for attempt in (
        lambda: desk.registry.log("digits", "prod"),
        lambda: desk.registry.load(reference),
        lambda: desk.promote(1),
        lambda: desk.registry.rollback(desk.rollback()),
        lambda: desk.registry.plan(desk.rollback()),
    ):
        with pytest.raises(IntegrityError) as refused:
            attempt()
        assert refused.value.exit_code == 5
