"""How a worker becomes a member: challenge, signed hello, access token.

Called by `coordinator.server` at the leader, on one event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from pliska.coordinator.admission import UNKNOWN_KEY, refuse_key
from pliska.coordinator.challenges import Challenges
from pliska.coordinator.driver import RoundDriver
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.members import Member, Members
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import (
    EMPTY,
    Hello,
    Manifest,
    RefusedError,
    ReplyCode,
    Signed,
    peek,
    verify,
)
from pliska.discovery import Keyring
from pliska.locks import StoreError


@dataclass(frozen=True, slots=True)
class Joining:
    """Takes workers in that prove their keys.

    Attributes:
        now: Seconds on the leader's monotonic clock.
    """

    job: str
    challenges: Challenges
    members: Members
    keyring: Keyring
    manifest: Manifest
    driver: RoundDriver
    tally: Tally
    now: Callable[[], float]

    def challenge(self) -> bytes:
        """Return the nonce that the next hello must sign."""
        return self.challenges.ask(self.now())

    async def hello(self, message: bytes) -> Member | Refusal:
        """Check a signed hello and take its worker in."""
        outcome = await self._check(message)
        if isinstance(outcome, Refusal):
            self.tally.count(outcome.code, outcome.reason)
        else:
            self.driver.members_changed()
        return outcome

    async def _check(self, message: bytes) -> Member | Refusal:
        try:
            signed = Signed.from_bytes(message)
            claim = peek(signed, Hello).claim
            if claim.job != self.job:
                return Refusal(ReplyCode.SCHEMA, f"job {claim.job!r} is not led here")
            key = await asyncio.to_thread(self.keyring.find, signed.key_id)
            refusal = refuse_key(key, claim.worker)
            if key is None or refusal is not None:
                return refusal or UNKNOWN_KEY
            hello = verify(signed, Hello, {key.key_id: key.public_key}.get).message
        except RefusedError as error:
            return Refusal(error.code, str(error))
        except StoreError as error:
            return Refusal(ReplyCode.BUSY, f"the keyring cannot be read: {error}")
        return self._join(hello)

    def _join(self, hello: Hello) -> Member | Refusal:
        now = self.now()
        if not self.challenges.is_answered(hello.nonce, now):
            return Refusal(ReplyCode.REPLAY, "the hello answers no open challenge: ask for one")
        if hello.manifest_digest not in (EMPTY, self.manifest.digest):
            reason = "the worker built another model: its names, shapes or dtypes differ"
            return Refusal(ReplyCode.SCHEMA, reason)
        try:
            donor = _donor(hello)
        except DamagedStateError as error:
            return Refusal(ReplyCode.SCHEMA, f"where the worker donates: {error}")
        member = self.members.join(hello.worker, hello.incarnation, hello.key_id, now, donor)
        if member is None:
            return Refusal(ReplyCode.BUSY, f"the job has room for {self.members.members_max}")
        return member


def _donor(hello: Hello) -> Endpoint | None:
    """Read where a worker donates, under the name that it has proved."""
    if hello.donor == EMPTY:
        return None
    return replace(Endpoint.from_bytes(hello.donor), name=hello.worker, key_id=hello.key_id)
