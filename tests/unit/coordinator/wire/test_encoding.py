"""One value has one encoding, and nothing else decodes."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pliska.coordinator.wire import Length, MalformedError, Name, TooLargeError, decode, encode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    label: str


@dataclass(frozen=True)
class Everything:
    wire_type: ClassVar[str] = "test/everything/1"

    count: int
    is_set: bool
    ratio: float
    text: Annotated[str, Length(0, 8)]
    name: Name
    blob: Annotated[bytes, Length(2, 5)]
    colour: Colour
    points: Annotated[tuple[Point, ...], Length(0, 3)]
    pair: tuple[str, int]
    maybe: Annotated[str, Length(1, 4)] | None


@dataclass(frozen=True)
class Even:
    wire_type: ClassVar[str] = "test/even/1"

    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("odd")


UNSIGNED = st.integers(0, 2**64 - 1)
SHORT_TEXT = st.text(st.characters(codec="utf-8"), max_size=2)
EVERYTHING = st.builds(
    Everything,
    count=UNSIGNED,
    is_set=st.booleans(),
    ratio=st.floats(allow_nan=False),
    text=SHORT_TEXT,
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128),
    blob=st.binary(min_size=2, max_size=5),
    colour=st.sampled_from(Colour),
    points=st.lists(st.builds(Point, UNSIGNED, SHORT_TEXT), max_size=3).map(tuple),
    pair=st.tuples(SHORT_TEXT, UNSIGNED),
    maybe=st.none() | st.text(st.characters(codec="ascii"), min_size=1, max_size=4),
)
SAMPLE = Everything(
    7, True, -0.5, "жар", "w1", b"abc", Colour.BLUE, (Point(1, "a"),), ("p", 2), "x"
)


@given(EVERYTHING)
def test_what_was_encoded_decodes_to_the_same(message: Everything) -> None:
    assert decode(Everything, encode(message)) == message


@given(st.binary(max_size=200))
@example(encode(SAMPLE))
def test_bytes_either_are_the_canonical_encoding_or_are_refused(data: bytes) -> None:
    try:
        message = decode(Everything, data)
    except MalformedError:
        return
    assert encode(message) == data


@pytest.mark.parametrize("position", range(len(encode(SAMPLE))))
def test_a_changed_encoding_is_refused_or_is_another_message(position: int) -> None:
    for flip in (0x01, 0x02, 0x40, 0x80, 0xFF):
        changed = bytearray(encode(SAMPLE))
        changed[position] ^= flip
        try:
            message = decode(Everything, bytes(changed))
        except MalformedError:
            continue
        assert message != SAMPLE
        assert encode(message) == changed


def test_the_layout_is_as_described() -> None:
    @dataclass(frozen=True)
    class Small:
        wire_type: ClassVar[str] = "t/1"
        number: int
        items: tuple[bool, ...]
        maybe: bytes | None

    expected = b"\0\0\0\x03t/1" + b"\0\0\0\0\0\0\x01\x02" + b"\0\0\0\x02\x01\x00" + b"\x01\0\0\0\1z"
    assert encode(Small(258, (True, False), b"z")) == expected


@pytest.mark.parametrize("cut", range(len(encode(SAMPLE))))
def test_a_truncated_message_is_refused(cut: int) -> None:
    with pytest.raises(MalformedError):
        decode(Everything, encode(SAMPLE)[:cut])


def test_a_trailing_byte_is_refused() -> None:
    with pytest.raises(MalformedError, match="1 bytes too many"):
        decode(Everything, encode(SAMPLE) + b"\0")


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(MalformedError, match="expected a test/even/1"):
        decode(Even, encode(SAMPLE))


def test_a_message_over_the_byte_limit_is_refused_before_it_is_read() -> None:
    encoded = encode(SAMPLE)
    assert decode(Everything, encoded, bytes_max=len(encoded)) == SAMPLE
    with pytest.raises(TooLargeError):
        decode(Everything, encoded, bytes_max=len(encoded) - 1)


def test_a_class_may_refuse_values_that_do_not_belong_together() -> None:
    odd = encode(Even(2))[:-1] + b"\x03"
    with pytest.raises(MalformedError, match="odd"):
        decode(Even, odd)


def with_field(**change: object) -> Everything:
    return Everything(**({**SAMPLE.__dict__, **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2**64 - 1},
        {"text": "12345678"},
        {"name": "n" * 128},
        {"blob": b"12345"},
        {"points": (Point(0, ""),) * 3},
        {"ratio": math.inf},
    ],
)
def test_a_field_at_its_limit_is_encoded(change: dict[str, object]) -> None:
    message = with_field(**change)
    assert decode(Everything, encode(message)) == message


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2**64},
        {"count": -1},
        {"count": True},
        {"count": "1"},
        {"is_set": 1},
        {"ratio": math.nan},
        {"ratio": 1},
        {"text": "123456789"},
        {"text": b"bytes"},
        {"text": "\ud800"},
        {"name": "n" * 129},
        {"name": ""},
        {"name": "two words"},
        {"name": "\x1b[31m"},
        {"name": "naïve"},
        {"blob": b"123456"},
        {"blob": b"1"},
        {"blob": "text"},
        {"colour": "green"},
        {"points": (Point(0, ""),) * 4},
        {"points": [Point(0, "")]},
        {"points": (("not", "a point"),)},
        {"pair": ("a",)},
        {"pair": ["a", 1]},
        {"maybe": ""},
    ],
)
def test_a_field_outside_its_bounds_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(MalformedError, match=next(iter(change))):
        encode(with_field(**change))


def test_a_hostile_length_allocates_nothing() -> None:
    @dataclass(frozen=True)
    class Endless:
        wire_type: ClassVar[str] = "test/endless/1"
        items: Annotated[tuple[int, ...], Length(0, 2**32 - 1)]

    with pytest.raises(MalformedError, match="ends 8 bytes early"):
        decode(Endless, encode(Endless(()))[:-4] + b"\xff\xff\xff\xff")


def test_a_type_without_an_encoding_is_our_own_mistake() -> None:
    @dataclass(frozen=True)
    class Wrong:
        wire_type: ClassVar[str] = "test/wrong/1"
        table: dict[str, int]

    with pytest.raises(TypeError, match="no canonical encoding"):
        encode(Wrong({}))
