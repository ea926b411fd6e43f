"""Packed bytes of a tensor: the bytes of one rank of all numbers together, then zlib.

Signs and exponents of weights are alike and compress; the low bytes of mantissas do
not, and among them the others would not either. What repeats in weights are runs, as of
zeros, so zlib looks for nothing longer: that is six times as fast as its default here, and
smaller. Lossless. Pure: no files here.

Format: `PLISKAZ1`, one byte with the bytes of a number, eight bytes with the
length of the plain bytes (little-endian), then a zlib stream (RFC 1950).
"""

import zlib

from pliska.coordinator.registry.errors import IntegrityError

MAGIC = b"PLISKAZ1"
HEADER_BYTES = len(MAGIC) + 9
ITEM_BYTES_MAX = 16
LEVEL = 1


def packed_bytes_max(plain_bytes: int) -> int:
    """Return the most that so many bytes can take packed (zlib's own bound)."""
    return HEADER_BYTES + plain_bytes + plain_bytes // 1000 + 64


def pack(content: bytes, item_bytes: int) -> bytes:
    """Pack bytes of numbers of 1 to `ITEM_BYTES_MAX` bytes each."""
    planes = b"".join(content[rank::item_bytes] for rank in range(item_bytes))
    length = len(content).to_bytes(8, "little")
    stream = zlib.compressobj(LEVEL, strategy=zlib.Z_RLE)
    return MAGIC + bytes([item_bytes]) + length + stream.compress(planes) + stream.flush()


def plain_length(header: bytes, what: str) -> int:
    """Return how many bytes were packed, by the first `HEADER_BYTES` of what came of it.

    Raises:
        IntegrityError: They are not such a header.
    """
    if len(header) != HEADER_BYTES or not header.startswith(MAGIC):
        raise IntegrityError(f"{what}: not packed bytes of a tensor")
    if not 1 <= header[len(MAGIC)] <= ITEM_BYTES_MAX:
        raise IntegrityError(f"{what}: packed in a way that is not known here")
    return int.from_bytes(header[len(MAGIC) + 1 :], "little")


def unpack(packed: bytes, bytes_max: int, what: str) -> bytes:
    """Return what was packed; never more than `bytes_max` are made.

    Raises:
        IntegrityError: It is damaged, or longer than it says or than `bytes_max`.
    """
    header = packed[:HEADER_BYTES]
    length = plain_length(header, what)
    if length > bytes_max:
        raise IntegrityError(f"{what}: {length} bytes packed, more than {bytes_max}")
    stream = zlib.decompressobj()
    try:
        planes = stream.decompress(packed[HEADER_BYTES:], length + 1)
    except zlib.error as error:
        raise IntegrityError(f"{what}: damaged: {error}") from error
    if len(planes) != length or not stream.eof or stream.unused_data:
        raise IntegrityError(f"{what}: damaged: it does not hold {length} bytes")
    item_bytes = header[len(MAGIC)]
    content = bytearray(length)
    start = 0
    for rank in range(item_bytes):
        plane = planes[start : start + len(range(rank, length, item_bytes))]
        content[rank::item_bytes] = plane
        start += len(plane)
    return bytes(content)
