import subprocess
import sys
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


SCATTER = """
import numpy as np
from pathlib import Path
from pliska.coordinator import free_memory

def resident():
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in l]
    return int(line.split()[1]) * 1024

free_memory.keep_large_pieces_apart()
np.ones(1 << 21)  # 16 MiB: by itself the library puts all below among the small ones from now on
large, small = [], []
for _ in range(10):
    large.append(np.ones(1 << 20))  # 8 MiB
    small.append(np.ones(1 << 10))
before = resident()
large.clear()
print(before - resident())
"""


@pytest.mark.skipif(free_memory._trim is None, reason="this C library is not asked")
def test_large_pieces_go_back_whatever_lies_between_them() -> None:
    # In a process of its own: it changes how all of it takes memory.
    done = subprocess.run([sys.executable, "-c", SCATTER], check=True, capture_output=True)
    assert int(done.stdout) > 9 * 8 * 2**20
