"""The tree binds every byte, the order, and the length."""

from hashlib import sha256

import pytest

from pliska.coordinator.wire import CHUNK_BYTES, ChunkVerifier, DigestError, MalformedError
from pliska.coordinator.wire.hash_tree import chunks, leaf_count, leaves, root

LEAVES = [bytes([i]) * 32 for i in range(7)]
GOLDEN = {
    0: "50800868f8c465f3fda9b4681f8c144abab5d9e7fc8d931a52b367ac43940ea1",
    1: "f3aec482098bfcafa423b651d1a89e8a1050519cbd6a9a9399a43c52d027b6fc",
    3: "75e42624f2b89e9e32f14e76f6f148c8e1f4874580eecedcdca04a5870f08e3b",
    7: "01e2982890ebe1dd7e7733a11e5155e13acffefe10112f9a26a5c343e20626a4",
}


def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


@pytest.mark.parametrize("count", GOLDEN)
def test_roots_are_what_they_always_were(count: int) -> None:
    assert root(LEAVES[:count], count * CHUNK_BYTES).hex() == GOLDEN[count]


def test_a_small_payload_written_out() -> None:
    top = h(b"\0", b"abc")
    lengths = (3).to_bytes(8, "big") + (1 << 20).to_bytes(8, "big")
    assert root(leaves(memoryview(b"abc")), 3) == h(b"\2", lengths, top)


def test_an_odd_leaf_moves_up_as_it_is() -> None:
    a, b, c = LEAVES[:3]
    top = h(b"\1", h(b"\1", a, b), c)
    lengths = (3 << 20).to_bytes(8, "big") + (1 << 20).to_bytes(8, "big")
    assert root([a, b, c], 3 << 20) == h(b"\2", lengths, top)


def rfc_6962_top(hashes: list[bytes]) -> bytes:
    """The definition by recursion: split at the largest power of two below the count."""
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << ((len(hashes) - 1).bit_length() - 1)
    return h(b"\1", rfc_6962_top(hashes[:split]), rfc_6962_top(hashes[split:]))


@pytest.mark.parametrize("count", range(1, 40))
def test_the_top_is_that_of_rfc_6962(count: int) -> None:
    hashes = [h(bytes([i])) for i in range(count)]
    lengths = (count << 20).to_bytes(8, "big") + (1 << 20).to_bytes(8, "big")
    assert root(hashes, count << 20) == h(b"\2", lengths, rfc_6962_top(hashes))


@pytest.mark.parametrize(
    ("length", "count"),
    [(0, 0), (1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (5 * CHUNK_BYTES, 5)],
)
def test_every_started_chunk_has_a_leaf(length: int, count: int) -> None:
    payload = memoryview(bytes(length))
    assert leaf_count(length) == len(leaves(payload)) == len(list(chunks(payload))) == count


def test_the_length_is_bound() -> None:
    assert root(LEAVES[:2], 2 * CHUNK_BYTES) != root(LEAVES[:2], 2 * CHUNK_BYTES - 1)


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_leaves_is_refused(count: int) -> None:
    with pytest.raises(MalformedError, match=f"2 leaves, not {count}"):
        root(LEAVES[:count], CHUNK_BYTES + 1)


def test_chunks_are_checked_in_any_order_and_a_changed_one_is_refused() -> None:
    payload = memoryview(bytearray(b"x" * (2 * CHUNK_BYTES + 5)))
    hashes = leaves(payload)
    verifier = ChunkVerifier(b"".join(hashes), root(hashes, len(payload)), len(payload))
    first, second, third = chunks(payload)
    verifier.check(2, third)
    verifier.check(0, first)
    payload[CHUNK_BYTES] ^= 1
    with pytest.raises(DigestError, match="chunk 1"):
        verifier.check(1, second)
    with pytest.raises(DigestError, match="chunk 1"):
        verifier.check(1, third)


@pytest.mark.parametrize("change", [0, 31, 32, 95])
def test_leaves_that_are_not_under_the_signed_root_are_refused(change: int) -> None:
    signed_root = root(LEAVES[:3], 3 * CHUNK_BYTES)
    received = bytearray(b"".join(LEAVES[:3]))
    ChunkVerifier(bytes(received), signed_root, 3 * CHUNK_BYTES)
    received[change] ^= 4
    with pytest.raises(DigestError):
        ChunkVerifier(bytes(received), signed_root, 3 * CHUNK_BYTES)
    with pytest.raises(MalformedError):
        ChunkVerifier(bytes(received[:-1]) + b"", signed_root, 2 * CHUNK_BYTES)
