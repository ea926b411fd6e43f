"""What a configuration key may hold: a kind of value with its bounds.

A schema is a value itself, kept with its key, so that whoever writes and
whoever reads judge by the same one. It checks; it never converts a stored
value. Deliberately small: no patterns, which a careless author can make
arbitrarily slow, and no nesting.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pliska.discovery.errors import ConfigFormatError, ConfigUsageError, ValueRefusedError

Json = Any
"""What JSON can say: None, bool, int, float, str, and lists and dicts of these."""

CHOICES_MAX = 100
CHARACTERS_MAX = 32 * 1024
DESCRIPTION_CHARACTERS_MAX = 500


class ValueKind(StrEnum):
    """Kinds of values."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    JSON = "json"


_NUMERIC = frozenset({ValueKind.INTEGER, ValueKind.NUMBER})
_FIELDS = ("minimum", "maximum", "choices", "characters_max", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The values that a key may hold.

    Attributes:
        kind: Of the value. A number may be written as an integer.
        minimum: Of an integer or number, inclusive.
        maximum: Of an integer or number, inclusive.
        choices: The only values allowed; None allows all of the kind.
        characters_max: Of a text.
        description: For people.

    Raises:
        ConfigUsageError: The fields contradict each other.
    """

    kind: ValueKind
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Json, ...] | None = None
    characters_max: int | None = None
    description: str = ""

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if bounds and self.kind not in _NUMERIC:
            raise ConfigUsageError(f"a {self.kind} has no minimum and no maximum")
        if not all(math.isfinite(bound) for bound in bounds) or sorted(bounds) != bounds:
            raise ConfigUsageError(f"no number lies between {self.minimum} and {self.maximum}")
        if self.characters_max is not None and self.kind is not ValueKind.TEXT:
            raise ConfigUsageError(f"a {self.kind} has no characters to count")
        if self.characters_max is not None and not 0 < self.characters_max <= CHARACTERS_MAX:
            raise ConfigUsageError(f"a text has at most {CHARACTERS_MAX} characters")
        if len(self.description) > DESCRIPTION_CHARACTERS_MAX:
            raise ConfigUsageError(
                f"a description has at most {DESCRIPTION_CHARACTERS_MAX} characters"
            )
        self._check_choices()

    def refusal(self, value: Json) -> str | None:
        """Why the value is not allowed; None when it is."""
        reason = _kind_refusal(self.kind, value)
        if reason is not None:
            return reason
        if self.choices is not None and not any(_is_same(value, each) for each in self.choices):
            return f"{_shown(value)} is none of {', '.join(map(_shown, self.choices))}"
        if self.minimum is not None and value < self.minimum:
            return f"{value} is below the minimum, {self.minimum:g}"
        if self.maximum is not None and value > self.maximum:
            return f"{value} is above the maximum, {self.maximum:g}"
        if self.characters_max is not None and len(value) > self.characters_max:
            return f"{len(value)} characters; at most {self.characters_max}"
        return None

    def parse(self, text: str) -> Json:
        """The value that a person wrote as `text`.

        Raises:
            ValueRefusedError: It is not a value of this schema.
        """
        value = text if self.kind is ValueKind.TEXT else parse_json(text)
        reason = self.refusal(value)
        if reason is not None:
            raise ValueRefusedError(reason)
        return value

    def to_document(self) -> dict[str, Json]:
        """As JSON, without what is not set."""
        document: dict[str, Json] = {"kind": str(self.kind)}
        for name in _FIELDS:
            value = getattr(self, name)
            if value is not None and value != "":
                document[name] = list(value) if isinstance(value, tuple) else value
        return document

    def _check_choices(self) -> None:
        if self.choices is None:
            return
        if not 0 < len(self.choices) <= CHOICES_MAX:
            raise ConfigUsageError(f"{len(self.choices)} choices: give 1 to {CHOICES_MAX}")
        for choice in self.choices:
            reason = _kind_refusal(self.kind, choice)
            if reason is not None:
                raise ConfigUsageError(f"a choice does not fit the schema: {reason}")


def schema_from_document(document: Json) -> Schema:
    """Read what `Schema.to_document` wrote.

    Raises:
        ConfigFormatError: It is no schema.
    """
    try:
        fields = dict(document)
        _check_fields(fields)
        choices = fields.pop("choices", None)
        return Schema(
            kind=ValueKind(fields.pop("kind")),
            choices=None if choices is None else tuple(choices),
            **fields,
        )
    except (ValueError, TypeError, KeyError, ConfigUsageError) as error:
        raise ConfigFormatError(f"this is no schema: {error}") from error


def parse_json(text: str) -> Json:
    """Read JSON that a person wrote.

    Raises:
        ValueRefusedError: It is not JSON, or has a number that JSON cannot say.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueRefusedError(f"{text[:80]!r} is not a value: {error}") from error


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a number")


def _check_fields(fields: Mapping[str, Json]) -> None:
    unknown = set(fields) - {"kind", *_FIELDS}
    if unknown:
        raise TypeError(f"a schema has no {min(unknown)}")
    for name in ("minimum", "maximum"):
        if name in fields and _kind_refusal(ValueKind.NUMBER, fields[name]) is not None:
            raise TypeError(f"the {name} is no number")
    if _kind_refusal(ValueKind.INTEGER, fields.get("characters_max", 1)) is not None:
        raise TypeError("characters_max is no integer")
    if not isinstance(fields.get("description", ""), str):
        raise TypeError("the description is no text")


def _kind_refusal(kind: ValueKind, value: Json) -> str | None:
    return None if _FITS[kind](value) else f"{_shown(value)} is no {kind}"


def _is_integer(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Json) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


_FITS: Mapping[ValueKind, Callable[[Json], bool]] = MappingProxyType(
    {
        ValueKind.BOOLEAN: lambda value: isinstance(value, bool),
        ValueKind.INTEGER: _is_integer,
        ValueKind.NUMBER: _is_number,
        ValueKind.TEXT: lambda value: isinstance(value, str),
        ValueKind.JSON: lambda _: True,
    }
)


def _is_same(value: Json, other: Json) -> bool:
    """Equality that tells True from 1."""
    return type(value) is type(other) and bool(value == other)


def _shown(value: Json) -> str:
    return json.dumps(value)[:80]
