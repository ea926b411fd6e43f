"""What a value of the job file may be: its type, its range, and how to say so.

Each expectation is a small frozen dataclass that stands in the annotation of a
field (`count: Annotated[int, Whole(1, 100)]`). `accept` returns the value in
the field's type or raises `UnexpectedValueError`; `description` completes the
sentence "write …" and is what the reference documents.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

TEXT_LENGTH_MAX = 1000
DEPTH_MAX = 8
"""How deep lists and tables of an argument may nest."""

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}


class UnexpectedValueError(ValueError):
    """A value is not what its key expects. The message completes "KEY …"."""


class Expectation(Protocol):
    """What the value of one key may be."""

    @property
    def description(self) -> str:
        """Completes "write …": "a whole number from 1 to 100"."""

    def accept(self, value: object) -> Any:
        """The value in its field's type. Raises `UnexpectedValueError`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a closed range."""

    least: int
    most: int

    @property
    def description(self) -> str:
        """The range in words."""
        return f"a whole number from {self.least} to {self.most}"

    def accept(self, value: object) -> int:
        """The number itself."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnexpectedValueError(f"is {kind_of(value)}")
        if not self.least <= value <= self.most:
            raise UnexpectedValueError(f"is {value}")
        return value


@dataclass(frozen=True, slots=True)
class WholeOrAuto:
    """A whole number in a closed range, or "auto": to be found out while it runs."""

    least: int
    most: int

    @property
    def description(self) -> str:
        """The range in words."""
        return f'"auto" or {Whole(self.least, self.most).description}'

    def accept(self, value: object) -> int | Literal["auto"]:
        """The number itself, or the word."""
        if isinstance(value, str):
            if value != "auto":
                raise UnexpectedValueError(f"is {value!r}")
            return "auto"
        return Whole(self.least, self.most).accept(value)


@dataclass(frozen=True, slots=True)
class Real:
    """A number in a closed range."""

    least: float
    most: float
    noun: ClassVar[str] = "a number"

    @property
    def description(self) -> str:
        """The range in words."""
        return f"{self.noun} from {self.least:g} to {self.most:g}"

    def accept(self, value: object) -> float:
        """The number as a float; whole numbers are taken too."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnexpectedValueError(f"is {kind_of(value)}")
        if not self.least <= value <= self.most:
            raise UnexpectedValueError(f"is {value}")
        return float(value)


class Seconds(Real):
    """A time span in a closed range."""

    __slots__ = ()
    noun = "a number of seconds"


@dataclass(frozen=True, slots=True)
class Text:
    """A text that matches a pattern; `wording` says the pattern in words."""

    pattern: str
    wording: str

    @property
    def description(self) -> str:
        """The pattern in words."""
        return self.wording

    def accept(self, value: object) -> str:
        """The text itself."""
        if not isinstance(value, str):
            raise UnexpectedValueError(f"is {kind_of(value)}")
        if len(value) > TEXT_LENGTH_MAX:
            raise UnexpectedValueError(f"has {len(value)} characters")
        if re.fullmatch(self.pattern, value) is None:
            raise UnexpectedValueError(f"is {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def description(self) -> str:
        """The words, quoted."""
        return "one of " + ", ".join(f'"{word}"' for word in self.words)

    def accept(self, value: object) -> str:
        """The word itself."""
        if not isinstance(value, str):
            raise UnexpectedValueError(f"is {kind_of(value)}")
        if value not in self.words:
            raise UnexpectedValueError(f"is {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Arguments:
    """A table of values that JSON can carry too, for a function that we do not know."""

    @property
    def description(self) -> str:
        """What the table may hold."""
        return (
            "a table of texts, finite numbers, true or false, lists and tables, "
            f"at most {DEPTH_MAX} deep"
        )

    def accept(self, value: object) -> Mapping[str, Any]:
        """The table itself."""
        if not isinstance(value, dict):
            raise UnexpectedValueError(f"is {kind_of(value)}")
        _require_plain(value, depth=0)
        return value


@dataclass(frozen=True, slots=True)
class OtherKeys(Arguments):
    """Every key of the table that no other field names."""

    @property
    def description(self) -> str:
        """What each of the keys may hold."""
        return "a text, a finite number, true or false, a list or a table"


def kind_of(value: object) -> str:
    """The TOML type of a value, in words."""
    return _KINDS.get(type(value), "a date or time")


def _require_plain(value: object, depth: int) -> None:
    """Refuse what JSON cannot carry: dates, NaN and infinity, numbers beyond 64 bits."""
    if depth > DEPTH_MAX:
        raise UnexpectedValueError("is nested too deeply")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _require_plain(item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnexpectedValueError(f"holds {value}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UnexpectedValueError("holds a number beyond 64 bits")
    elif type(value) not in _KINDS:
        raise UnexpectedValueError("holds a date or time")
