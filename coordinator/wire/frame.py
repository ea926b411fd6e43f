"""The body of a gradient message: a signed header, leaf hashes, a payload.

    envelope length, 4 bytes | signed GradientHeader | 32 bytes a leaf | payload

The receiver works in steps, so that the cheap checks come before the costly
bytes: `read_envelope`, its own checks and `verify`, `check_sizes`, and only
then `receive_payload` straight into a row. A header that is refused leaves
the payload unread. Who may send what in which round is not decided here.
"""

import asyncio
import struct
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass

from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.codec import Codec, CodecSpec, Vector, check_finite, codec_named
from pliska.coordinator.wire.errors import (
    MalformedError,
    SchemaError,
    TooLargeError,
    TruncatedBodyError,
)
from pliska.coordinator.wire.limits import (
    CHUNK_BYTES,
    CHUNKS_UNVERIFIED_MAX,
    ENVELOPE_BYTES_MAX,
    FRAME_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
)
from pliska.coordinator.wire.manifest import Manifest
from pliska.coordinator.wire.messages import GradientHeader
from pliska.coordinator.wire.signing import Signed, Verified
from pliska.coordinator.wire.transport import Body

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class SealedPayload:
    """An encoded gradient with its hash tree, ready to be signed for any epoch.

    Attributes:
        codec: For the header.
        payload: Shares the gradient's memory where the codec allows; keep that unchanged.
        leaf_hashes: Of the tree over the payload, joined.
        root: For the header.
    """

    codec: CodecSpec
    payload: memoryview
    leaf_hashes: bytes
    root: bytes

    @property
    def payload_len(self) -> int:
        """Bytes of the payload, for the header."""
        return len(self.payload)

    @property
    def chunk_len(self) -> int:
        """Bytes under one leaf, for the header."""
        return CHUNK_BYTES


def seal(codec: Codec, vector: Vector) -> SealedPayload:
    """Encode a gradient, float32 [d], and hash it.

    It takes about a millisecond for each 1.4 MB and releases the interpreter lock: run it
    in a thread where an event loop must go on.
    """
    payload = codec.encode(vector)
    leaves = hash_tree.leaves(payload)
    return SealedPayload(
        CodecSpec(codec.id, codec.params),
        payload,
        b"".join(leaves),
        hash_tree.root(leaves, len(payload)),
    )


def gradient_frame(signed_header: Signed, sealed: SealedPayload) -> tuple[memoryview, ...]:
    """Return the buffers to send one after the other; the payload is not copied."""
    envelope = signed_header.to_bytes()
    return (
        memoryview(_LENGTH.pack(len(envelope)) + envelope),
        memoryview(sealed.leaf_hashes),
        sealed.payload,
    )


async def read_envelope(body: Body) -> Signed:
    """Read the signed header, and nothing behind it. It is not verified.

    Raises:
        TooLargeError: The body or its envelope is over its limit.
        TruncatedBodyError: The body ends within the envelope.
        MalformedError: The envelope is not one canonical signed message.
    """
    if body.length > FRAME_BYTES_MAX:
        raise TooLargeError("a gradient message", size=body.length, limit=FRAME_BYTES_MAX)
    (envelope_len,) = _LENGTH.unpack(await _read_exactly(body, _LENGTH.size))
    if envelope_len > ENVELOPE_BYTES_MAX:
        raise TooLargeError("a signed header", size=envelope_len, limit=ENVELOPE_BYTES_MAX)
    return Signed.from_bytes(await _read_exactly(body, envelope_len))


def check_sizes(header: GradientHeader, manifest: Manifest, bytes_behind_envelope: int) -> None:
    """Check that a header fits the job's manifest and the length of the body it came in.

    Args:
        header: The header, verified or not.
        manifest: The job's.
        bytes_behind_envelope: `body.remaining` after `read_envelope`.

    Raises:
        SchemaError: Another manifest, an unknown codec, another chunk length, or a payload
            length that is not what codec and manifest imply.
        TooLargeError: The payload is over `PAYLOAD_BYTES_MAX`.
        TruncatedBodyError: The body is too short for leaf hashes and payload.
        MalformedError: The body is too long for them.
    """
    if header.manifest_digest != manifest.digest:
        raise SchemaError(
            f"the gradient was made for manifest {header.manifest_digest.hex()[:16]}, "
            f"this job's is {manifest.digest.hex()[:16]}"
        )
    _check_lengths(header, manifest.dimension, bytes_behind_envelope)


async def receive_payload(
    body: Body,
    header: Verified[GradientHeader],
    row: Vector,
    executor: Executor | None = None,
) -> memoryview:
    """Receive leaf hashes and payload into a row, checking each chunk as it arrives.

    Chunks are hashed in threads while later ones arrive; the bytes of a float32 payload
    land in the row's own memory. When this raises, what the row holds is undefined.

    Args:
        body: As `read_envelope` left it.
        header: The header that came in it.
        row: float32 [d], contiguous; written by nobody else meanwhile.
        executor: Where hashing and decoding run; None for the event loop's own threads.

    Returns:
        The payload as it came: the row's own memory, where the codec allows.

    Raises:
        SchemaError, TooLargeError, TruncatedBodyError, MalformedError: As `check_sizes`, by
            the row's length; or the body ended or stalled.
        DigestError: Leaf hashes or a chunk are not those that were signed.
        NonFiniteError: The gradient holds NaN or infinity.
    """
    message = header.message
    codec = _check_lengths(message, row.size, body.remaining)
    leaf_bytes = hash_tree.LEAF_BYTES * hash_tree.leaf_count(message.payload_len)
    leaf_hashes = await _read_exactly(body, leaf_bytes)
    verifier = hash_tree.ChunkVerifier(leaf_hashes, message.payload_root, message.payload_len)
    landing = codec.landing(row)
    await _receive_chunks(body, landing, verifier, executor)
    loop = asyncio.get_running_loop()
    decoding = loop.run_in_executor(executor, _decode, codec, landing, row)
    try:
        await asyncio.shield(decoding)
    finally:
        # A cancelled caller may give the row away: not before the thread has left it.
        await asyncio.wait([decoding])
    return landing


async def _receive_chunks(
    body: Body, landing: memoryview, verifier: hash_tree.ChunkVerifier, executor: Executor | None
) -> None:
    loop = asyncio.get_running_loop()
    checks: deque[asyncio.Future[None]] = deque()
    try:
        for index, chunk in enumerate(hash_tree.chunks(landing)):
            await body.read_into(chunk)
            if len(checks) == CHUNKS_UNVERIFIED_MAX:
                await checks.popleft()
            checks.append(loop.run_in_executor(executor, verifier.check, index, chunk))
        while checks:
            await checks.popleft()
    finally:
        for check in checks:
            check.cancel()


def _decode(codec: Codec, payload: memoryview, row: Vector) -> None:
    codec.decode_into(payload, row)
    check_finite(row)


def _check_lengths(header: GradientHeader, dimension: int, bytes_behind_envelope: int) -> Codec:
    codec = codec_named(header.codec.id, header.codec.params)
    if header.payload_len > PAYLOAD_BYTES_MAX:
        raise TooLargeError("a payload", size=header.payload_len, limit=PAYLOAD_BYTES_MAX)
    if header.chunk_len != CHUNK_BYTES:
        raise SchemaError(f"chunks have {CHUNK_BYTES} bytes, not {header.chunk_len}")
    if header.payload_len != codec.encoded_bytes(dimension):
        raise SchemaError(
            f"{dimension} numbers have {codec.encoded_bytes(dimension)} bytes in codec "
            f"{codec.id}, not {header.payload_len}"
        )
    expected = hash_tree.LEAF_BYTES * hash_tree.leaf_count(header.payload_len) + header.payload_len
    if bytes_behind_envelope < expected:
        raise TruncatedBodyError(
            f"the body has {bytes_behind_envelope} bytes behind the header, which needs {expected}"
        )
    if bytes_behind_envelope > expected:
        raise MalformedError(
            f"the body has {bytes_behind_envelope - expected} bytes more than its header needs"
        )
    return codec


async def _read_exactly(body: Body, count: int) -> bytes:
    data = bytearray(count)
    await body.read_into(memoryview(data))
    return bytes(data)
