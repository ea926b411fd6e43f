"""Who is enrolled: Ed25519 keys and the keyring that says whose count."""

from pliska.discovery.errors import (
    DiscoveryError,
    KeyConflictError,
    KeyFileError,
    KeyFileExistsError,
    KeyFileMissingError,
    KeyringFormatError,
    KeyringUsageError,
    NotEnrolledError,
    RevokedKeyError,
)
from pliska.discovery.keyring import Enrolled, Keyring, KeyState, Role
from pliska.discovery.keys import (
    key_id,
    load_private_key,
    load_public_key,
    new_private_key,
    parse_public_text,
    public_bytes,
    public_text,
    write_private_key,
)

__all__ = [
    "DiscoveryError",
    "Enrolled",
    "KeyConflictError",
    "KeyFileError",
    "KeyFileExistsError",
    "KeyFileMissingError",
    "KeyState",
    "Keyring",
    "KeyringFormatError",
    "KeyringUsageError",
    "NotEnrolledError",
    "RevokedKeyError",
    "Role",
    "key_id",
    "load_private_key",
    "load_public_key",
    "new_private_key",
    "parse_public_text",
    "public_bytes",
    "public_text",
    "write_private_key",
]
