"""A SHA-256 hash tree over the fixed chunks of a payload.

The signed header holds the root, so each chunk is checked as it arrives and a
broken transfer can resume. Leaves, inner nodes and root are hashed under
different prefixes, and the root covers payload and chunk length, so that no
payload passes for another one:

    leaf = H(00 || chunk)      node = H(01 || left || right)
    root = H(02 || payload length, 8 bytes || chunk length, 8 bytes || top)

The top of one leaf is that leaf; of more, the node over the largest full power
of two of them and the rest; of none, H(). Source: RFC 6962, section 2.1, with
the lengths bound into the root.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from hmac import compare_digest

from pliska.coordinator.wire.errors import DigestError, MalformedError
from pliska.coordinator.wire.limits import CHUNK_BYTES

LEAF_BYTES = 32


def chunks(payload: memoryview) -> Iterator[memoryview]:
    """Cut a payload (of single bytes) into chunks; the last may be shorter."""
    for offset in range(0, len(payload), CHUNK_BYTES):
        yield payload[offset : offset + CHUNK_BYTES]


def leaf(chunk: memoryview | bytes) -> bytes:
    """Hash one chunk. Releases the interpreter lock while it does."""
    digest = sha256(b"\x00")
    digest.update(chunk)
    return digest.digest()


def leaves(payload: memoryview) -> list[bytes]:
    """Hash every chunk of a payload, in order."""
    return [leaf(chunk) for chunk in chunks(payload)]


def leaf_count(payload_len: int) -> int:
    """Return how many leaves the tree over so many bytes has."""
    return -(-payload_len // CHUNK_BYTES)


def root(leaf_hashes: Sequence[bytes], payload_len: int) -> bytes:
    """Return the root over these leaves of a payload of `payload_len` bytes.

    Raises:
        MalformedError: There are not as many leaves as that length has chunks.
    """
    if len(leaf_hashes) != leaf_count(payload_len):
        raise MalformedError(
            f"{payload_len} bytes have {leaf_count(payload_len)} leaves, not {len(leaf_hashes)}"
        )
    lengths = payload_len.to_bytes(8) + CHUNK_BYTES.to_bytes(8)
    return sha256(b"\x02" + lengths + _top(leaf_hashes)).digest()


class ChunkVerifier:
    """Checks the chunks of one payload against its signed root, in any order.

    Args:
        leaf_hashes: The leaves, joined, as they were received.
        payload_root: From a verified header.
        payload_len: From the same header.

    Raises:
        DigestError: The leaves are not those under this root.
        MalformedError: They are not as many as the length has chunks.
    """

    def __init__(self, leaf_hashes: bytes, payload_root: bytes, payload_len: int) -> None:
        self._leaves = [
            leaf_hashes[offset : offset + LEAF_BYTES]
            for offset in range(0, len(leaf_hashes), LEAF_BYTES)
        ]
        if not compare_digest(root(self._leaves, payload_len), payload_root):
            raise DigestError("the list of leaf hashes is not the one under the signed root")

    def check(self, index: int, chunk: memoryview | bytes) -> None:
        """Check one chunk. May run in any thread.

        Raises:
            DigestError: It is not the chunk that was signed.
        """
        if not compare_digest(leaf(chunk), self._leaves[index]):
            raise DigestError(f"chunk {index} of the payload is not the one that was signed")


def _top(leaf_hashes: Sequence[bytes]) -> bytes:
    """Combine leaves level by level; an odd one out moves up as it is."""
    level = list(leaf_hashes) or [sha256().digest()]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + level[len(above) * 2 :]
    return level[0]
