import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.discovery.errors import ConfigFormatError, ConfigUsageError, ValueRefusedError
from pliska.discovery.schema import Schema, ValueKind
from pliska.discovery.setting import (
    KEY_CHARACTERS_MAX,
    NOTE_CHARACTERS_MAX,
    VALUE_BYTES_MAX,
    ChangeKind,
    Setting,
    check_key,
    check_note,
    setting_from_bytes,
)
from pliska.locks.backends.base import RECORD_BYTES_MAX

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def setting(value: object = 1, schema: Schema | None = None) -> Setting:
    return Setting(
        key="a.b",
        revision=3,
        is_set=True,
        value=value,
        schema=schema,
        change=ChangeKind.SET,
        written_at=NOON,
        author="ann@host",
        note="why",
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_a_setting_comes_back_as_it_was(value: object) -> None:
    schema = Schema(kind=ValueKind.JSON, description="anything")
    assert setting_from_bytes(setting(value, schema).to_bytes(), "a.b") == setting(value, schema)


def test_a_value_may_be_as_large_as_the_limit_and_no_larger() -> None:
    largest = setting("x" * (VALUE_BYTES_MAX - 2))
    assert len(largest.to_bytes()) < RECORD_BYTES_MAX
    with pytest.raises(ValueRefusedError, match=f"takes {VALUE_BYTES_MAX + 1} bytes"):
        setting("x" * (VALUE_BYTES_MAX - 1)).to_bytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, object()])
def test_a_value_that_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ValueRefusedError, match="is not JSON"):
        setting(value).to_bytes()


@pytest.mark.parametrize("key", ["a", "a.b-c.d_e", "7", "x" * KEY_CHARACTERS_MAX])
def test_ordinary_keys_are_taken(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    "key", ["", ".", "a.", ".a", "a..b", "a/b", "a b", "é", "-a", "x" * (KEY_CHARACTERS_MAX + 1)]
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ConfigUsageError):
        check_key(key)


def test_notes_are_one_line_of_limited_length() -> None:
    check_note("note", "x" * NOTE_CHARACTERS_MAX)
    for text in ("x" * (NOTE_CHARACTERS_MAX + 1), "two\nlines", "\x1b[31m"):
        with pytest.raises(ConfigUsageError, match="the note must be one line"):
            check_note("note", text)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"key": "other"},
        {"revision": 0},
        {"revision": True},
        {"revision": "3"},
        {"is_set": 1},
        {"schema": {"kind": "odd"}},
        {"change": "odd"},
        {"written_at": "noon"},
        {"written_at": "2030-01-01T12:00:00"},
        {"written_at": 7},
        {"author": None},
        {"note": 7},
    ],
)
def test_a_document_with_a_bad_field_is_refused(changes: dict[str, object]) -> None:
    document = {**setting().to_document(), **changes}
    with pytest.raises(ConfigFormatError):
        setting_from_bytes(json.dumps(document).encode(), "a.b")


@pytest.mark.parametrize("name", setting().to_document())
def test_a_document_that_lacks_a_field_is_refused(name: str) -> None:
    document = setting().to_document()
    del document[name]
    with pytest.raises(ConfigFormatError):
        setting_from_bytes(json.dumps(document).encode(), "a.b")


@pytest.mark.parametrize("content", [b"", b"\xff", b"7", b"null", b"[]", b"[" * 100_000])
def test_what_is_no_document_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigFormatError):
        setting_from_bytes(content, "a.b")


def test_a_value_that_its_schema_refuses_is_a_problem_with_a_reason() -> None:
    assert setting(1, Schema(kind=ValueKind.INTEGER)).problem() is None
    problem = setting("x", Schema(kind=ValueKind.INTEGER)).problem()
    assert problem == 'the schema of a.b refuses it: "x" is no integer'
