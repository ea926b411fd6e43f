import gc
import resource
from pathlib import Path

import pytest
import torch

from pliska.aggregation.engine.results import KEPT_BYTES_MIN, ResultMemory, blank

D = KEPT_BYTES_MIN // 4


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_is_used_again_once_nobody_holds_the_result() -> None:
    results = ResultMemory()
    first = results.vector(D)
    address = first.data_ptr()
    assert results.vector(D).data_ptr() != address
    view = first[3:]
    del first
    gc.collect()
    assert results.vector(D).data_ptr() != address
    del view
    gc.collect()
    assert results.vector(D).data_ptr() == address


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_blank_is_all_zeros_of_the_same_kind(dtype: torch.dtype) -> None:
    made = blank(torch.ones(1001, dtype=dtype))
    assert made.dtype == dtype
    assert torch.equal(made, torch.zeros(1001, dtype=dtype))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for its memory")
def test_reading_blank_zeros_takes_no_memory() -> None:
    like = torch.empty(1 << 24)
    before = resident_bytes()
    made = blank(like)
    assert float(made.sum()) == 0.0
    assert resident_bytes() - before < made.nbytes / 4
