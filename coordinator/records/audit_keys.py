"""Whose signature is whose: the public keys that an audit trusts, from the store or from a file.

A key that has been revoked still proves what it signed before, so revoked keys
are known here too; a report names them. Nothing here is asked while a job runs:
`pliska.discovery.Keyring` is.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliska.coordinator.errors import AuditUsageError, DamagedStateError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.wire.encoding import MessageT
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.messages import GradientHeader, Receipt
from pliska.coordinator.wire.signing import Signed, verify
from pliska.discovery import Enrolled, Role
from pliska.discovery.enrolled import KeyState
from pliska.discovery.keys import SCHEME, key_id, load_public_key, parse_public_text

KEYS_FILE_BYTES_MAX = 16 * 2**20
"""Largest file of keys that is read."""
NOBODY_IN_PARTICULAR = ""
"""Holder of a key that was given without a name."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One public key.

    Attributes:
        holder: Whose it is; `NOBODY_IN_PARTICULAR` where that was not said.
        revoked: Why it was revoked; empty where it was not.
    """

    key_id: str
    public_key: bytes
    role: Role
    holder: str
    revoked: str = ""


class KeyBook:
    """The keys that an audit trusts, by key id."""

    def __init__(self, keys: Iterable[KnownKey]) -> None:
        self._keys: Mapping[str, KnownKey] = {key.key_id: key for key in keys}

    @classmethod
    def of_enrolled(cls, enrolled: Iterable[Enrolled]) -> "KeyBook":
        """Trust what a store's keyring says."""
        return cls(
            KnownKey(each.key_id, each.public_key, each.role, each.name, each.reason)
            for each in enrolled
        )

    def find(self, identity: str) -> KnownKey | None:
        """Find a key by its id."""
        return self._keys.get(identity)

    def coordinator(self, identity: str) -> bytes | None:
        """Look up the public key of a coordinator."""
        return self._of_role(identity, Role.COORDINATOR)

    def worker(self, identity: str) -> bytes | None:
        """Look up the public key of a worker."""
        return self._of_role(identity, Role.WORKER)

    def commit(self, signed: Signed, job: str) -> Commit:
        """Check a commit record's signature.

        Raises:
            DamagedStateError: No coordinator of ours signed this record of this job.
        """
        return Commit.verified(signed.to_bytes(), job, self.coordinator)

    def header(self, signed: Signed) -> GradientHeader:
        """Check a worker's signature on a gradient's header.

        Raises:
            DamagedStateError: The worker that it names has not signed it.
        """
        try:
            header = verify(signed, GradientHeader, self.worker).message
        except WireError as error:
            raise DamagedStateError(f"a gradient's header is refused: {error}") from error
        key = self._keys[signed.key_id]
        if key.holder not in (header.worker, NOBODY_IN_PARTICULAR):
            raise DamagedStateError(
                f"a header names worker {header.worker}, but {key.holder} signed it"
            )
        return header

    def receipt(self, signed: Signed) -> Receipt:
        """Check a coordinator's signature on a receipt.

        Raises:
            DamagedStateError: No coordinator of ours signed it.
        """
        return self.statement(signed, Receipt)

    def statement(self, signed: Signed, message_type: type[MessageT]) -> MessageT:
        """Check a coordinator's signature on any message of this type.

        Raises:
            DamagedStateError: No coordinator of ours signed it.
        """
        try:
            return verify(signed, message_type, self.coordinator).message
        except WireError as error:
            raise DamagedStateError(f"a coordinator's word is refused: {error}") from error

    def _of_role(self, identity: str, role: Role) -> bytes | None:
        key = self._keys.get(identity)
        return key.public_key if key is not None and key.role is role else None


def read_keys(path: Path) -> KeyBook:
    """Read the keys that `pliska key list -o json` wrote.

    Raises:
        AuditUsageError: The file cannot be read or is no such list.
    """
    try:
        with path.open("rb") as file:  # of what is cut off here, no JSON is left
            content = file.read(KEYS_FILE_BYTES_MAX)
        return KeyBook(_key(row) for row in json.loads(content)["keys"])
    except OSError as error:
        raise AuditUsageError(f"cannot read the keys in {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AuditUsageError(
            f"{path} is no list of keys ({error}): write it with `pliska key list -o json`"
        ) from error


def key_given(text: str) -> KnownKey:
    """Read a key from a command line: `ROLE=KEY`, such as `coordinator=ed25519:…`.

    Raises:
        AuditUsageError: It is not written so.
        KeyFileError: It names a file that cannot be read.
    """
    role, separator, key = text.partition("=")
    if not separator or role not in (Role.COORDINATOR, Role.WORKER):
        raise AuditUsageError(
            f"--key {text[:80]!r}: write coordinator=KEY or worker=KEY, "
            "with a public key or the file of one"
        )
    public = parse_public_text(key) if key.startswith(SCHEME) else load_public_key(key)
    return KnownKey(key_id(public), public, Role(role), NOBODY_IN_PARTICULAR)


def _key(row: Mapping[str, Any]) -> KnownKey:
    public = parse_public_text(row["public_key"])
    is_revoked = KeyState(row["state"]) is KeyState.REVOKED
    reason = str(row["reason"] or "no reason was given") if is_revoked else ""
    return KnownKey(key_id(public), public, Role(row["role"]), str(row["name"]), reason)
