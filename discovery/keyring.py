"""Who may speak: names, their roles and their Ed25519 public keys, in the store.

A key belongs to one name for ever. A name has one key at a time; once that is
revoked it can be enrolled with a new one. Revocation takes effect with the
next read, so a coordinator asks here for every message and keeps no copy.
Whoever can write to the store can enrol: the keyring guards against workers,
not against operators.

    keyring/keys/<key id>   one enrolled key (JSON), ':' written as '.'
    keyring/names/<name>    the id of the name's present key
"""

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pliska.discovery.errors import (
    KeyConflictError,
    KeyringFormatError,
    KeyringUsageError,
    NotEnrolledError,
    RevokedKeyError,
)
from pliska.discovery.keys import key_id, parse_public_text, public_text
from pliska.locks.backends.base import (
    Backend,
    Change,
    Check,
    Create,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.errors import ConflictError

KEYS = "keyring/keys"
NAMES = "keyring/names"
FORMAT = 1
REASON_LENGTH_MAX = 500

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY_ID = re.compile(r"ed25519:[0-9a-f]{32}")


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


class Keyring:
    """The keyring in one store. Safe to use from any thread, as its backend is.

    Every method may also raise the store's own errors (`pliska.locks.StoreError`),
    and `KeyringFormatError` when what it reads is not a keyring of ours.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def enroll(self, name: str, role: Role, public_key: bytes) -> Enrolled:
        """Add a key; of two attempts at one name or one key, one wins.

        Args:
            name: 1 to 63 letters, digits, '.', '_' and '-', not beginning with
                a mark. May be in use only with a revoked key.
            role: What the holder may do.
            public_key: 32 bytes.

        Raises:
            KeyringUsageError: The name or the key is malformed.
            KeyConflictError: The name has an active key, or the key has a name.
            RevokedKeyError: The key has been revoked.
        """
        _require_name(name)
        new = Enrolled(name, role, public_key, key_id(public_key), KeyState.ACTIVE, "", Revision(0))
        self._require_free(new)
        previous = self._backend.get(_name_path(name))
        checks, change = _point_name_at(new, previous)
        try:
            revision = self._backend.transact(
                checks, [change, Create(_key_path(new.key_id), _encode(new))]
            )
        except ConflictError as error:
            self._require_free(new)
            raise KeyConflictError(
                f"{name} or its key was changed by somebody else meanwhile: try again"
            ) from error
        return replace(new, revision=revision)

    def find(self, key_id: str) -> Enrolled | None:
        """The key with this id, active or revoked; None for an unknown or malformed id."""
        if _KEY_ID.fullmatch(key_id) is None:
            return None
        record = self._backend.get(_key_path(key_id))
        return None if record is None else _decode(record)

    def named(self, name: str) -> Enrolled | None:
        """The present key of a name, active or revoked; None for an unknown or malformed name."""
        if _NAME.fullmatch(name) is None:
            return None
        record = self._backend.get(_name_path(name))
        if record is None:
            return None
        found = self.find(record.value.decode("ascii", "replace"))
        if found is None or found.name != name:
            raise KeyringFormatError(f"{record.key} in the store names no key of {name}")
        return found

    def list(self, role: Role | None = None) -> tuple[Enrolled, ...]:
        """All keys, or those of one role, in the order of their enrolment."""
        keys = [_decode(record) for record in self._backend.list(KEYS).records]
        return tuple(key for key in keys if role is None or key.role is role)

    def revoke(self, key_id_or_name: str, reason: str) -> Enrolled:
        """Make a key count no more, at once and for ever.

        Args:
            key_id_or_name: A key id, or a name, whose present key is meant.
            reason: Why, for whoever reads the list later; 1 to
                `REASON_LENGTH_MAX` characters.

        Returns:
            The revoked key. One that was revoked before keeps its first reason.

        Raises:
            NotEnrolledError: There is no such key.
            KeyringUsageError: The reason is empty or too long.
        """
        if not 1 <= len(reason) <= REASON_LENGTH_MAX or not reason.isprintable():
            raise KeyringUsageError(
                f"give a reason of 1 to {REASON_LENGTH_MAX} printable characters in one line"
            )
        found = self.find(key_id_or_name) or self.named(key_id_or_name)
        if found is None:
            raise NotEnrolledError(
                f"no key {key_id_or_name!r} is enrolled: `pliska key list` shows those that are"
            )
        record = self._require_record(found.key_id)
        key = _decode(record)
        if not key.is_active:
            return key
        revoked = replace(key, state=KeyState.REVOKED, reason=reason)
        try:
            self._backend.update(record.key, _encode(revoked), expected=record.modified)
        except ConflictError:
            # A key's record changes only once, so somebody else revoked it first.
            return _decode(self._require_record(found.key_id))
        return revoked

    def _require_record(self, key_id: str) -> Record:
        record = self._backend.get(_key_path(key_id))
        if record is None:
            raise KeyringFormatError(f"{_key_path(key_id)} disappeared from the store")
        return record

    def _require_free(self, new: Enrolled) -> None:
        """Refuse a name or a key that is taken."""
        same_key = self.find(new.key_id)
        if same_key is not None and not same_key.is_active:
            raise RevokedKeyError(
                f"{new.key_id} was revoked ({same_key.reason}): make a new key for {new.name}"
            )
        if same_key is not None:
            raise KeyConflictError(
                f"{new.key_id} is already enrolled, as {same_key.role} {same_key.name}"
            )
        same_name = self.named(new.name)
        if same_name is not None and same_name.is_active:
            raise KeyConflictError(
                f"{new.name} is already enrolled with another key, {same_name.key_id}: "
                "take another name, or revoke that key first"
            )


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise KeyringUsageError(
            f"{name!r} cannot be a name: write 1 to 63 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def _point_name_at(new: Enrolled, previous: Record | None) -> tuple[list[Check], Change]:
    """The change that gives a name its key, provided nobody else gave it one meanwhile."""
    value = new.key_id.encode()
    if previous is None:
        return [], Create(_name_path(new.name), value)
    return [Unmodified(previous.key, previous.modified)], Update(previous.key, value)


def _key_path(key_id: str) -> str:
    return f"{KEYS}/{key_id.replace(':', '.')}"


def _name_path(name: str) -> str:
    return f"{NAMES}/{name}"


def _encode(key: Enrolled) -> bytes:
    document = {
        "format": FORMAT,
        "name": key.name,
        "role": key.role,
        "public_key": public_text(key.public_key),
        "state": key.state,
        "reason": key.reason,
    }
    return json.dumps(document).encode()


def _decode(record: Record) -> Enrolled:
    """Trust nothing in the record: whoever reaches the store may have written it."""
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
        _require_name(key.name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise KeyringFormatError(f"{record.key} in the store is not an enrolled key") from error
    if record.key != _key_path(key.key_id) or not isinstance(key.reason, str):
        raise KeyringFormatError(f"{record.key} in the store is not an enrolled key")
    return key
