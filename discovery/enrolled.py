"""One key of the keyring: whose it is, what it may do, and how the store keeps it."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pliska.discovery.errors import KeyringFormatError, KeyringUsageError
from pliska.discovery.keys import key_id, parse_public_text, public_text
from pliska.locks import Record, Revision

KEYS = "keyring/keys"
FORMAT = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Role(StrEnum):
    """What the holder of a key may do."""

    WORKER = "worker"
    COORDINATOR = "coordinator"
    PUBLISHER = "publisher"


class KeyState(StrEnum):
    """Whether signatures of a key count."""

    ACTIVE = "active"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Enrolled:
    """One key of the keyring.

    Attributes:
        name: Who holds it.
        role: What the holder may do.
        public_key: 32 bytes.
        key_id: Short name of the key itself, see `pliska.discovery.keys.key_id`.
        state: A revoked key stays in the keyring, so that what it signed
            before can still be traced, but counts no more.
        reason: Why it was revoked; empty while it is active.
        revision: The store's revision at which it was enrolled.
    """

    name: str
    role: Role
    public_key: bytes
    key_id: str
    state: KeyState
    reason: str
    revision: Revision

    @property
    def is_active(self) -> bool:
        """Whether its signatures count."""
        return self.state is KeyState.ACTIVE


def is_name(name: str) -> bool:
    """Whether this can be somebody's name."""
    return _NAME.fullmatch(name) is not None


def require_name(name: str) -> None:
    """Refuse what cannot be a name. Raises `KeyringUsageError`."""
    if not is_name(name):
        raise KeyringUsageError(
            f"{name!r} cannot be a name: write 1 to 63 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def key_path(key_id: str) -> str:
    """Where the store keeps the key."""
    return f"{KEYS}/{key_id.replace(':', '.')}"


def encode_key(key: Enrolled) -> bytes:
    """The record of a key."""
    document = {
        "format": FORMAT,
        "name": key.name,
        "role": key.role,
        "public_key": public_text(key.public_key),
        "state": key.state,
        "reason": key.reason,
    }
    return json.dumps(document).encode()


def decode_key(record: Record) -> Enrolled:
    """The key in a record, of which nothing is trusted: whoever reaches the store may write it.

    Raises:
        KeyringFormatError: It is no key of ours.
    """
    try:
        document: dict[str, Any] = json.loads(record.value)
        if document["format"] != FORMAT:
            raise KeyringFormatError(
                f"{record.key} has the format {document['format']!r}, which this version of "
                "Pliska does not know: update it"
            )
        public_key = parse_public_text(document["public_key"])
        key = Enrolled(
            name=document["name"],
            role=Role(document["role"]),
            public_key=public_key,
            key_id=key_id(public_key),
            state=KeyState(document["state"]),
            reason=document["reason"],
            revision=record.created,
        )
        require_name(key.name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise KeyringFormatError(f"{record.key} in the store is not an enrolled key") from error
    if record.key != key_path(key.key_id) or not isinstance(key.reason, str):
        raise KeyringFormatError(f"{record.key} in the store is not an enrolled key")
    return key
