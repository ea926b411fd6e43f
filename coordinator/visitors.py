"""Who may read what a coordinator has of a job, and send it log entries: enrolled keys.

A visitor signs a challenge and is then known by a token for a while. Workers may
read the parameters; other coordinators everything. Not membership: a visitor
counts in no round, and every coordinator takes visitors, whether it leads or not.
"""

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from pliska.coordinator.admission import UNKNOWN_KEY
from pliska.coordinator.challenges import Challenges
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.wire import RefusedError, ReplyCode, Signed, Visit, peek, verify
from pliska.coordinator.wire.limits import MEMBERS_MAX
from pliska.discovery import Enrolled, Keyring, Role
from pliska.locks import StoreError

TOKEN_BYTES = 32
VISIT_S = 60.0
"""How long a token is good for; the key is looked up again for the next one."""
VISITORS_MAX = 2 * MEMBERS_MAX
"""Tokens that are remembered; the oldest is forgotten beyond that."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who proved an enrolled key.

    Attributes:
        until: On the coordinator's clock.
        token: Secret of this visit; never logged.
    """

    name: str
    role: Role
    until: float
    token: str

    def __repr__(self) -> str:
        """Leave the token out, so that it cannot reach a log."""
        return f"Visitor({self.name!r}, {self.role})"


class Visitors:
    """The visitors of one coordinator. Belongs to one event loop."""

    def __init__(
        self,
        job: str,
        keyring: Keyring,
        now: Callable[[], float],
        new_secret: Callable[[int], bytes],
    ) -> None:
        """Begin with nobody.

        Args:
            job: The job that they come for.
            keyring: Whose keys count.
            now: Seconds on a monotonic clock.
            new_secret: Returns that many unpredictable bytes.
        """
        self._job = job
        self._keyring = keyring
        self._now = now
        self._new_secret = new_secret
        self._challenges = Challenges(new_secret)
        self._by_token: dict[str, Visitor] = {}

    def challenge(self) -> bytes:
        """Return the nonce that the next visit must sign."""
        return self._challenges.ask(self._now())

    async def visit(self, message: bytes) -> Visitor | Refusal:
        """Check a signed visit and let its signer in."""
        try:
            signed = Signed.from_bytes(message)
            claim = peek(signed, Visit).claim
            if claim.job != self._job:
                return Refusal(ReplyCode.SCHEMA, f"job {claim.job!r} is not kept here")
            key = await asyncio.to_thread(self._keyring.find, signed.key_id)
            if key is None:
                return UNKNOWN_KEY
            if not key.is_active:
                return Refusal(ReplyCode.KEY_REVOKED, f"{key.key_id} is revoked: {key.reason}")
            verify(signed, Visit, {key.key_id: key.public_key}.get)
        except RefusedError as error:
            return Refusal(error.code, str(error))
        except StoreError as error:
            return Refusal(ReplyCode.BUSY, f"the keyring cannot be read: {error}")
        if not self._challenges.is_answered(claim.nonce, self._now()):
            return Refusal(ReplyCode.REPLAY, "the visit answers no open challenge: ask for one")
        return self._let_in(key)

    def with_token(self, token: str) -> Visitor | None:
        """Find the visitor that this token was given to; None where its time is over."""
        visitor = self._by_token.get(token)
        if visitor is None or not hmac.compare_digest(visitor.token, token):
            return None
        return visitor if self._now() < visitor.until else None

    def _let_in(self, key: Enrolled) -> Visitor:
        if len(self._by_token) >= VISITORS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = self._new_secret(TOKEN_BYTES).hex()
        visitor = Visitor(key.name, key.role, self._now() + VISIT_S, token)
        self._by_token[token] = visitor
        return visitor
