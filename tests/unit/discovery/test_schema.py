import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.discovery.errors import ConfigFormatError, ConfigUsageError, ValueRefusedError
from pliska.discovery.schema import (
    CHARACTERS_MAX,
    CHOICES_MAX,
    Schema,
    ValueKind,
    parse_json,
    schema_from_document,
)

VALUES = (None, True, 7, 0.5, "text", [1], {"a": 1}, math.nan, math.inf)
FITTING = {
    ValueKind.BOOLEAN: (True,),
    ValueKind.INTEGER: (7,),
    ValueKind.NUMBER: (7, 0.5),
    ValueKind.TEXT: ("text",),
}


@pytest.mark.parametrize("kind", FITTING)
def test_a_kind_takes_its_own_values_and_no_others(kind: ValueKind) -> None:
    schema = Schema(kind=kind)
    taken = [value for value in VALUES if schema.refusal(value) is None]
    assert [(type(value), value) for value in taken] == [
        (type(value), value) for value in FITTING[kind]
    ]


def test_bounds_are_inclusive() -> None:
    schema = Schema(kind=ValueKind.INTEGER, minimum=1, maximum=9)
    assert [value for value in range(12) if schema.refusal(value) is None] == list(range(1, 10))
    assert schema.refusal(0) == "0 is below the minimum, 1"
    assert schema.refusal(10) == "10 is above the maximum, 9"


def test_choices_tell_true_from_one() -> None:
    schema = Schema(kind=ValueKind.JSON, choices=(1, "on"))
    assert schema.refusal(1) is None
    assert schema.refusal(True) == 'true is none of 1, "on"'


def test_a_text_has_a_length() -> None:
    schema = Schema(kind=ValueKind.TEXT, characters_max=3)
    assert schema.refusal("abc") is None
    assert schema.refusal("abcd") == "4 characters; at most 3"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": ValueKind.TEXT, "minimum": 0},
        {"kind": ValueKind.BOOLEAN, "maximum": 0},
        {"kind": ValueKind.NUMBER, "minimum": 2, "maximum": 1},
        {"kind": ValueKind.NUMBER, "minimum": math.nan},
        {"kind": ValueKind.NUMBER, "maximum": math.inf},
        {"kind": ValueKind.NUMBER, "characters_max": 3},
        {"kind": ValueKind.TEXT, "characters_max": 0},
        {"kind": ValueKind.TEXT, "characters_max": CHARACTERS_MAX + 1},
        {"kind": ValueKind.TEXT, "choices": ()},
        {"kind": ValueKind.TEXT, "choices": ("a",) * (CHOICES_MAX + 1)},
        {"kind": ValueKind.TEXT, "choices": (1,)},
        {"kind": ValueKind.TEXT, "description": "x" * 501},
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigUsageError):
        Schema(**fields)  # type: ignore[arg-type]


def test_a_person_writes_values_by_the_schema() -> None:
    assert Schema(kind=ValueKind.TEXT).parse("7") == "7"
    assert Schema(kind=ValueKind.INTEGER).parse("7") == 7
    assert Schema(kind=ValueKind.JSON).parse('{"a": [1]}') == {"a": [1]}
    for kind, text in ((ValueKind.INTEGER, "7.5"), (ValueKind.BOOLEAN, "yes")):
        with pytest.raises(ValueRefusedError):
            Schema(kind=kind).parse(text)


@pytest.mark.parametrize("text", ["", "{", "NaN", "-Infinity", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueRefusedError):
        parse_json(text)


schemas = st.one_of(
    st.builds(
        Schema,
        kind=st.sampled_from([ValueKind.INTEGER, ValueKind.NUMBER]),
        minimum=st.none() | st.integers(-100, 0),
        maximum=st.none() | st.floats(0, 100),
    ),
    st.builds(
        Schema,
        kind=st.just(ValueKind.TEXT),
        choices=st.none() | st.lists(st.text(), min_size=1, max_size=5).map(tuple),
        characters_max=st.none() | st.integers(1, 100),
        description=st.text(max_size=50),
    ),
)


@given(schemas)
def test_a_schema_comes_back_as_it_was(schema: Schema) -> None:
    assert schema_from_document(schema.to_document()) == schema


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        "text",
        [],
        {},
        {"kind": "integer", "pattern": "(a+)+"},
        {"kind": "float"},
        {"kind": "integer", "minimum": "0"},
        {"kind": "integer", "minimum": True},
        {"kind": "text", "characters_max": 1.5},
        {"kind": "text", "choices": 7},
        {"kind": "text", "description": 7},
        {"kind": "text", "minimum": 0},
    ],
)
def test_what_is_no_schema_is_refused(document: object) -> None:
    with pytest.raises(ConfigFormatError):
        schema_from_document(document)
