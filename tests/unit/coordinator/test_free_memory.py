from pathlib import Path

import pytest

from pliska.coordinator import free_memory

BLOCK_BYTES = 16 * 1024
BLOCKS = 2_000


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.skipif(free_memory._trim is None, reason="this C library is not asked")
def test_holes_between_what_is_used_go_back_to_the_system() -> None:
    blocks = [bytearray(b"1" * BLOCK_BYTES) for _ in range(BLOCKS)]
    used = blocks[::2]
    del blocks
    before = _resident_bytes()
    free_memory.give_back()
    assert before - _resident_bytes() > BLOCKS // 2 * BLOCK_BYTES // 3
    assert all(block == b"1" * BLOCK_BYTES for block in used)
