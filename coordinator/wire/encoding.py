"""Canonical binary encoding of frozen dataclasses: one value, one byte string.

An encoding is the message's type name (`wire_type`, such as
`pliska/gradient/1`: product, message type, protocol version) followed by its
fields in the order of their declaration:

    bool                    1 byte, 0 or 1
    int                     8 bytes, big-endian, unsigned
    float                   8 bytes, IEEE 754 big-endian, not NaN
    str, StrEnum, bytes     4 bytes of length, then the (UTF-8) bytes
    tuple[T, ...]           4 bytes of count, then the items
    tuple[A, B]             the items
    T | None                1 byte, 0 or 1, then the value
    frozen dataclass        its fields (no type name)

Lengths are bounded by `Length` in `Annotated[...]`, else by `limits.py`.
Decoding is strict: it accepts exactly what encoding produces, so two different
byte strings never decode to the same message, and it allocates nothing that
the input is not long enough to fill.

Not a serializer of arrays (that is `codec.py`), and not self-describing: both
sides know the type. Used for everything that is signed or digested.
"""

import math
import struct
import types
import typing
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, cast

from pliska.coordinator.wire.errors import MalformedError, TooLargeError
from pliska.coordinator.wire.limits import (
    BLOB_BYTES_MAX,
    ITEMS_MAX,
    MESSAGE_BYTES_MAX,
    NAME_BYTES_MAX,
    TEXT_BYTES_MAX,
)

U64_MAX = 2**64 - 1


class Message(Protocol):
    """A frozen dataclass with a type name of its own."""

    wire_type: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


MessageT = TypeVar("MessageT", bound=Message)


@dataclass(frozen=True, slots=True)
class Length:
    """Bounds, both included, on the bytes of a text or blob or the items of a sequence."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Visible:
    """Says of a text field that it is visible ASCII: no spaces, no control characters."""


Name = Annotated[str, Length(1, NAME_BYTES_MAX), Visible()]
"""A name that is safe to print, to log and to compare."""
Digest = Annotated[bytes, Length(32, 32)]
"""A SHA-256."""
Unique = Annotated[bytes, Length(16, 16)]
"""16 random bytes: an incarnation or a nonce."""


def encode(message: Message) -> bytes:
    """Encode a message.

    Raises:
        MalformedError: A field is outside its type's range or bounds.
    """
    out = bytearray()
    _TYPE_NAME.write(message.wire_type, out)
    _plan(type(message)).write(message, out)
    return bytes(out)


def decode(
    message_type: type[MessageT], data: bytes | memoryview, bytes_max: int = MESSAGE_BYTES_MAX
) -> MessageT:
    """Decode one message of this type, which must fill `data` exactly.

    Raises:
        TooLargeError: `data` is longer than `bytes_max`.
        MalformedError: `data` is not what `encode` gives for any message of this type.
    """
    if len(data) > bytes_max:
        raise TooLargeError(f"a {message_type.wire_type} message", size=len(data), limit=bytes_max)
    source = _Source(memoryview(data))
    name = _TYPE_NAME.read(source)
    if name != message_type.wire_type:
        raise MalformedError(f"expected a {message_type.wire_type} message, not {name!r}")
    message = _plan(message_type).read(source)
    if source.remaining:
        raise MalformedError(f"{source.remaining} bytes too many after a {name} message")
    return cast("MessageT", message)


class _Source:
    """Bytes being read; never hands out more than there are."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._offset = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._offset

    def take(self, count: int) -> memoryview:
        if count > self.remaining:
            raise MalformedError(f"the message ends {count - self.remaining} bytes early")
        self._offset += count
        return self._data[self._offset - count : self._offset]


class _Plan(Protocol):
    """How one type is written and read."""

    def write(self, value: Any, out: bytearray) -> None: ...

    def read(self, source: _Source) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Number:
    """A fixed-width number; `accepts` says which values have an encoding."""

    layout: struct.Struct
    accepts: Callable[[Any], bool]
    claim: str

    def write(self, value: Any, out: bytearray) -> None:
        out += self.layout.pack(self._checked(value))

    def read(self, source: _Source) -> Any:
        return self._checked(self.layout.unpack(source.take(self.layout.size))[0])

    def _checked(self, value: Any) -> Any:
        if not self.accepts(value):
            raise MalformedError(f"{value!r} is not {self.claim}")
        return value


class _Boolean:
    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, bool):
            raise MalformedError(f"{value!r} is not a bool")
        out.append(value)

    def read(self, source: _Source) -> bool:
        byte = source.take(1)[0]
        if byte > 1:
            raise MalformedError(f"a bool is encoded as 0 or 1, not {byte}")
        return byte == 1


@dataclass(frozen=True, slots=True)
class _Blob:
    length: Length

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, bytes):
            raise MalformedError(f"bytes are needed, not {type(value).__name__}")
        _write_length(len(value), self.length, out)
        out += value

    def read(self, source: _Source) -> bytes:
        return bytes(source.take(_read_length(source, self.length)))


@dataclass(frozen=True, slots=True)
class _Text:
    blob: _Blob
    is_visible: bool = False

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, str):
            raise MalformedError(f"text is needed, not {type(value).__name__}")
        try:
            self.blob.write(self._checked(value).encode(), out)
        except UnicodeEncodeError as error:
            raise MalformedError(f"{value!r} cannot be encoded as UTF-8") from error

    def read(self, source: _Source) -> str:
        try:
            return self._checked(self.blob.read(source).decode())
        except UnicodeDecodeError as error:
            raise MalformedError("a text field is not UTF-8") from error

    def _checked(self, value: str) -> str:
        if self.is_visible and not all("!" <= character <= "~" for character in value):
            raise MalformedError(f"a name is visible ASCII without spaces, not {value[:64]!r}")
        return value


@dataclass(frozen=True, slots=True)
class _Choice:
    choices: type[StrEnum]

    def write(self, value: Any, out: bytearray) -> None:
        _NAME.write(self._checked(value).value, out)

    def read(self, source: _Source) -> StrEnum:
        return self._checked(_NAME.read(source))

    def _checked(self, value: Any) -> StrEnum:
        try:
            return self.choices(value)
        except ValueError as error:
            raise MalformedError(f"{value!r} is not a {self.choices.__name__}") from error


@dataclass(frozen=True, slots=True)
class _Sequence:
    item: _Plan
    length: Length

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, tuple):
            raise MalformedError(f"a tuple is needed, not a {type(value).__name__}")
        _write_length(len(value), self.length, out)
        for item in value:
            self.item.write(item, out)

    def read(self, source: _Source) -> tuple[Any, ...]:
        return tuple(self.item.read(source) for _ in range(_read_length(source, self.length)))


@dataclass(frozen=True, slots=True)
class _Fixed:
    items: tuple[_Plan, ...]

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise MalformedError(f"a tuple of {len(self.items)} items is needed, not {value!r}")
        for plan, item in zip(self.items, value, strict=True):
            plan.write(item, out)

    def read(self, source: _Source) -> tuple[Any, ...]:
        return tuple(plan.read(source) for plan in self.items)


@dataclass(frozen=True, slots=True)
class _Optional:
    value: _Plan

    def write(self, value: Any, out: bytearray) -> None:
        out.append(value is not None)
        if value is not None:
            self.value.write(value, out)

    def read(self, source: _Source) -> Any:
        return self.value.read(source) if _BOOLEAN.read(source) else None


@dataclass(frozen=True, slots=True)
class _Record:
    record_type: type[Any]
    fields: tuple[tuple[str, _Plan], ...]

    def write(self, value: Any, out: bytearray) -> None:
        if type(value) is not self.record_type:
            raise MalformedError(
                f"a {self.record_type.__name__} is needed, not {type(value).__name__}"
            )
        for name, plan in self.fields:
            try:
                plan.write(getattr(value, name), out)
            except MalformedError as error:
                raise MalformedError(f"{name}: {error}") from error

    def read(self, source: _Source) -> Any:
        values = {}
        for name, plan in self.fields:
            try:
                values[name] = plan.read(source)
            except MalformedError as error:
                raise MalformedError(f"{name}: {error}") from error
        try:
            return self.record_type(**values)
        except ValueError as error:
            raise MalformedError(f"{self.record_type.__name__}: {error}") from error


def _write_length(count: int, length: Length, out: bytearray) -> None:
    _check_length(count, length)
    out += _U32.pack(count)


def _read_length(source: _Source, length: Length) -> int:
    count: int = _U32.unpack(source.take(_U32.size))[0]
    _check_length(count, length)
    return count


def _check_length(count: int, length: Length) -> None:
    if not length.low <= count <= length.high:
        raise MalformedError(f"a length of {count} is outside {length.low} to {length.high}")


_U32 = struct.Struct(">I")
_BOOLEAN = _Boolean()
_UNSIGNED = _Number(
    struct.Struct(">Q"),
    lambda value: isinstance(value, int) and type(value) is not bool and 0 <= value <= U64_MAX,
    "an unsigned 64-bit integer",
)
_REAL = _Number(
    struct.Struct(">d"),
    lambda value: isinstance(value, float) and not math.isnan(value),
    "a float other than NaN",
)
_NAME = _Text(_Blob(Length(1, NAME_BYTES_MAX)), is_visible=True)
_TYPE_NAME = _NAME


@cache
def _plan(annotation: Any, *marks: Any) -> _Plan:
    """Work out, once per type, how it is written and read."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _plan(arguments[0], *arguments[1:])
    length = next((mark for mark in marks if isinstance(mark, Length)), None)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _Sequence(_plan(arguments[0]), length or Length(0, ITEMS_MAX))
    if origin is tuple:
        return _Fixed(tuple(_plan(item) for item in arguments))
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        (value,) = (item for item in arguments if item is not type(None))
        return _Optional(_plan(value, *marks))
    if annotation is str:
        return _Text(_Blob(length or Length(0, TEXT_BYTES_MAX)), is_visible=Visible() in marks)
    if annotation is bytes:
        return _Blob(length or Length(0, BLOB_BYTES_MAX))
    return _plan_of_class(annotation)


def _plan_of_class(annotation: Any) -> _Plan:
    simple: dict[Any, _Plan] = {bool: _BOOLEAN, int: _UNSIGNED, float: _REAL}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _Choice(annotation)
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        names = [field.name for field in fields(annotation) if field.init]
        return _Record(annotation, tuple((name, _plan(hints[name])) for name in names))
    raise TypeError(f"{annotation!r} has no canonical encoding")
