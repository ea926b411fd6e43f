import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.registry import IntegrityError
from pliska.coordinator.registry.packed import (
    HEADER_BYTES,
    ITEM_BYTES_MAX,
    MAGIC,
    pack,
    packed_bytes_max,
    plain_length,
    unpack,
)


@given(st.binary(max_size=500), st.integers(1, ITEM_BYTES_MAX))
def test_what_was_packed_comes_back(content: bytes, item_bytes: int) -> None:
    packed = pack(content, item_bytes)
    assert unpack(packed, len(content), "x") == content
    assert plain_length(packed[:HEADER_BYTES], "x") == len(content)
    assert len(packed) <= packed_bytes_max(len(content))


def test_weights_shrink_more_by_planes_than_by_zlib_alone() -> None:
    draw = random.Random(1)
    weights = [draw.gauss(0, 0.02) for _ in range(20_000)]
    content = struct.pack(f"<{len(weights)}f", *weights)
    packed = len(pack(content, 4)) / len(content)
    assert packed < 0.9
    assert packed < len(zlib.compress(content)) / len(content)


def test_more_than_was_allowed_is_never_made() -> None:
    packed = pack(b"\0" * 100_000, 4)
    assert unpack(packed, 100_000, "x") == b"\0" * 100_000
    with pytest.raises(IntegrityError, match="more than 99999"):
        unpack(packed, 99_999, "x")
    bomb = packed[: len(MAGIC) + 1] + (10).to_bytes(8, "little") + packed[HEADER_BYTES:]
    with pytest.raises(IntegrityError, match="does not hold 10"):
        unpack(bomb, 10, "x")


PACKED = pack(b"hello, hello, hello!", 4)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        PACKED[:10],
        PACKED[:-1],
        PACKED + b"x",
        b"X" + PACKED[1:],
        PACKED[: len(MAGIC)] + b"\0" + PACKED[len(MAGIC) + 1 :],
        PACKED[: len(MAGIC)] + bytes([ITEM_BYTES_MAX + 1]) + PACKED[len(MAGIC) + 1 :],
        PACKED[:HEADER_BYTES] + b"\x80\x04.",
        PACKED[:-3] + bytes([PACKED[-3] ^ 1]) + PACKED[-2:],
    ],
)
def test_what_is_damaged_is_refused(damaged: bytes) -> None:
    with pytest.raises(IntegrityError):
        unpack(damaged, 1000, "x")
