"""Messages carry the fields of the protocol, within their bounds."""

from dataclasses import fields, replace

import pytest

from pliska.coordinator.wire import (
    EMPTY,
    GradientHeader,
    Hello,
    MalformedError,
    Receipt,
    ReplyCode,
    decode,
    encode,
)

HELLO = Hello(
    protocol=1, job="digits", worker="w1", incarnation=b"i" * 16, key_id="k", nonce=b"n" * 16
)
RECEIPT = Receipt(
    job="digits",
    epoch=2,
    round=5,
    worker="w1",
    incarnation=b"i" * 16,
    seq=9,
    payload_root=bytes(32),
    code=ReplyCode.ACCEPTED,
    reason="in the round",
    issued_at=1.75e9,
)


def test_a_gradient_header_has_every_field_of_the_protocol(sender) -> None:
    expected = """
        job epoch round mode_epoch base_version base_digest worker incarnation key_id seq nonce
        issued_at lease n_samples codec manifest_digest payload_len chunk_len payload_root
    """
    assert [field.name for field in fields(GradientHeader)] == expected.split()
    header = sender.header()
    assert (header.proto_ver, header.msg_type) == (1, "gradient")
    assert encode(header)[4:].startswith(b"pliska/gradient/1")


def test_every_message_survives_the_way(sender) -> None:
    header = sender.header()
    assert decode(GradientHeader, encode(header)) == header
    assert decode(Hello, encode(HELLO)) == HELLO
    assert decode(Receipt, encode(RECEIPT)) == RECEIPT


@pytest.mark.parametrize("size", [1, 31, 33])
def test_a_hello_has_a_whole_manifest_digest_or_none(size: int) -> None:
    assert HELLO.manifest_digest == EMPTY
    assert len(replace(HELLO, manifest_digest=bytes(32)).manifest_digest) == 32
    with pytest.raises(MalformedError):
        replace(HELLO, manifest_digest=bytes(size))


@pytest.mark.parametrize(
    "change",
    [
        {"incarnation": bytes(15)},
        {"nonce": bytes(17)},
        {"payload_root": bytes(31)},
        {"epoch": -1},
        {"worker": "w 1"},
        {"issued_at": float("nan")},
        {"lease": 2**64},
    ],
)
def test_a_field_outside_its_bounds_cannot_be_sent(sender, change) -> None:
    with pytest.raises(MalformedError):
        encode(sender.header(**change))
