"""The coordinator's reply to a message, in JSON.

A reply tells the sender what became of its message and what it needs to go on.
It is not signed; the receipt inside it is.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Self

from pliska.coordinator.wire.encoding import U64_MAX
from pliska.coordinator.wire.errors import MalformedError, RefusedError, TooLargeError
from pliska.coordinator.wire.limits import (
    NAME_BYTES_MAX,
    REASON_CHARACTERS_MAX,
    REPLY_BYTES_MAX,
)
from pliska.coordinator.wire.reply_codes import HTTP_STATUS, ReplyCode

__all__ = ["HTTP_STATUS", "Reply", "ReplyCode"]

RETRY_AFTER_S_MAX = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a message. None stands for "not part of this reply".

    Attributes:
        code: The verdict.
        reason: Why, for people and logs; cut to `REASON_CHARACTERS_MAX`.
        epoch: Of the coordinator that answers.
        round: That is open there.
        version: Of the model: the committed one, or the one to compute on.
        digest: Of that version's parameters.
        mode: In force: synchronous, asynchronous or hybrid.
        mode_epoch: Of that mode; gradients are signed for it.
        lease: Of the batch that the worker is to compute on.
        leader: Address of the present leader, where it is another coordinator.
        retry_after_s: Wait that long before trying again.
        credits: Bytes that the worker may send at once.
        receipt: A signed `Receipt` in bytes.
    """

    code: ReplyCode
    reason: str = ""
    epoch: int | None = None
    round: int | None = None
    version: int | None = None
    digest: bytes | None = None
    mode: str | None = None
    mode_epoch: int | None = None
    lease: int | None = None
    leader: str | None = None
    retry_after_s: float | None = None
    credits: int | None = None
    receipt: bytes | None = None

    @classmethod
    def to_refusal(cls, error: RefusedError) -> Self:
        """Return the reply that tells a sender why its message was refused."""
        return cls(code=error.code, reason=str(error))

    @property
    def http_status(self) -> int:
        """The HTTP status that goes with the code."""
        return HTTP_STATUS[self.code]

    def to_json(self) -> bytes:
        """Encode in JSON, fields that are None left out."""
        fields = {
            "code": self.code.value,
            "reason": self.reason[:REASON_CHARACTERS_MAX],
            "epoch": self.epoch,
            "round": self.round,
            "version": self.version,
            "digest": None if self.digest is None else self.digest.hex(),
            "mode": self.mode,
            "mode_epoch": self.mode_epoch,
            "lease": self.lease,
            "leader": self.leader,
            "retry_after_s": self.retry_after_s,
            "credits": self.credits,
            "receipt": None if self.receipt is None else base64.b64encode(self.receipt).decode(),
        }
        present = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(present, allow_nan=False).encode()

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> Self:
        """Read a reply. Fields it does not know are left aside, for later protocols.

        Raises:
            TooLargeError: More than `REPLY_BYTES_MAX` bytes.
            MalformedError: Not a reply in JSON.
        """
        if len(data) > REPLY_BYTES_MAX:
            raise TooLargeError("a reply", size=len(data), limit=REPLY_BYTES_MAX)
        fields = _object(bytes(data))
        return cls(
            code=_code(fields.get("code")),
            reason=_text(fields, "reason", REASON_CHARACTERS_MAX) or "",
            epoch=_count(fields, "epoch"),
            round=_count(fields, "round"),
            version=_count(fields, "version"),
            digest=_digest(fields),
            mode=_text(fields, "mode", NAME_BYTES_MAX),
            mode_epoch=_count(fields, "mode_epoch"),
            lease=_count(fields, "lease"),
            leader=_text(fields, "leader", 1024),
            retry_after_s=_retry_after_s(fields),
            credits=_count(fields, "credits"),
            receipt=_receipt(fields),
        )


def _object(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"a reply is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MalformedError("a reply is not a JSON object")
    return fields


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number in JSON")


def _code(value: Any) -> ReplyCode:
    try:
        return ReplyCode(value)
    except ValueError as error:
        raise MalformedError(f"a reply has the unknown code {str(value)[:64]!r}") from error


def _text(fields: dict[str, Any], name: str, characters_max: int) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > characters_max:
        raise MalformedError(f"{name} in a reply is not text of at most {characters_max}")
    return value


def _count(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise MalformedError(f"{name} in a reply is not an unsigned 64-bit integer")
    return value


def _retry_after_s(fields: dict[str, Any]) -> float | None:
    value = fields.get("retry_after_s")
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= RETRY_AFTER_S_MAX:
        raise MalformedError(f"retry_after_s in a reply is not in 0 to {RETRY_AFTER_S_MAX}")
    return float(value)


def _digest(fields: dict[str, Any]) -> bytes | None:
    value = _text(fields, "digest", 64)
    if value is None:
        return None
    try:
        digest = bytes.fromhex(value)
    except ValueError as error:
        raise MalformedError("digest in a reply is not hexadecimal") from error
    if len(digest) != 32:
        raise MalformedError("digest in a reply is not 64 hexadecimal digits")
    return digest


def _receipt(fields: dict[str, Any]) -> bytes | None:
    value = _text(fields, "receipt", REPLY_BYTES_MAX)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error) as error:
        raise MalformedError("receipt in a reply is not base64") from error
