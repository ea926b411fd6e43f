"""Canonical JSON objects, and reading them strictly.

A record's bytes are its identity (their digest is compared and chained), so
there is one way to write each: keys sorted, no spaces, UTF-8, no NaN. Reading
refuses whatever would not be written so: other spacing, a repeated key, an
unknown or missing field, a wrong type, a number out of range. Used for every
record and manifest of the registry; the wire has its own binary encoding.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from pliska.coordinator.registry.digest import Digest, parse_digest
from pliska.coordinator.registry.errors import IntegrityError, RegistryUsageError

INTEGER_MAX = 2**53 - 1
"""Largest integer that every JSON reader keeps exact."""
TEXT_CHARACTERS_MAX = 4096
"""Longest text of one field."""

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def timestamp(now: datetime) -> str:
    """Return a time as records keep it: ISO 8601, UTC, milliseconds."""
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """Return the time that `timestamp` wrote. Raises `ValueError` where it is none."""
    time = datetime.fromisoformat(text)
    if timestamp(time) != text:
        raise ValueError(f"{text!r} is not a time such as 2031-05-04T03:02:01.000Z")
    return time


def canonical_bytes(fields: Mapping[str, Any]) -> bytes:
    """Write `fields` in the one canonical way.

    Raises:
        RegistryUsageError: A value has no canonical form (NaN, infinity, a lone surrogate).
    """
    try:
        return _encode(fields)
    except ValueError as error:
        raise RegistryUsageError(f"a value that JSON cannot hold: {error}") from error


def read_document(content: bytes, bytes_max: int, what: str) -> "Document":
    """Read one canonical JSON object.

    Args:
        content: The bytes, not trusted.
        bytes_max: More than this is refused before it is parsed.
        what: Names the record in messages.

    Raises:
        IntegrityError: The bytes are not the canonical form of one object.
    """
    if len(content) > bytes_max:
        raise IntegrityError(f"{what}: {len(content)} bytes, more than {bytes_max}")
    try:
        fields = json.loads(content)
        canonical = isinstance(fields, dict) and _encode(fields) == content
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what}: not JSON of the registry: {error}") from error
    if not canonical:
        raise IntegrityError(f"{what}: not a JSON object in canonical form")
    return Document(fields, what)


class Document:
    """The fields of one JSON object; each is taken once, by type, and none may be left over."""

    def __init__(self, fields: Mapping[str, Any], what: str) -> None:
        self._fields = dict(fields)
        self._what = what

    def check_format(self, expected: str) -> None:
        """Take the field `format` and refuse any other."""
        if self.text("format") != expected:
            raise self.bad("format", expected)

    def text(self, name: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
        """Take a text of at most `characters_max`."""
        value = self._take(name)
        if not isinstance(value, str) or len(value) > characters_max:
            raise self.bad(name, f"a text of at most {characters_max} characters")
        return value

    def optional_text(self, name: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str | None:
        """Take a text or null."""
        return None if self._drop_null(name) else self.text(name, characters_max)

    def choice(self, name: str, kinds: type[ChoiceT]) -> ChoiceT:
        """Take one of the words of an enumeration."""
        word = self.text(name)
        if word not in set(kinds):
            raise self.bad(name, "one of " + ", ".join(kinds))
        return kinds(word)

    def time(self, name: str) -> str:
        """Take a time as `timestamp` writes it."""
        text = self.text(name)
        try:
            moment(text)
        except ValueError as error:
            raise self.bad(name, "a time such as 2031-05-04T03:02:01.000Z") from error
        return text

    def optional_time(self, name: str) -> str | None:
        """Take a time or null."""
        return None if self._drop_null(name) else self.time(name)

    def integer(self, name: str, minimum: int = 0) -> int:
        """Take an integer from `minimum` to `INTEGER_MAX`."""
        value = self._take(name)
        if type(value) is not int or not minimum <= value <= INTEGER_MAX:
            raise self.bad(name, f"an integer from {minimum}")
        return value

    def boolean(self, name: str) -> bool:
        """Take true or false."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise self.bad(name, "true or false")
        return value

    def integers(self, name: str, count_max: int, minimum: int = 0) -> tuple[int, ...]:
        """Take a list of integers."""
        items = self.items(name, count_max)
        if any(type(item) is not int or not minimum <= item <= INTEGER_MAX for item in items):
            raise self.bad(name, f"a list of integers from {minimum}")
        return tuple(items)

    def optional_integer(self, name: str, minimum: int = 0) -> int | None:
        """Take an integer or null."""
        return None if self._drop_null(name) else self.integer(name, minimum)

    def digest(self, name: str) -> Digest:
        """Take a digest."""
        return parse_digest(self.text(name), f"{self._what}: {name}")

    def optional_digest(self, name: str) -> Digest | None:
        """Take a digest or null."""
        return None if self._drop_null(name) else self.digest(name)

    def items(self, name: str, count_max: int) -> list[Any]:
        """Take a list of at most `count_max` values of any type; the caller checks each."""
        value = self._take(name)
        if not isinstance(value, list) or len(value) > count_max:
            raise self.bad(name, f"a list of at most {count_max}")
        return value

    def optional_items(self, name: str, count_max: int) -> list[Any] | None:
        """Take a list or null."""
        return None if self._drop_null(name) else self.items(name, count_max)

    def texts(self, name: str, count_max: int) -> tuple[str, ...]:
        """Take a list of texts."""
        return tuple(self._checked_text(name, item) for item in self.items(name, count_max))

    def digests(self, name: str, count_max: int) -> tuple[Digest, ...]:
        """Take a list of digests."""
        return tuple(
            parse_digest(text, f"{self._what}: {name}") for text in self.texts(name, count_max)
        )

    def text_map(self, name: str, count_max: int) -> dict[str, str]:
        """Take an object whose values are texts."""
        return {
            self._checked_text(name, key): self._checked_text(name, value)
            for key, value in self._object(name, count_max).items()
        }

    def number_map(self, name: str, count_max: int) -> dict[str, float]:
        """Take an object whose values are finite numbers."""
        numbers = {}
        for key, value in self._object(name, count_max).items():
            if type(value) not in (int, float) or not math.isfinite(value):
                raise self.bad(f"{name}.{key}"[:80], "a finite number")
            numbers[self._checked_text(name, key)] = float(value)
        return numbers

    def document(self, name: str) -> "Document":
        """Take an object with its own fields."""
        return Document(self._object(name, count_max=64), f"{self._what}: {name}")

    def optional_document(self, name: str) -> "Document | None":
        """Take an object or null."""
        return None if self._drop_null(name) else self.document(name)

    def finish(self) -> None:
        """Refuse fields that nobody took."""
        if self._fields:
            names = ", ".join(sorted(self._fields))[:200]
            raise IntegrityError(
                f"{self._what}: unknown fields {names}; written by a newer Pliska?"
            )

    def bad(self, name: str, expected: str) -> IntegrityError:
        """Return the error that says what the field `name` should have been."""
        return IntegrityError(f"{self._what}: {name} must be {expected}")

    def _take(self, name: str) -> Any:
        if name not in self._fields:
            raise IntegrityError(f"{self._what}: {name} is missing")
        return self._fields.pop(name)

    def _drop_null(self, name: str) -> bool:
        if name in self._fields and self._fields[name] is None:
            del self._fields[name]
            return True
        return False

    def _object(self, name: str, count_max: int) -> dict[str, Any]:
        value = self._take(name)
        if not isinstance(value, dict) or len(value) > count_max:
            raise self.bad(name, f"an object of at most {count_max} fields")
        return value

    def _checked_text(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
            raise self.bad(name, f"made of texts of at most {TEXT_CHARACTERS_MAX} characters")
        return value


def _encode(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")
