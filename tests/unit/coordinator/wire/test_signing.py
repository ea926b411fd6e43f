"""Nothing that was touched after signing is ever verified."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.wire import (
    BadSignatureError,
    GradientHeader,
    Hello,
    MalformedError,
    RefusedError,
    ReplyCode,
    Signed,
    Signer,
    TooLargeError,
    UnknownKeyError,
    encode,
    peek,
    verify,
)
from pliska.coordinator.wire.signing import pre_authentication_encoding

KEY = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
KEYS = {
    "mine": KEY.public_key().public_bytes_raw(),
    "other": OTHER.public_key().public_bytes_raw(),
}
HELLO = Hello(
    protocol=1, job="digits", worker="w1", incarnation=b"i" * 16, key_id="mine", nonce=b"n" * 16
)
SIGNED = Signer(KEY, "mine").sign(HELLO)


def test_a_signed_message_is_verified_and_comes_back_whole() -> None:
    verified = verify(Signed.from_bytes(SIGNED.to_bytes()), Hello, KEYS.get)
    assert verified.message == HELLO
    assert verified.signed == SIGNED


def test_what_is_signed_is_the_dsse_encoding_of_the_sent_bytes() -> None:
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    KEY.public_key().verify(
        SIGNED.signature, pre_authentication_encoding(SIGNED.payload_type, SIGNED.body)
    )


@pytest.mark.parametrize("position", range(len(SIGNED.to_bytes())))
@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_change_of_any_byte_is_refused(position: int, flip: int) -> None:
    changed = bytearray(SIGNED.to_bytes())
    changed[position] ^= flip
    with pytest.raises(RefusedError) as refusal:
        verify(Signed.from_bytes(bytes(changed)), Hello, KEYS.get)
    assert refusal.value.code in (ReplyCode.SCHEMA, ReplyCode.BAD_SIG, ReplyCode.NOT_MEMBER)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Signed.from_bytes(data)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownKeyError):
        verify(SIGNED, Hello, {}.get)


def test_a_signature_by_another_enrolled_key_is_refused() -> None:
    with pytest.raises(BadSignatureError):
        verify(replace(SIGNED, key_id="other"), Hello, KEYS.get)


def test_a_message_that_names_a_key_it_was_not_signed_with_is_refused() -> None:
    with pytest.raises(BadSignatureError, match="names mine, but other signed it"):
        verify(Signer(OTHER, "other").sign(HELLO), Hello, KEYS.get)


def test_a_signature_for_one_type_does_not_pass_for_another() -> None:
    with pytest.raises(MalformedError, match="expected a signed pliska/gradient/1"):
        verify(SIGNED, GradientHeader, KEYS.get)
    with pytest.raises(BadSignatureError):
        verify(replace(SIGNED, payload_type="pliska/gradient/1"), GradientHeader, KEYS.get)


def test_the_signature_is_checked_before_the_body_is_parsed() -> None:
    garbage = replace(SIGNED, body=b"not a message")
    with pytest.raises(BadSignatureError):
        verify(garbage, Hello, KEYS.get)
    body = b"signed garbage"
    signature = KEY.sign(pre_authentication_encoding(Hello.wire_type, body))
    with pytest.raises(MalformedError):
        verify(Signed(Hello.wire_type, body, "mine", signature), Hello, KEYS.get)


def test_a_peek_parses_but_does_not_verify() -> None:
    forged = replace(SIGNED, signature=bytes(64))
    assert peek(forged, Hello).claim == HELLO
    with pytest.raises(MalformedError):
        peek(forged, GradientHeader)
    with pytest.raises(MalformedError):
        peek(replace(forged, body=b""), Hello)


def test_a_signed_message_over_its_limit_is_refused() -> None:
    data = SIGNED.to_bytes()
    assert Signed.from_bytes(data, bytes_max=len(data)) == SIGNED
    with pytest.raises(TooLargeError):
        Signed.from_bytes(data, bytes_max=len(data) - 1)


def test_a_private_key_is_not_shown() -> None:
    signer = Signer(KEY, "mine")
    assert b"s" * 32 not in repr(vars(signer)).encode()
    assert encode(HELLO) == SIGNED.body
