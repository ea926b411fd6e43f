"""Seeds that everybody derives alike from public facts, instead of drawing them.

A replay, a restarted worker and an auditor get the same numbers from the same
facts. Not secret: use `secrets` for what must not be guessed.
"""

from hashlib import sha256

_DOMAIN = b"pliska/seed/1"


def derive_seed(*facts: str | int) -> int:
    """Return 63 bits of the SHA-256 over the facts, each with its length before it.

    Example: `derive_seed("pass", job_seed, pass_number)`.
    """
    message = bytearray(_DOMAIN)
    for fact in facts:
        text = str(fact).encode()
        message += len(text).to_bytes(4) + text
    return int.from_bytes(sha256(message).digest()[:8]) >> 1
