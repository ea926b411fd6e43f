"""From the text of a job file to checked values, with the line of whatever is wrong.

Knows TOML and expectations; which keys there are is for `job` to say: a field
of a dataclass is a key when its annotation carries an expectation, and a table
when it is a dataclass itself.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.expectations import (
    Expectation,
    OtherKeys,
    UnexpectedValueError,
    kind_of,
)
from pliska.coordinator.wire.toml_lines import KeyPath, TomlLines

JOB_FILE_BYTES_MAX = 64 * 1024
"""A job file fits a store's record with room to spare."""


def read_values(kind: type, text: str, source: str) -> dict[str, Any]:
    """The keyword arguments of the dataclass `kind` that the whole file gives.

    Raises:
        JobFileError: The text is not TOML, or a key or value is not as `kind` has it.
    """
    document, lines = _parse_toml(text, source)
    return _Reader(source, lines, kind).read_table(kind, document, ())


def tables_of(kind: type) -> dict[str, type]:
    """The fields that are dataclasses: tables of the file."""
    return {
        name: annotation
        for name, annotation in get_type_hints(kind).items()
        if isinstance(annotation, type) and is_dataclass(annotation)
    }


def expectations_of(kind: type) -> dict[str, Expectation]:
    """The fields whose annotation carries an expectation: keys of the table."""
    carried = {
        name: get_args(annotation)[1:]
        for name, annotation in get_type_hints(kind, include_extras=True).items()
        if hasattr(annotation, "__metadata__")
    }
    return {name: metadata[0] for name, metadata in carried.items()}


def defaults_of(kind: type) -> dict[str, Any]:
    """The values that a file may leave out."""
    values: dict[str, Any] = {}
    for each in fields(kind):
        if each.default is not MISSING:
            values[each.name] = each.default
        elif each.default_factory is not MISSING:
            values[each.name] = each.default_factory()
    return values


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tables of one file, and knows where in it each key stands."""

    source: str
    lines: TomlLines
    root: type

    def read_table(self, kind: type, table: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        expectations, tables, defaults = expectations_of(kind), tables_of(kind), defaults_of(kind)
        others = [key for key in table if key not in expectations and key not in tables]
        takes_others = any(isinstance(each, OtherKeys) for each in expectations.values())
        if others and not takes_others:
            raise self._unknown_key(kind, (*path, others[0]))
        values: dict[str, Any] = {}
        for name, expected in expectations.items():
            if isinstance(expected, OtherKeys):
                values[name] = {
                    key: self._accept(expected, {key: table[key]}, (*path, key))[key]
                    for key in others
                }
            elif name in table:
                values[name] = self._accept(expected, table[name], (*path, name))
            elif name not in defaults:
                raise self._error((*path, name), "is missing", f"write {expected.description}")
        for name, inner in tables.items():
            content = table.get(name, {})
            if not isinstance(content, dict):
                raise self._error((*path, name), f"is {kind_of(content)}", f"write [{name}]")
            values[name] = inner(**self.read_table(inner, content, (*path, name)))
        return values

    def _accept(self, expected: Expectation, value: object, path: KeyPath) -> Any:
        try:
            return expected.accept(value)
        except UnexpectedValueError as error:
            raise self._error(path, str(error), f"write {expected.description}") from error

    def _unknown_key(self, kind: type, path: KeyPath) -> JobFileError:
        unknown = path[-1]
        known = [*expectations_of(kind), *tables_of(kind)]
        homes = [
            name
            for name, table in tables_of(self.root).items()
            if unknown in expectations_of(table)
        ]
        close = difflib.get_close_matches(unknown, known, n=1)
        if close:
            advice = f'did you mean "{close[0]}"?'
        elif homes:
            advice = f"it belongs in [{homes[0]}]"
        else:
            advice = f"the keys here are {', '.join(known)}"
        return self._error(path, "is not a key of the job file", advice)

    def _error(self, path: KeyPath, problem: str, advice: str) -> JobFileError:
        line = self.lines.line_of(path)
        return JobFileError(self.source, line, f"{'.'.join(path)} {problem}", advice)


def _parse_toml(text: str, source: str) -> tuple[dict[str, Any], TomlLines]:
    if len(text.encode()) > JOB_FILE_BYTES_MAX:
        raise JobFileError(
            source, 1, "the job file is too long", f"write at most {JOB_FILE_BYTES_MAX} bytes"
        )
    try:
        return tomllib.loads(text), TomlLines(text)
    except RecursionError as error:
        raise JobFileError(
            source, 1, "values are nested too deeply", "nest lists and tables less"
        ) from error
    except ValueError as error:  # a TOMLDecodeError, or int's limit on digits
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found.group(1)) if found else max(1, len(text.splitlines()))
        problem = str(error).partition(" (at ")[0]
        raise JobFileError(
            source,
            line,
            f"this is not TOML: {problem[:1].lower()}{problem[1:]}",
            'write [table] or key = value, with texts in "double quotes"',
        ) from error
