"""The messages between workers and a coordinator.

Every one is a frozen dataclass that travels signed (`signing.py`) in canonical
encoding (`encoding.py`). Whether a message fits the round at hand is not
decided here: that is the coordinator's admission.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pliska.coordinator.wire.codec import CodecSpec
from pliska.coordinator.wire.encoding import Digest, Length, Name, Unique
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.limits import DONOR_BYTES_MAX, REASON_CHARACTERS_MAX
from pliska.coordinator.wire.reply_codes import ReplyCode

PROTOCOL = 1
"""Version of the protocol; the last part of every `wire_type`."""

EMPTY = b""
"""Stands for a manifest digest that the worker does not know yet."""

Reason = Annotated[str, Length(0, 4 * REASON_CHARACTERS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A worker introduces itself, in answer to the coordinator's challenge.

    Attributes:
        nonce: The challenge, which makes an overheard hello useless.
        manifest_digest: Of the model the worker has built, or `EMPTY`.
        donor: Where it gives parameters to others that join: a
            `coordinator.endpoint.Endpoint`, or `EMPTY`.
    """

    wire_type: ClassVar[str] = f"pliska/hello/{PROTOCOL}"

    protocol: int
    job: Name
    worker: Name
    incarnation: Unique
    key_id: Name
    nonce: Annotated[bytes, Length(16, 64)]
    manifest_digest: Annotated[bytes, Length(0, 32)] = EMPTY
    donor: Annotated[bytes, Length(0, DONOR_BYTES_MAX)] = EMPTY

    def __post_init__(self) -> None:
        if len(self.manifest_digest) not in (0, 32):
            raise MalformedError("a manifest digest has 32 bytes, or none where it is not known")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Somebody with an enrolled key asks a coordinator for what it keeps, in answer to a challenge.

    Attributes:
        nonce: The challenge, which makes an overheard visit useless.
    """

    wire_type: ClassVar[str] = f"pliska/visit/{PROTOCOL}"

    protocol: int
    job: Name
    key_id: Name
    nonce: Annotated[bytes, Length(16, 64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientHeader:
    """What a worker signs about one gradient. It binds the payload through its root.

    `proto_ver` and `msg_type` travel as the `wire_type` that opens the encoding.

    Attributes:
        epoch: Of the leader that the gradient is meant for (fencing token).
        mode_epoch: Of the mode (synchronous, asynchronous, hybrid) in force.
        base_version: The model the gradient was computed on, with `base_digest`.
        incarnation: 16 random bytes of this process of the worker.
        seq: Grows with every header that this incarnation signs.
        issued_at: Seconds since 1970 by the worker's clock; advisory only.
        lease: Number of the batch that it is the gradient of.
        n_samples: As claimed; never a weight under a robust rule.
        payload_len: Bytes of the encoded gradient.
        chunk_len: Bytes under one leaf of the hash tree.
        payload_root: Root of the hash tree over the encoded payload.
    """

    wire_type: ClassVar[str] = f"pliska/gradient/{PROTOCOL}"

    job: Name
    epoch: int
    round: int
    mode_epoch: int
    base_version: int
    base_digest: Digest
    worker: Name
    incarnation: Unique
    key_id: Name
    seq: int
    nonce: Unique
    issued_at: float
    lease: int
    n_samples: int
    codec: CodecSpec
    manifest_digest: Digest
    payload_len: int
    chunk_len: int
    payload_root: Digest

    @property
    def proto_ver(self) -> int:
        """Version of the protocol that the header is written in."""
        return PROTOCOL

    @property
    def msg_type(self) -> str:
        """The kind of message, for logs."""
        return "gradient"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The coordinator's signed word on what became of one gradient.

    Attributes:
        issued_at: Seconds since 1970 by the coordinator's clock; advisory only.
    """

    wire_type: ClassVar[str] = f"pliska/receipt/{PROTOCOL}"

    job: Name
    epoch: int
    round: int
    worker: Name
    incarnation: Unique
    seq: int
    payload_root: Digest
    code: ReplyCode
    reason: Reason
    issued_at: float
