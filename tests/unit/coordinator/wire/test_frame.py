"""A gradient arrives whole, or its sender learns by a typed refusal what was wrong."""

import asyncio
import gc
import struct
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliska.coordinator.wire import (
    CHUNK_BYTES,
    CodecSpec,
    DigestError,
    GradientHeader,
    MalformedError,
    NonFiniteError,
    RefusedError,
    ReplyCode,
    SchemaError,
    TooLargeError,
    TruncatedBodyError,
    check_sizes,
    gradient_frame,
    read_envelope,
    receive_payload,
    verify,
)
from pliska.coordinator.wire.codec import Float32Codec
from pliska.coordinator.wire.frame import SealedPayload, seal
from pliska.coordinator.wire.limits import ENVELOPE_BYTES_MAX, FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX

SEVERAL_CHUNKS = 3 * CHUNK_BYTES // 4 + 100


def frame_of(sender, **changes) -> bytes:
    signed = sender.signer.sign(sender.header(**changes))
    return b"".join(gradient_frame(signed, sender.sealed))


async def receive(sender, body) -> np.ndarray:
    """What a server does with a frame, in its order."""
    verified = verify(await read_envelope(body), GradientHeader, sender.key_lookup)
    check_sizes(verified.message, sender.manifest, body.remaining)
    row = np.full(sender.gradient.size, 9, np.float32)
    await receive_payload(body, verified, row)
    return row


@pytest.mark.parametrize("d", [1, CHUNK_BYTES // 4, CHUNK_BYTES // 4 + 1, SEVERAL_CHUNKS])
async def test_a_gradient_arrives_bit_for_bit(sender_of, body_of, d: int) -> None:
    sender = sender_of(d)
    row = await receive(sender, body_of(frame_of(sender)))
    assert row.tobytes() == sender.gradient.tobytes()


async def test_the_envelope_is_read_without_the_payload(sender_of, body_of) -> None:
    sender = sender_of(SEVERAL_CHUNKS)
    body = body_of(frame_of(sender))
    await read_envelope(body)
    assert body.offset < 2000
    assert body.remaining == 4 * 32 + 4 * SEVERAL_CHUNKS


async def test_no_read_is_larger_than_a_chunk(sender_of, body_of) -> None:
    sender = sender_of(SEVERAL_CHUNKS)
    body = body_of(frame_of(sender))
    await receive(sender, body)
    assert max(body.reads) == CHUNK_BYTES


def test_the_sender_shares_the_gradients_memory(sender) -> None:
    *_, payload = gradient_frame(sender.signer.sign(sender.header()), sender.sealed)
    assert np.shares_memory(np.frombuffer(payload, np.uint8), sender.gradient)


async def test_the_same_sealed_payload_is_signed_again_for_another_epoch(sender, body_of) -> None:
    row = await receive(sender, body_of(frame_of(sender, epoch=4, seq=12)))
    assert row.tobytes() == sender.gradient.tobytes()


async def test_a_change_of_any_byte_is_refused(sender_of, body_of) -> None:
    sender = sender_of(10)
    frame = frame_of(sender)
    for position in range(len(frame)):
        changed = bytearray(frame)
        changed[position] ^= 0x10
        with pytest.raises(RefusedError):
            await receive(sender, body_of(bytes(changed)))


async def test_a_frame_cut_anywhere_is_refused(sender_of, body_of) -> None:
    sender = sender_of(10)
    frame = frame_of(sender)
    for cut in range(len(frame)):
        with pytest.raises(TruncatedBodyError):
            await receive(sender, body_of(frame[:cut]))


async def test_bytes_behind_the_payload_are_refused(sender, body_of) -> None:
    with pytest.raises(MalformedError, match="1 bytes more"):
        await receive(sender, body_of(frame_of(sender) + b"\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_random_bytes_are_refused_with_a_code(body_of, data: bytes) -> None:
    with pytest.raises(RefusedError) as refusal:
        asyncio.run(read_envelope(body_of(data)))
    assert refusal.value.code in (ReplyCode.SCHEMA, ReplyCode.TOO_LARGE)


async def test_an_envelope_over_its_limit_is_refused_unread(body_of) -> None:
    at_limit = body_of(struct.pack(">I", ENVELOPE_BYTES_MAX) + bytes(ENVELOPE_BYTES_MAX))
    with pytest.raises(MalformedError):
        await read_envelope(at_limit)
    over = body_of(struct.pack(">I", ENVELOPE_BYTES_MAX + 1) + bytes(ENVELOPE_BYTES_MAX + 1))
    with pytest.raises(TooLargeError):
        await read_envelope(over)
    assert over.offset == 4


async def test_a_body_over_its_limit_is_refused_unread(body_of) -> None:
    class Huge(type(body_of(b""))):
        length = FRAME_BYTES_MAX + 1

    body = Huge(bytes(100))
    with pytest.raises(TooLargeError):
        await read_envelope(body)
    assert body.offset == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"manifest_digest": bytes(32)}, SchemaError),
        ({"codec": CodecSpec("int9")}, SchemaError),
        ({"codec": CodecSpec("float32", (("a", "1"),))}, SchemaError),
        ({"chunk_len": CHUNK_BYTES - 1}, SchemaError),
        ({"payload_len": 396}, SchemaError),
        ({"payload_len": 404}, SchemaError),
        ({"payload_len": PAYLOAD_BYTES_MAX}, SchemaError),
        ({"payload_len": PAYLOAD_BYTES_MAX + 1}, TooLargeError),
    ],
)
async def test_a_header_that_does_not_fit_the_job_is_refused_before_the_payload(
    sender, body_of, change, error
) -> None:
    body = body_of(frame_of(sender, **change))
    with pytest.raises(error):
        await receive(sender, body)
    assert body.remaining == 32 + 400


async def test_a_row_of_another_length_is_never_overrun(sender, body_of) -> None:
    body = body_of(frame_of(sender))
    verified = verify(await read_envelope(body), GradientHeader, sender.key_lookup)
    with pytest.raises(SchemaError):
        await receive_payload(body, verified, np.zeros(99, np.float32))


async def test_a_lie_in_the_last_chunk_is_found(sender_of, body_of) -> None:
    sender = sender_of(SEVERAL_CHUNKS)
    frame = bytearray(frame_of(sender))
    frame[-1] ^= 1
    with pytest.raises(DigestError, match="chunk 3"):
        await receive(sender, body_of(bytes(frame)))


async def test_a_lie_in_the_first_chunk_ends_the_transfer_early(sender_of, body_of) -> None:
    sender = sender_of(40 * CHUNK_BYTES // 4)
    frame = bytearray(frame_of(sender))
    frame[-40 * CHUNK_BYTES] ^= 1
    body = body_of(bytes(frame))
    with pytest.raises(DigestError, match="chunk 0"):
        await receive(sender, body)
    assert body.remaining > 30 * CHUNK_BYTES


async def test_lies_behind_the_first_are_not_complained_about_later(sender_of, body_of) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    sender = sender_of(6 * CHUNK_BYTES // 4)
    frame = frame_of(sender)[: -6 * CHUNK_BYTES] + bytes(6 * CHUNK_BYTES)
    with pytest.raises(DigestError):
        await receive(sender, body_of(frame))
    await asyncio.sleep(0.05)
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
async def test_a_signed_gradient_that_is_not_finite_is_refused(sender, body_of, value) -> None:
    sender.gradient[57] = value
    sender.sealed = seal(Float32Codec(), sender.gradient)
    with pytest.raises(NonFiniteError) as refusal:
        await receive(sender, body_of(frame_of(sender)))
    assert refusal.value.code is ReplyCode.NONFINITE
    assert refusal.value.index == 57


async def test_leaf_hashes_of_another_payload_are_refused(sender, body_of) -> None:
    forged = SealedPayload(
        sender.sealed.codec, sender.sealed.payload, b"f" * 32, sender.sealed.root
    )
    frame = b"".join(gradient_frame(sender.signer.sign(sender.header()), forged))
    with pytest.raises(DigestError, match="leaf hashes"):
        await receive(sender, body_of(frame))


async def test_a_cancelled_receiver_waits_until_no_thread_writes_its_row(sender, body_of) -> None:
    body = body_of(frame_of(sender))
    verified = verify(await read_envelope(body), GradientHeader, sender.key_lookup)
    decoding, may_end = threading.Event(), threading.Event()

    class SlowRow(np.ndarray):
        """Stands still where the decoding thread looks at the numbers."""

        def __getitem__(self, key):
            decoding.set()
            may_end.wait()
            return super().__getitem__(key)

    row = np.zeros(100, np.float32).view(SlowRow)
    receiving = asyncio.create_task(receive_payload(body, verified, row))
    await asyncio.to_thread(decoding.wait)
    receiving.cancel()
    done, _ = await asyncio.wait([receiving], timeout=0.05)
    assert not done
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving


async def test_a_header_with_a_foreign_signature_is_refused_before_the_payload(
    sender, body_of
) -> None:
    signed = sender.signer.sign(sender.header())
    forged = replace(signed, signature=bytes(64))
    body = body_of(b"".join(gradient_frame(forged, sender.sealed)))
    with pytest.raises(RefusedError) as refusal:
        await receive(sender, body)
    assert refusal.value.code is ReplyCode.BAD_SIG
    assert body.remaining == 32 + 400
