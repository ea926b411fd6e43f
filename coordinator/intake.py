"""One gradient from its first byte to its receipt.

The checks run in the protocol's order, cheapest first, and the payload of a
refused header is never read. A payload lands in its worker's row of the
gradient buffer while its chunks are checked; only a complete one is marked
filled. Called by `coordinator.server` for each upload, on one event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pliska.aggregation import BufferFullError, GradientBuffer
from pliska.coordinator.admission import (
    UNKNOWN_KEY,
    refuse_key,
    refuse_member,
    refuse_unverified,
    refuse_verified,
)
from pliska.coordinator.audit_trail import AuditTrail
from pliska.coordinator.driver import RoundDriver
from pliska.coordinator.members import Members
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.rounds.round_events import Answer, Broken, Refused
from pliska.coordinator.rounds.round_state import Offered
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import (
    Body,
    GradientHeader,
    Manifest,
    NonFiniteError,
    Receipt,
    RefusedError,
    Reply,
    ReplyCode,
    Signed,
    Signer,
    Verified,
    check_sizes,
    peek,
    read_envelope,
    receive_payload,
    verify,
)
from pliska.discovery import Enrolled, Keyring
from pliska.locks import StoreError

DOOR_S = 2.0
"""How long a gradient may wait for the next round to open, where rounds follow fast."""
RETRY_AFTER_S = 0.2
"""When a worker may try again whose gradient found its slot busy or its round not open."""

_SETTLED = frozenset({ReplyCode.ACCEPTED, ReplyCode.NONFINITE})
"""The slot has its gradient, or the worker has spent its vote."""
_UNNAMED = frozenset({ReplyCode.STALE_ROUND, ReplyCode.QUARANTINED})
"""No commit record will name the gradient: the receipt is what proves why."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What an arriving gradient meets at the leader.

    Attributes:
        now: Seconds on the leader's monotonic clock.
        wall_time: Seconds since 1970, for receipts; advisory only.
    """

    driver: RoundDriver
    members: Members
    keyring: Keyring
    buffer: GradientBuffer
    manifest: Manifest
    signer: Signer
    tally: Tally
    trail: AuditTrail
    now: Callable[[], float]
    wall_time: Callable[[], float]
    _receipts: dict[str, tuple[Offered, bytes]] = field(default_factory=dict)
    """Of each worker's last settled offer: when it is made again, it gets the same one."""

    async def receive(self, body: Body) -> Reply:
        """Take one gradient message in and say what became of it."""
        try:
            verified = await self._verify(await read_envelope(body))
            if isinstance(verified, Refusal):
                return self._refuse(verified)
        except RefusedError as error:
            return self._refuse(Refusal(error.code, str(error)))
        except StoreError as error:
            return self._refuse(Refusal(ReplyCode.BUSY, f"the keyring cannot be read: {error}"))
        return await self._admit(verified, body)

    async def _verify(self, signed: Signed) -> Verified[GradientHeader] | Refusal:
        """Check a header as far as it goes without touching any state."""
        claim = peek(signed, GradientHeader).claim
        refusal = self._refuse_claim(claim, signed.key_id)
        if refusal is not None and not self._is_owed_receipt(claim, signed.key_id, refusal):
            return refusal
        # Asked for every message: a revocation takes effect with the next one.
        key = await asyncio.to_thread(self.keyring.find, signed.key_id)
        refusal = refuse_key(key, claim.worker)
        if key is None or refusal is not None:
            self._drop_revoked(key, claim.worker)
            return refusal or UNKNOWN_KEY
        return verify(signed, GradientHeader, {key.key_id: key.public_key}.get)

    def _refuse_claim(self, claim: GradientHeader, signed_by: str) -> Refusal | None:
        member = self.members.named(claim.worker)
        return refuse_unverified(claim, signed_by, member, self.driver.acceptable())

    def _is_owed_receipt(self, claim: GradientHeader, signed_by: str, refusal: Refusal) -> bool:
        """Whether a late gradient is worth a look at its signature: once a worker and round."""
        return (
            refusal.code is ReplyCode.STALE_ROUND
            and self.driver.closed_ago_s(claim.round) is not None
            and refuse_member(claim, signed_by, self.members.named(claim.worker)) is None
            and self.trail.wants_receipt(claim.worker, claim.round)
        )

    def _drop_revoked(self, key: Enrolled | None, worker: str) -> None:
        """Let a member go whose key was revoked, so that no round waits for it."""
        member = self.members.named(worker)
        if key and not key.is_active and member and member.key_id == key.key_id:
            self.members.leave(worker)
            self.driver.members_changed()

    async def _admit(self, verified: Verified[GradientHeader], body: Body) -> Reply:
        """Decide on a verified header, and take its payload if it gets the slot."""
        header = verified.message
        offer = Offered(
            header.worker,
            header.incarnation,
            header.payload_root,
            header.round,
            header.lease,
            verified.signed,
        )
        member = self.members.named(header.worker)
        seq_used = member.seq if member else 0
        answer = self._decide(verified, offer, seq_used, body.remaining)
        until = self.now() + DOOR_S
        while (
            answer.code is ReplyCode.BUSY
            and self.driver.opens_soon()
            and (left_s := until - self.now()) > 0
        ):
            # Its payload waits where it is: cheaper than to send it once more.
            await self.driver.opening(left_s)
            answer = self._decide(verified, offer, seq_used, body.remaining)
        if answer.code is ReplyCode.DUPLICATE:
            return self._repeat(verified, offer, answer.reason)
        if answer.code is ReplyCode.EQUIVOCATION:
            slot = self.driver.state.slot_of(header.worker)
            self.trail.equivocated(slot.offer.header if slot else None, verified)
        if answer.code is not ReplyCode.ACCEPTED:
            return self._answer(verified, answer.code, answer.reason, answer.lease)
        return await self._take(verified, offer, body)

    def _decide(
        self, verified: Verified[GradientHeader], offer: Offered, seq_used: int, remaining: int
    ) -> Answer:
        """Say what a verified header gets now. Nothing is awaited between checks and slot."""
        header = verified.message
        # Once more: the round may have moved on while the keyring was asked.
        refusal = self._refuse_claim(header, verified.signed.key_id)
        if refusal is not None:
            return Answer(refusal.code, self._lateness(header, refusal))
        self.members.hear(header.worker, self.now())
        refusal = refuse_verified(header, seq_used, self.driver.acceptable())
        if refusal is not None:
            return Answer(refusal.code, refusal.reason)
        try:
            check_sizes(header, self.manifest, remaining)
        except RefusedError as error:
            return Answer(error.code, str(error))
        answer = self.driver.offer(offer)
        self.members.use_seq(header.worker, header.seq)
        return answer

    async def _take(self, verified: Verified[GradientHeader], offer: Offered, body: Body) -> Reply:
        """Receive the payload of a header that holds its slot."""
        header = verified.message
        if header.worker in self.driver.transfers.workers:
            # An earlier life's connection is still open: end it, and let this one come again.
            self.driver.transfers.abandon(header.worker)
            self.driver.feed(Broken(offer))
            reason = "an earlier life of this worker was still sending"
            return self._answer(verified, ReplyCode.BUSY, reason)
        receiving = self._fill(verified, offer, body)
        filled = await self.driver.transfers.receive(header.worker, receiving)
        answer = filled or Answer(ReplyCode.STALE_ROUND, "the round closed before it was complete")
        if answer.code is ReplyCode.STALE_ROUND:
            # The mode may have changed meanwhile: then it may be signed again.
            refusal = self._refuse_claim(header, verified.signed.key_id)
            if refusal is not None and refusal.code is ReplyCode.STALE_MODE:
                answer = Answer(refusal.code, refusal.reason)
        reply = self._answer(verified, answer.code, answer.reason)
        if answer.code in _SETTLED and reply.receipt is not None:
            self._receipts[header.worker] = (offer, reply.receipt)
        return reply

    async def _fill(self, verified: Verified[GradientHeader], offer: Offered, body: Body) -> Answer:
        """Receive a payload into a row, which is given back unless the round counts it."""
        try:
            row = self.buffer.claim(offer.worker)
        except BufferFullError as error:
            self.driver.feed(Broken(offer))
            return Answer(ReplyCode.BUSY, str(error))
        is_counted = False
        try:
            payload = await receive_payload(body, verified, self.buffer.array(row))
            answer = self.driver.complete(offer)
            is_counted = answer.code is ReplyCode.ACCEPTED
            if is_counted:
                self.trail.keep_payload(verified.message, payload)
        except NonFiniteError as error:
            # It was signed and arrived whole: this is what the worker says, and it spends its vote.
            self.driver.feed(Refused(offer, str(error)))
            answer = Answer(error.code, str(error))
        except RefusedError as error:
            self.driver.feed(Broken(offer))
            answer = Answer(error.code, str(error))
        except asyncio.CancelledError:
            self.driver.feed(Broken(offer))
            raise
        finally:
            if is_counted:
                self.buffer.mark_filled(row)
            else:
                self.buffer.release(row)
        return answer

    def _refuse(self, refusal: Refusal) -> Reply:
        """Turn an unverified message away."""
        self.tally.count(refusal.code, refusal.reason)
        return self._reply(refusal.code, refusal.reason)

    def _repeat(self, verified: Verified[GradientHeader], offer: Offered, reason: str) -> Reply:
        """Answer an offer that was settled before with the receipt that it got then."""
        settled, receipt = self._receipts.get(offer.worker, (None, b""))
        if settled != offer:
            return self._answer(verified, ReplyCode.DUPLICATE, reason)
        self.tally.count(ReplyCode.DUPLICATE, reason, offer.worker)
        return self._reply(ReplyCode.DUPLICATE, reason, receipt)

    def _lateness(self, header: GradientHeader, refusal: Refusal) -> str:
        """Say how late a gradient came, where that is known."""
        ago_s = self.driver.closed_ago_s(header.round)
        was_settled = self.driver.acceptable().recent.settled(header.round, header.worker)
        if refusal.code is not ReplyCode.STALE_ROUND or ago_s is None or was_settled:
            return refusal.reason
        return f"arrived {ago_s:.3f} s after round {header.round} closed: {refusal.reason}"

    def _answer(
        self,
        verified: Verified[GradientHeader],
        code: ReplyCode,
        reason: str,
        lease: int | None = None,
    ) -> Reply:
        """Answer a verified message with a receipt."""
        header = verified.message
        self.tally.count(code, reason, header.worker)
        receipt = Receipt(
            job=header.job,
            epoch=header.epoch,
            round=header.round,
            worker=header.worker,
            incarnation=header.incarnation,
            seq=header.seq,
            payload_root=header.payload_root,
            code=code,
            reason=reason,
            issued_at=self.wall_time(),
        )
        signed = self.signer.sign(receipt).to_bytes()
        if code in _UNNAMED:
            self.trail.keep_receipt(verified, signed)
        return self._reply(code, reason, signed, lease)

    def _reply(
        self,
        code: ReplyCode,
        reason: str,
        receipt: bytes | None = None,
        lease: int | None = None,
    ) -> Reply:
        acceptable = self.driver.acceptable()
        can_retry = code in (ReplyCode.BUSY, ReplyCode.NOT_MEMBER)
        return Reply(
            code=code,
            reason=reason,
            epoch=acceptable.epoch,
            round=acceptable.round,
            version=acceptable.base_version,
            digest=acceptable.base_digest,
            mode=acceptable.mode,
            mode_epoch=acceptable.mode_epoch,
            lease=lease,
            retry_after_s=RETRY_AFTER_S if can_retry else None,
            receipt=receipt,
        )
