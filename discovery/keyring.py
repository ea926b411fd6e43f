"""Who may speak: names, their roles and their Ed25519 public keys, in the store.

A key belongs to one name for ever. A name has one key at a time; its holder can
change to another (`rotation`), and once it is revoked the name can be enrolled
with a new one. Revocation takes effect with the
next read, so a coordinator asks here for every message and keeps no copy.
Whoever can write to the store can enrol: the keyring guards against workers,
not against operators.

    keyring/keys/<key id>   one enrolled key (JSON), ':' written as '.'
    keyring/names/<name>    the id of the name's present key
"""

import re
from dataclasses import replace

from pliska.discovery.enrolled import (
    KEYS,
    Enrolled,
    KeyState,
    Role,
    decode_key,
    encode_key,
    is_name,
    key_path,
    require_name,
)
from pliska.discovery.errors import (
    KeyConflictError,
    KeyringFormatError,
    KeyringUsageError,
    NotEnrolledError,
    RevokedKeyError,
)
from pliska.discovery.keys import key_id
from pliska.discovery.rotation import Rotation, verify_rotation
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

NAMES = "keyring/names"
REASON_LENGTH_MAX = 500

_KEY_ID = re.compile(r"ed25519:[0-9a-f]{32}")


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
        require_name(name)
        new = Enrolled(name, role, public_key, key_id(public_key), KeyState.ACTIVE, "", Revision(0))
        self._require_free(new)
        previous = self._backend.get(_name_path(name))
        checks, change = _point_name_at(new, previous)
        try:
            revision = self._backend.transact(
                checks, [change, Create(key_path(new.key_id), encode_key(new))]
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
        record = self._backend.get(key_path(key_id))
        return None if record is None else decode_key(record)

    def named(self, name: str) -> Enrolled | None:
        """The present key of a name, active or revoked; None for an unknown or malformed name."""
        if not is_name(name):
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
        keys = [decode_key(record) for record in self._backend.list(KEYS).records]
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
        key = decode_key(record)
        if not key.is_active:
            return key
        revoked = replace(key, state=KeyState.REVOKED, reason=reason)
        try:
            self._backend.update(record.key, encode_key(revoked), expected=record.modified)
        except ConflictError:
            # A key's record changes only once: it was revoked, or rotated, and then the
            # name has another key, which is meant as well.
            return self.revoke(key_id_or_name, reason)
        return revoked

    def rotate(self, name: str, rotation: Rotation) -> Enrolled:
        """Give a name its next key; the old one counts no more from the same moment on.

        Args:
            name: Whose key changes.
            rotation: The new key, signed for by the old and the new one (`sign_rotation`).

        Returns:
            The new key, in the role of the old one.

        Raises:
            NotEnrolledError: There is no such name.
            RevokedKeyError: The old key or the new one has been revoked.
            KeyConflictError: The new key has a name, or the old one changed meanwhile.
            KeyRotationError: One of the keys has not signed the change.
        """
        old = self._require_active(name)
        verify_rotation(old, rotation)
        self._require_unknown(rotation.public_key, name)
        new = replace(old, public_key=rotation.public_key, key_id=key_id(rotation.public_key))
        retired = replace(old, state=KeyState.REVOKED, reason=f"rotated to {new.key_id}")
        checks, change = _point_name_at(new, self._backend.get(_name_path(name)))
        # An active key's record is as its enrolment wrote it; revoked meanwhile, it is not.
        checks.append(Unmodified(key_path(old.key_id), old.revision))
        changes = [
            change,
            Update(key_path(old.key_id), encode_key(retired)),
            Create(key_path(new.key_id), encode_key(new)),
        ]
        try:
            revision = self._backend.transact(checks, changes)
        except ConflictError as error:
            raise KeyConflictError(f"the key of {name} changed meanwhile: try again") from error
        return replace(new, revision=revision)

    def _require_active(self, name: str) -> Enrolled:
        found = self.named(name)
        if found is None:
            raise NotEnrolledError(
                f"nobody is enrolled as {name!r}: `pliska key list` shows who is"
            )
        if not found.is_active:
            raise RevokedKeyError(
                f"{found.key_id} of {name} was revoked ({found.reason}): enrol a new key instead"
            )
        return found

    def _require_record(self, key_id: str) -> Record:
        record = self._backend.get(key_path(key_id))
        if record is None:
            raise KeyringFormatError(f"{key_path(key_id)} disappeared from the store")
        return record

    def _require_unknown(self, public_key: bytes, name: str) -> None:
        """Refuse a key that is or was somebody's."""
        known = self.find(key_id(public_key))
        if known is not None and not known.is_active:
            raise RevokedKeyError(
                f"{known.key_id} was revoked ({known.reason}): make a new key for {name}"
            )
        if known is not None:
            raise KeyConflictError(
                f"{known.key_id} is already enrolled, as {known.role} {known.name}"
            )

    def _require_free(self, new: Enrolled) -> None:
        """Refuse a name or a key that is taken."""
        self._require_unknown(new.public_key, new.name)
        same_name = self.named(new.name)
        if same_name is not None and same_name.is_active:
            raise KeyConflictError(
                f"{new.name} is already enrolled with another key, {same_name.key_id}: "
                "take another name, or revoke that key first"
            )


def _point_name_at(new: Enrolled, previous: Record | None) -> tuple[list[Check], Change]:
    """The change that gives a name its key, provided nobody else gave it one meanwhile."""
    value = new.key_id.encode()
    if previous is None:
        return [], Create(_name_path(new.name), value)
    return [Unmodified(previous.key, previous.modified)], Update(previous.key, value)


def _name_path(name: str) -> str:
    return f"{NAMES}/{name}"
