"""One configuration key as it stands at one revision, and how it is written in the store.

A setting carries its schema with its value, so one compare-and-set covers both.
A deleted setting stays as a revision without a value: revisions of a key only
grow, and whoever was away sees that it was deleted and set again.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pliska.discovery.errors import ConfigFormatError, ConfigUsageError, ValueRefusedError
from pliska.discovery.schema import Json, Schema, schema_from_document

FORMAT = 1
KEY_CHARACTERS_MAX = 200
VALUE_BYTES_MAX = 64 * 1024
NOTE_CHARACTERS_MAX = 500

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9][A-Za-z0-9_-]*)*")


class ChangeKind(StrEnum):
    """What made a revision."""

    SET = "set"
    DELETE = "delete"
    SCHEMA = "schema"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One revision of one key.

    Attributes:
        key: Words of letters, digits, '_' and '-', with dots between them.
        revision: 1, 2, 3 …, for ever growing, also when the key was deleted between.
        is_set: Whether it has a value.
        value: What JSON can say; None while it is not set.
        schema: What the value may be; None for anything.
        change: What made this revision.
        written_at: When, by the writer's clock, but never before the revision
            that came before it.
        author: Who made it, as they say themselves.
        note: Why.
    """

    key: str
    revision: int
    is_set: bool
    value: Json = None
    schema: Schema | None = None
    change: ChangeKind
    written_at: datetime
    author: str = ""
    note: str = ""

    def problem(self) -> str | None:
        """Why its schema refuses its value; None when it does not."""
        if self.schema is None or not self.is_set:
            return None
        reason = self.schema.refusal(self.value)
        return None if reason is None else f"the schema of {self.key} refuses it: {reason}"

    def to_document(self) -> dict[str, Json]:
        """As JSON."""
        return {
            "format": FORMAT,
            "key": self.key,
            "revision": self.revision,
            "is_set": self.is_set,
            "value": self.value,
            "schema": None if self.schema is None else self.schema.to_document(),
            "change": str(self.change),
            "written_at": self.written_at.isoformat(),
            "author": self.author,
            "note": self.note,
        }

    def to_bytes(self) -> bytes:
        """As the store keeps it.

        Raises:
            ValueRefusedError: The value is not JSON, or too large for any store.
        """
        try:
            size = len(json.dumps(self.value, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueRefusedError(f"the value of {self.key} is not JSON: {error}") from error
        if size > VALUE_BYTES_MAX:
            raise ValueRefusedError(
                f"the value of {self.key} takes {size} bytes; at most {VALUE_BYTES_MAX} fit"
            )
        return json.dumps(self.to_document(), separators=(",", ":")).encode()


def setting_from_bytes(content: bytes, key: str) -> Setting:
    """Read what `Setting.to_bytes` wrote, or somebody else in its place.

    Raises:
        ConfigFormatError: It is not a setting of this key.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigFormatError(f"what the store holds for {key} is not JSON") from error
    return setting_from_document(document, key)


def setting_from_document(document: Any, key: str) -> Setting:
    """Read what `Setting.to_document` wrote; nothing in it is trusted.

    Raises:
        ConfigFormatError: It is not a setting of this key.
    """
    try:
        if document["format"] != FORMAT:
            raise ConfigFormatError(
                f"{key} has the format {document['format']!r}, which this version of Pliska does "
                "not know: update it"
            )
        schema = document["schema"]
        _check_types(document)
        setting = Setting(
            key=document["key"],
            revision=document["revision"],
            is_set=document["is_set"],
            value=document["value"],
            schema=None if schema is None else schema_from_document(schema),
            change=ChangeKind(document["change"]),
            written_at=datetime.fromisoformat(document["written_at"]),
            author=document["author"],
            note=document["note"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigFormatError(f"what the store holds for {key} is not a setting") from error
    if setting.key != key or setting.revision < 1 or setting.written_at.tzinfo is not UTC:
        raise ConfigFormatError(f"what the store holds for {key} is not a setting of this key")
    return setting


def check_key(key: str) -> None:
    """Refuse what cannot be a key. Raises `ConfigUsageError`."""
    if len(key) > KEY_CHARACTERS_MAX or _KEY.fullmatch(key) is None:
        raise ConfigUsageError(
            f"{key[:80]!r} cannot be a configuration key: write words of letters, digits, '_' and "
            f"'-' with dots between them, at most {KEY_CHARACTERS_MAX} characters"
        )


def check_note(what: str, text: str) -> None:
    """Refuse an author or a note that is too long or not one line. Raises `ConfigUsageError`."""
    if len(text) > NOTE_CHARACTERS_MAX or not text.isprintable():
        raise ConfigUsageError(
            f"the {what} must be one line of at most {NOTE_CHARACTERS_MAX} printable characters"
        )


_TYPES = MappingProxyType({"revision": int, "is_set": bool, "author": str, "note": str})


def _check_types(document: Mapping[str, Json]) -> None:
    for name, expected in _TYPES.items():
        if type(document[name]) is not expected:
            raise TypeError(f"{name} is no {expected.__name__}")
