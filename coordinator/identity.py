"""The key that a coordinator signs with: found or made, and enrolled.

On one machine coordinators of one store share a key file beside the store;
where the store spans machines each names its own file. Whoever can write to the
store decides whom it trusts, so a coordinator that can enrol itself may.
"""

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from pliska.coordinator.wire import Signer
from pliska.discovery import (
    KeyConflictError,
    Keyring,
    Role,
    key_id,
    load_private_key,
    new_private_key,
    public_bytes,
    write_private_key,
)

NAME_DIGITS = 8
"""Hex digits of the key's own id in the name that it is enrolled by."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An enrolled coordinator's key."""

    signer: Signer
    key_id: str


def load_identity(path: Path, keyring: Keyring) -> Identity:
    """Load the key in `path`, making it where there is none, and enrol it where it is not.

    A key that it enrols is named after itself, so that two never want one name.

    Args:
        path: A private key file, or where to put a new one.
        keyring: The store's keyring.

    Raises:
        KeyFileError: The file cannot be read, written, or trusted.
        KeyConflictError: The key is revoked or enrolled for something else.
    """
    if not path.exists():
        _make(path)
    private_key = load_private_key(path)
    public_key = public_bytes(private_key)
    identity = key_id(public_key)
    enrolled = keyring.find(identity)
    if enrolled is None:
        try:
            name = f"coordinator-{identity[-NAME_DIGITS:]}"
            enrolled = keyring.enroll(name, Role.COORDINATOR, public_key)
        except KeyConflictError:
            # Two coordinators that share the file may have enrolled it at once.
            enrolled = keyring.find(identity)
            if enrolled is None:
                raise
    if not enrolled.is_active or enrolled.role is not Role.COORDINATOR:
        raise KeyConflictError(
            f"the key in {path} is enrolled as {enrolled.role} {enrolled.name!r} "
            f"({enrolled.state}): name another file with --key"
        )
    return Identity(Signer(private_key, identity), identity)


def _make(path: Path) -> None:
    """Write a new key whole or not at all; of two processes that try, one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_private_key(draft, new_private_key())
    try:
        with contextlib.suppress(FileExistsError):  # the other process was faster: its key it is
            os.link(draft, path)
    finally:
        draft.unlink()
