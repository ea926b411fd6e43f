"""How one field of a message is written and read; see `encoding.py` for the layout.

A plan is worked out once per type from its annotations. Used by `encoding.py`
only.
"""

import math
import re
import struct
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Protocol

from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.limits import (
    BLOB_BYTES_MAX,
    ITEMS_MAX,
    NAME_BYTES_MAX,
    TEXT_BYTES_MAX,
)

U64_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Length:
    """Bounds, both included, on the bytes of a text or blob or the items of a sequence."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Visible:
    """Says of a text field that it is visible ASCII: no spaces, no control characters."""


class Source:
    """Bytes being read; never hands out more than there are."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._offset = 0
        self._end = len(data)

    @property
    def remaining(self) -> int:
        """How many bytes were not taken yet."""
        return self._end - self._offset

    def take(self, count: int) -> memoryview:
        """Return the next bytes, or raise `MalformedError` where there are not as many."""
        start = self._advance(count)
        return self._data[start : start + count]

    def number(self, layout: struct.Struct) -> Any:
        """Take one number of fixed width, or raise `MalformedError` where the bytes end."""
        return layout.unpack_from(self._data, self._advance(layout.size))[0]

    def _advance(self, count: int) -> int:
        start = self._offset
        if count > self._end - start:
            raise MalformedError(f"the message ends {start + count - self._end} bytes early")
        self._offset = start + count
        return start


class Plan(Protocol):
    """How one type is written and read."""

    def write(self, value: Any, out: bytearray) -> None:
        """Append a value, or raise `MalformedError` where it is out of bounds."""
        ...

    def read(self, source: Source) -> Any:
        """Take a value, or raise `MalformedError` where the bytes are not canonical."""
        ...


@dataclass(frozen=True, slots=True)
class _Number:
    """A fixed-width number; `accepts` says which values have an encoding."""

    layout: struct.Struct
    accepts: Callable[[Any], bool]
    claim: str

    def write(self, value: Any, out: bytearray) -> None:
        out += self.layout.pack(self._checked(value))

    def read(self, source: Source) -> Any:
        return self._checked(source.number(self.layout))

    def _checked(self, value: Any) -> Any:
        if not self.accepts(value):
            raise MalformedError(f"{value!r} is not {self.claim}")
        return value


class _Boolean:
    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, bool):
            raise MalformedError(f"{value!r} is not a bool")
        out.append(value)

    def read(self, source: Source) -> bool:
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

    def read(self, source: Source) -> bytes:
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

    def read(self, source: Source) -> str:
        try:
            return self._checked(self.blob.read(source).decode())
        except UnicodeDecodeError as error:
            raise MalformedError("a text field is not UTF-8") from error

    def _checked(self, value: str) -> str:
        if self.is_visible and not _is_visible(value):
            raise MalformedError(f"a name is visible ASCII without spaces, not {value[:64]!r}")
        return value


@dataclass(frozen=True, slots=True)
class _Choice:
    choices: type[StrEnum]

    def write(self, value: Any, out: bytearray) -> None:
        _NAME.write(self._checked(value).value, out)

    def read(self, source: Source) -> StrEnum:
        return self._checked(_NAME.read(source))

    def _checked(self, value: Any) -> StrEnum:
        try:
            return self.choices(value)
        except ValueError as error:
            raise MalformedError(f"{value!r} is not a {self.choices.__name__}") from error


@dataclass(frozen=True, slots=True)
class _Sequence:
    item: Plan
    length: Length

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, tuple):
            raise MalformedError(f"a tuple is needed, not a {type(value).__name__}")
        _write_length(len(value), self.length, out)
        for item in value:
            self.item.write(item, out)

    def read(self, source: Source) -> tuple[Any, ...]:
        return tuple(self.item.read(source) for _ in range(_read_length(source, self.length)))


@dataclass(frozen=True, slots=True)
class _Fixed:
    items: tuple[Plan, ...]

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, tuple) or len(value) != len(self.items):
            raise MalformedError(f"a tuple of {len(self.items)} items is needed, not {value!r}")
        for plan, item in zip(self.items, value, strict=True):
            plan.write(item, out)

    def read(self, source: Source) -> tuple[Any, ...]:
        return tuple(plan.read(source) for plan in self.items)


@dataclass(frozen=True, slots=True)
class _Optional:
    value: Plan

    def write(self, value: Any, out: bytearray) -> None:
        out.append(value is not None)
        if value is not None:
            self.value.write(value, out)

    def read(self, source: Source) -> Any:
        return self.value.read(source) if _BOOLEAN.read(source) else None


@dataclass(frozen=True, slots=True)
class _Record:
    record_type: type[Any]
    fields: tuple[tuple[str, Plan], ...]

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

    def read(self, source: Source) -> Any:
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


def _read_length(source: Source, length: Length) -> int:
    count: int = source.number(_U32)
    _check_length(count, length)
    return count


def _check_length(count: int, length: Length) -> None:
    if not length.low <= count <= length.high:
        raise MalformedError(f"a length of {count} is outside {length.low} to {length.high}")


_U32 = struct.Struct(">I")
_is_visible = re.compile("[!-~]*").fullmatch
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
TYPE_NAME = _NAME
"""How the type name that opens a message is written."""


@cache
def plan_of(annotation: Any, *marks: Any) -> Plan:
    """Work out, once per type, how it is written and read."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return plan_of(arguments[0], *arguments[1:])
    length = next((mark for mark in marks if isinstance(mark, Length)), None)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _Sequence(plan_of(arguments[0]), length or Length(0, ITEMS_MAX))
    if origin is tuple:
        return _Fixed(tuple(plan_of(item) for item in arguments))
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        (value,) = (item for item in arguments if item is not type(None))
        return _Optional(plan_of(value, *marks))
    if annotation is str:
        return _Text(_Blob(length or Length(0, TEXT_BYTES_MAX)), is_visible=Visible() in marks)
    if annotation is bytes:
        return _Blob(length or Length(0, BLOB_BYTES_MAX))
    return _plan_of_class(annotation)


def _plan_of_class(annotation: Any) -> Plan:
    simple: dict[Any, Plan] = {bool: _BOOLEAN, int: _UNSIGNED, float: _REAL}
    if annotation in simple:
        return simple[annotation]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _Choice(annotation)
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        names = [field.name for field in fields(annotation) if field.init]
        return _Record(annotation, tuple((name, plan_of(hints[name])) for name in names))
    raise TypeError(f"{annotation!r} has no canonical encoding")
