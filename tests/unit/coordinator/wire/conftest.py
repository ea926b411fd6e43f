"""Messages, keys and bodies that the tests of the wire share."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.wire import (
    Float32Codec,
    GradientHeader,
    Manifest,
    SealedPayload,
    Signer,
    TruncatedBodyError,
    seal,
)
from pliska.coordinator.wire.codec import Vector


@dataclass
class BytesBody:
    """A body that has arrived already."""

    data: bytes
    offset: int = 0
    reads: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.data)

    @property
    def remaining(self) -> int:
        return len(self.data) - self.offset

    async def read_into(self, view: memoryview) -> None:
        if len(view) > self.remaining:
            raise TruncatedBodyError(f"the body ends {len(view) - self.remaining} bytes early")
        view[:] = self.data[self.offset : self.offset + len(view)]
        self.offset += len(view)
        self.reads.append(len(view))

    async def read(self, limit: int) -> bytes:
        raise AssertionError(f"a frame is never read in one ({limit})")


@dataclass
class Sender:
    """A worker with its key, a model of d numbers and one gradient."""

    manifest: Manifest
    gradient: Vector
    sealed: SealedPayload
    private_key: Ed25519PrivateKey
    signer: Signer

    def key_lookup(self, key_id: str) -> bytes | None:
        return self.private_key.public_key().public_bytes_raw() if key_id == "w1-key" else None

    def header(self, **changes: object) -> GradientHeader:
        fields: dict[str, object] = {
            "job": "digits",
            "epoch": 3,
            "round": 7,
            "mode_epoch": 0,
            "base_version": 6,
            "base_digest": bytes(32),
            "worker": "w1",
            "incarnation": b"i" * 16,
            "key_id": "w1-key",
            "seq": 11,
            "nonce": b"n" * 16,
            "issued_at": 1.75e9,
            "lease": 4,
            "n_samples": 32,
            "codec": self.sealed.codec,
            "manifest_digest": self.manifest.digest,
            "payload_len": self.sealed.payload_len,
            "chunk_len": self.sealed.chunk_len,
            "payload_root": self.sealed.root,
        }
        return GradientHeader(**(fields | changes))  # type: ignore[arg-type]


SenderMaker = Callable[[int], Sender]


@pytest.fixture
def sender_of() -> SenderMaker:
    def make(d: int) -> Sender:
        gradient = np.random.default_rng(5).standard_normal(d).astype(np.float32)
        key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
        return Sender(
            manifest=Manifest.of([("w", "float32", (d,))]),
            gradient=gradient,
            sealed=seal(Float32Codec(), gradient),
            private_key=key,
            signer=Signer(key, "w1-key"),
        )

    return make


@pytest.fixture
def sender(sender_of: SenderMaker) -> Sender:
    return sender_of(100)


@pytest.fixture
def body_of() -> Callable[[bytes], BytesBody]:
    return BytesBody
