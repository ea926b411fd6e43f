"""Ed25519 keys: as files, as text, and the short id that names one.

A private key lives in a file that only its owner can read and never goes
anywhere else. A public key is 32 bytes (RFC 8032, section 5.1.5). Which public
keys count is not decided here but in `keyring`.
"""

import base64
import errno
import hashlib
import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from pliska.discovery.errors import (
    KeyFileError,
    KeyFileExistsError,
    KeyFileMissingError,
    KeyringUsageError,
)

KEY_FILE_BYTES_MAX = 16 * 1024
PUBLIC_KEY_BYTES = 32
SCHEME = "ed25519:"
"""Begins the text of a public key and of a key id, and leaves room for other schemes."""

_PRIVATE_MODE = 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def new_private_key() -> Ed25519PrivateKey:
    """A fresh key from the operating system's randomness."""
    return Ed25519PrivateKey.generate()


def public_bytes(key: Ed25519PrivateKey | Ed25519PublicKey) -> bytes:
    """The 32 bytes of a public key, or of the public half of a private one."""
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def key_id(public: bytes) -> str:
    """`ed25519:` and the first 128 bits of the public key's SHA-256 in hexadecimal.

    Raises:
        KeyringUsageError: It is not 32 bytes long.
    """
    if len(public) != PUBLIC_KEY_BYTES:
        raise KeyringUsageError(
            f"a public key of {len(public)} bytes; Ed25519 has {PUBLIC_KEY_BYTES}"
        )
    return SCHEME + hashlib.sha256(public).hexdigest()[:32]


def public_text(public: bytes) -> str:
    """`ed25519:` and the public key in base64: how people pass it on."""
    return SCHEME + base64.b64encode(public).decode()


def parse_public_text(text: str) -> bytes:
    """The 32 bytes that `public_text` wrote.

    Raises:
        KeyringUsageError: The text is not one.
    """
    problem = (
        f'{text[:80]!r} is not a public key: that is "{SCHEME}" and '
        f"{PUBLIC_KEY_BYTES} bytes in base64"
    )
    try:
        public = base64.b64decode(text.removeprefix(SCHEME), validate=True)
    except ValueError as error:
        raise KeyringUsageError(problem) from error
    if len(public) != PUBLIC_KEY_BYTES or public_text(public) != text:
        raise KeyringUsageError(problem)
    return public


def write_private_key(path: str | Path, key: Ed25519PrivateKey) -> None:
    """Write a new file that only its owner can read (PKCS #8 in PEM, mode 0600); durable.

    Raises:
        KeyFileExistsError: The path is taken, even by a dangling link.
        KeyFileError: It cannot be written.
    """
    path = Path(path)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
    except FileExistsError as error:
        raise KeyFileExistsError(
            f"{path} exists and may hold a key: name another file, or remove it first"
        ) from error
    except OSError as error:
        raise KeyFileError(f"cannot create {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from error


def load_private_key(path: str | Path) -> Ed25519PrivateKey:
    """Read a private key file.

    Raises:
        KeyFileMissingError: There is no such file.
        KeyFileError: It is a link or not a plain file, others than its owner
            have access to it, it is longer than `KEY_FILE_BYTES_MAX`, or it
            holds something else than an unencrypted Ed25519 private key in PEM.
    """
    path = Path(path)
    content, mode = _read_plain_file(path)
    return _parse_private(path, content, mode)


def load_public_key(path: str | Path) -> bytes:
    """The 32 bytes of the public key in a file.

    Args:
        path: A private key file, of which this is the public half; or a public
            one: PEM, or the text that `public_text` wrote. Only a private one
            has to be unreadable for others.

    Raises:
        KeyFileMissingError: There is no such file.
        KeyFileError: As for `load_private_key`, or it holds neither.
    """
    path = Path(path)
    content, mode = _read_plain_file(path)
    if b"PRIVATE KEY" in content:
        return public_bytes(_parse_private(path, content, mode))
    if b"BEGIN PUBLIC KEY" in content:
        return _parse_public_pem(path, content)
    try:
        return parse_public_text(content.decode("ascii").strip())
    except (UnicodeDecodeError, KeyringUsageError) as error:
        raise KeyFileError(f"{path} holds no Ed25519 key, neither in PEM nor as text") from error


def _read_plain_file(path: Path) -> tuple[bytes, int]:
    """The content and the permission bits of a file that is no link, device or pipe."""
    try:
        # Opening a pipe must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise KeyFileMissingError(f"there is no key file {path}") from error
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise KeyFileError(f"cannot read the key file {path}: {reason}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"{path} is not a plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > KEY_FILE_BYTES_MAX:
        raise KeyFileError(f"{path} is longer than {KEY_FILE_BYTES_MAX} bytes: not a key file")
    return content, stat.S_IMODE(status.st_mode)


def _parse_private(path: Path, content: bytes, mode: int) -> Ed25519PrivateKey:
    if mode & _OTHERS:
        raise KeyFileError(
            f"others than its owner have access to the private key {path} (mode {mode:04o}): "
            f"run `chmod 600 {path}`, or make a new key if it may have been read"
        )
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError as error:
        raise KeyFileError(f"{path} is encrypted: write the key without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path} holds no private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} holds a key of another kind than Ed25519")
    return key


def _parse_public_pem(path: Path, content: bytes) -> bytes:
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path} holds no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} holds a key of another kind than Ed25519")
    return public_bytes(key)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
