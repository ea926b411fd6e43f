"""Digests written with their algorithm, `sha256:` and 64 hex digits, so that another can follow."""

import hashlib
import re
from typing import NewType

from pliska.coordinator.registry.errors import IntegrityError

Digest = NewType("Digest", str)
"""`sha256:` and 64 lower-case hex digits."""

_PREFIX = "sha256:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

NO_DIGEST = Digest(_PREFIX + "0" * 64)
"""Stands before the first entry of a hash chain."""


def digest_of(content: bytes) -> Digest:
    """Return the SHA-256 digest of `content`."""
    return Digest(_PREFIX + hashlib.sha256(content).hexdigest())


def digest_from(sha256_hex: str) -> Digest:
    """Return the digest whose 64 hex digits were computed elsewhere."""
    return Digest(_PREFIX + sha256_hex)


def parse_digest(text: str, what: str) -> Digest:
    """Return `text` as a digest. Raises `IntegrityError` naming `what` where it is none."""
    if not is_digest(text):
        raise IntegrityError(f"{what}: {text[:80]!r} is not 'sha256:' and 64 hex digits")
    return Digest(text)


def is_digest(text: str) -> bool:
    """Say whether `text` is `sha256:` and 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


def hex_of(digest: Digest) -> str:
    """Return the 64 hex digits."""
    return digest.removeprefix(_PREFIX)
