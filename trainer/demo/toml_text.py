"""Writes TOML from data: the standard library reads it only.

Knows what a job file holds: texts, whole and finite numbers, true and false,
lists, tables, and tables inside values. It is not a general writer (dates,
arrays of tables). Called by `jobs`.

Source: TOML 1.0.0, the sections "String", "Keys", "Table" and "Inline Table".
"""

import json
import math
from collections.abc import Mapping, Sequence

Value = str | bool | int | float | Sequence["Value"] | Mapping[str, "Value"]


def toml_text(document: Mapping[str, Value]) -> str:
    """Return the document as TOML: first the plain keys, then one table for each mapping.

    Raises:
        ValueError: A value that TOML cannot hold: NaN or infinity, which no
            job file takes, or a text that is not Unicode.
        TypeError: A value of another type.
    """
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in document.items() if isinstance(value, Mapping)}
    blocks = [_lines(plain)] if plain else []
    blocks += [f"[{_text(name)}]\n{_lines(table)}" for name, table in tables.items()]
    return "\n".join(blocks)


def _lines(table: Mapping[str, Value]) -> str:
    return "".join(f"{_text(key)} = {_value(value)}\n" for key, value in table.items())


def _value(value: Value) -> str:
    match value:
        case str():
            return _text(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case float():
            raise ValueError(f"{value} has no place in a job file")
        case Mapping():
            pairs = (f"{_text(key)} = {_value(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case Sequence():
            return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"{type(value).__name__} has no place in a job file")


def _text(text: str) -> str:
    """Quote a text or a key.

    JSON's escapes are a subset of TOML's. DEL is the one character that JSON
    leaves alone and TOML wants escaped.
    """
    text.encode()  # A lone surrogate, from a path that is not UTF-8, raises UnicodeEncodeError.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
