"""Nonces that somebody is to sign, so that an overheard proof of a key is of no use.

Each can be used once and for a short time. Used for workers that join and for
visitors of a donor, on one event loop.
"""

from collections.abc import Callable

NONCE_BYTES = 32
CHALLENGES_MAX = 4096
"""Challenges that wait for their answer; the oldest is forgotten beyond that."""
CHALLENGE_LIFE_S = 30.0


class Challenges:
    """The challenges that wait for their answers."""

    def __init__(self, new_secret: Callable[[int], bytes]) -> None:
        """Begin with none.

        Args:
            new_secret: Returns that many unpredictable bytes.
        """
        self._new_secret = new_secret
        self._open: dict[bytes, float] = {}

    def ask(self, now: float) -> bytes:
        """Make the nonce that the next answer must carry."""
        if len(self._open) >= CHALLENGES_MAX:
            del self._open[next(iter(self._open))]
        nonce = self._new_secret(NONCE_BYTES)
        self._open[nonce] = now + CHALLENGE_LIFE_S
        return nonce

    def is_answered(self, nonce: bytes, now: float) -> bool:
        """Whether this nonce was asked for and is fresh; it can be used once."""
        expires = self._open.pop(nonce, None)
        return expires is not None and now < expires
