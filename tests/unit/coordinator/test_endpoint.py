"""The record of where a coordinator listens."""

import json

import pytest

from pliska.coordinator.endpoint import ENDPOINT_BYTES_MAX, Endpoint
from pliska.coordinator.errors import DamagedStateError

ENDPOINT = Endpoint("c1", "127.0.0.1", 8443, "-----BEGIN", "ed25519:00")


def test_an_endpoint_comes_back_as_it_was_written() -> None:
    assert Endpoint.from_bytes(ENDPOINT.to_bytes()) == ENDPOINT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"port": 1}',
        ENDPOINT.to_bytes().replace(b"8443", b"0"),
        ENDPOINT.to_bytes().replace(b"8443", b"65536"),
        ENDPOINT.to_bytes().replace(b"8443", b"true"),
        ENDPOINT.to_bytes().replace(b'"c1"', b"1"),
        ENDPOINT.to_bytes().replace(b"127.0.0.1", b""),
        ENDPOINT.to_bytes().replace(b"127.0.0.1", b"host/path"),
        ENDPOINT.to_bytes().replace(b"127.0.0.1", b"user@host"),
        ENDPOINT.to_bytes().replace(b"127.0.0.1", b"h" * 254),
        json.dumps({**json.loads(ENDPOINT.to_bytes()), "more": 1}).encode(),
        b" " * (ENDPOINT_BYTES_MAX + 1),
        b"[" * 10_000,
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedStateError):
        Endpoint.from_bytes(data)
