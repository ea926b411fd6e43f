"""Ed25519 signatures over the exact bytes that are sent.

What is signed is the DSSE pre-authentication encoding of (type, body), where
the body is the canonical encoding of one message and the type is its
`wire_type`: a signature for one type never fits another, and nothing is
encoded again to check it. A receiver verifies first and parses afterwards;
only `verify` makes a `Verified`, and only a `Verified` goes further.

Not a store of keys: who owns which key is asked through a lookup function.
Source: the DSSE v1 protocol (secure-systems-lab), its PAE; one signature
instead of a list, in our binary encoding instead of JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from pliska.coordinator.wire.encoding import Length, Message, MessageT, Name, decode, encode
from pliska.coordinator.wire.errors import BadSignatureError, MalformedError, UnknownKeyError
from pliska.coordinator.wire.limits import MESSAGE_BYTES_MAX

KeyLookup = Callable[[str], bytes | None]
"""From a key id to the raw 32-byte public key, or None when nobody enrolled it."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed message as it travels. Nothing in it is to be believed yet."""

    wire_type: ClassVar[str] = "pliska/signed/1"

    payload_type: Name
    body: bytes
    key_id: Name
    signature: Annotated[bytes, Length(64, 64)]

    def to_bytes(self) -> bytes:
        """Encode for sending or storing."""
        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, bytes_max: int = MESSAGE_BYTES_MAX) -> Self:
        """Read one signed message; its signature is not checked here.

        Raises:
            MalformedError: `data` is not one canonical signed message.
            TooLargeError: `data` is longer than `bytes_max`.
        """
        return decode(cls, data, bytes_max)


@dataclass(frozen=True, slots=True)
class Unverified(Generic[MessageT]):
    """What a signed message claims. Good for refusing it cheaply, and for nothing else."""

    claim: MessageT
    signed: Signed


@dataclass(frozen=True, slots=True)
class Verified(Generic[MessageT]):
    """A message whose signature was checked. Made by `verify` only."""

    message: MessageT
    signed: Signed


class Signer:
    """Signs messages with one private key.

    Args:
        private_key: The key; it stays in this process.
        key_id: The name under which the verifier's lookup finds the public key.
    """

    def __init__(self, private_key: Ed25519PrivateKey, key_id: str) -> None:
        self._private_key = private_key
        self.key_id = key_id

    def sign(self, message: Message) -> Signed:
        """Encode and sign a message.

        Raises:
            MalformedError: A field is outside its bounds.
        """
        body = encode(message)
        signature = self._private_key.sign(pre_authentication_encoding(message.wire_type, body))
        return Signed(message.wire_type, body, self.key_id, signature)


def verify(
    signed: Signed, message_type: type[MessageT], key_lookup: KeyLookup
) -> Verified[MessageT]:
    """Check type, key and signature, and only then parse.

    Raises:
        MalformedError: It is a message of another type, or its body is not canonical.
        UnknownKeyError: The lookup does not know the key.
        BadSignatureError: The signature does not fit, or the message names another key
            than the one that signed it.
    """
    _check_type(signed, message_type)
    public_key = key_lookup(signed.key_id)
    if public_key is None:
        raise UnknownKeyError(f"nobody enrolled the key {signed.key_id}")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(
            signed.signature, pre_authentication_encoding(signed.payload_type, signed.body)
        )
    except InvalidSignature as error:
        raise BadSignatureError(
            f"the signature does not fit this {signed.payload_type} message and the key "
            f"{signed.key_id}"
        ) from error
    message = decode(message_type, signed.body)
    named_key_id = getattr(message, "key_id", signed.key_id)
    if named_key_id != signed.key_id:
        raise BadSignatureError(f"the message names {named_key_id}, but {signed.key_id} signed it")
    return Verified(message, signed)


def peek(signed: Signed, message_type: type[MessageT]) -> Unverified[MessageT]:
    """Parse without checking the signature, so that a stale message costs no verification.

    Raises:
        MalformedError: It is a message of another type, or its body is not canonical.
    """
    _check_type(signed, message_type)
    return Unverified(decode(message_type, signed.body), signed)


def pre_authentication_encoding(payload_type: str, body: bytes) -> bytes:
    """Return what is signed: the DSSE v1 PAE of type and body."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def _check_type(signed: Signed, message_type: type[Message]) -> None:
    if signed.payload_type != message_type.wire_type:
        raise MalformedError(
            f"expected a signed {message_type.wire_type} message, not {signed.payload_type}"
        )
