"""A record as Consul keeps it: one key-value pair.

Key, value and session are the record's own. `created` is the pair's
CreateIndex and `modified` its ModifyIndex. LockIndex is not used: it starts
again with every deletion, and any plain write resets it.
"""

import base64
from collections.abc import Mapping
from typing import Any

from pliska.locks.backends.base import Record, Revision
from pliska.locks.errors import StoreFormatError

GO_LOCK_FLAGS = 0x2DDCCBC058A50C18
"""Marks a lock of Consul's own clients (LockFlagValue of its Go package)."""

_OUR_FLAGS = 1 << 63


def flags_from(random_bits: int) -> int:
    """The flags of one write: random, so that no write equals the one before it.

    Consul skips a write that changes nothing, and its index then stays behind.
    """
    return _OUR_FLAGS | random_bits


def written(value: bytes, flags: int) -> dict[str, Any]:
    """The part of an operation that says what to store."""
    return {"Value": base64.b64encode(value).decode("ascii"), "Flags": flags}


def record_of(pair: Mapping[str, Any], prefix: str) -> Record:
    """A record from a pair of the answer to a read, whose value is decoded.

    Raises:
        StoreFormatError: It is not a pair of Consul's.
    """
    match pair:
        case {
            "Key": str(key),
            "Value": bytes() | None as value,
            "Flags": int(flags),
            "CreateIndex": int(created),
            "ModifyIndex": int(modified),
        } if key.startswith(prefix):
            session_id = pair.get("Session")
            if flags == GO_LOCK_FLAGS and session_id is not None:
                # Its key may have been there, free, for long: holding began with the last write.
                created = modified
            return Record(
                key.removeprefix(prefix),
                value or b"",
                Revision(created),
                Revision(modified),
                None if session_id is None else str(session_id),
            )
    raise StoreFormatError(f"Consul answered with a pair that is none: {str(pair)[:200]}")
