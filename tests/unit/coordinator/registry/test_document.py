import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliska.coordinator.registry import IntegrityError, RegistryUsageError
from pliska.coordinator.registry.document import (
    INTEGER_MAX,
    TEXT_CHARACTERS_MAX,
    Document,
    canonical_bytes,
    read_document,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=10,
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text("abcdef"), values))
def test_canonical_bytes_are_read_back(fields: dict[str, object]) -> None:
    content = canonical_bytes(fields)
    document = read_document(content, len(content), "it")
    assert canonical_bytes(document._fields) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"a":1} ',
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":1.0e0}',
        b'{"a":"\\u0061"}',
        b'{"a":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_other_ways_to_write_it_are_refused(content: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_document(content, 10**6, "it")


def test_the_size_limit_holds_at_the_limit_and_one_above() -> None:
    content = canonical_bytes({"a": "x" * 100})
    read_document(content, len(content), "it")
    with pytest.raises(IntegrityError, match="more than"):
        read_document(content, len(content) - 1, "it")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_hold_is_the_callers_mistake(number: float) -> None:
    with pytest.raises(RegistryUsageError):
        canonical_bytes({"a": number})


@pytest.mark.parametrize(
    ("take", "value"),
    [
        (lambda d: d.text("a"), 1),
        (lambda d: d.text("a"), "x" * (TEXT_CHARACTERS_MAX + 1)),
        (lambda d: d.integer("a"), True),
        (lambda d: d.integer("a"), 1.0),
        (lambda d: d.integer("a"), -1),
        (lambda d: d.integer("a"), INTEGER_MAX + 1),
        (lambda d: d.integer("a", minimum=1), 0),
        (lambda d: d.digest("a"), "sha256:" + "A" * 64),
        (lambda d: d.items("a", 1), [1, 2]),
        (lambda d: d.texts("a", 9), ["x", 1]),
        (lambda d: d.text_map("a", 9), {"x": 1}),
        (lambda d: d.number_map("a", 9), {"x": True}),
        (lambda d: d.number_map("a", 9), {"x": "1"}),
        (lambda d: d.document("a"), []),
        (lambda d: d.text("b"), "b is missing"),
    ],
)
def test_a_field_of_another_kind_is_refused(take: object, value: object) -> None:
    with pytest.raises(IntegrityError):
        take(Document({"a": value}, "it"))


def test_the_text_limit_is_included() -> None:
    text = "x" * TEXT_CHARACTERS_MAX
    assert Document({"a": text}, "it").text("a") == text


def test_a_field_that_nobody_took_is_refused() -> None:
    document = Document({"a": "x", "b": "y"}, "it")
    document.text("a")
    with pytest.raises(IntegrityError, match="unknown fields b"):
        document.finish()
