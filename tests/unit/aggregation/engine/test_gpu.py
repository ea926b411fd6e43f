"""The kernels for GPUs, run by Triton's interpreter on the CPU.

Triton is there on Linux; elsewhere these tests skip.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from pliska.aggregation.engine.gpu import has_triton

pytestmark = pytest.mark.skipif(
    not has_triton(), reason="Triton is not installed, and is not to be had on every system"
)

# Triton decides when it is imported whether it interprets, so each check has a
# process of its own.
PREPARATION = """
import torch
from pliska.aggregation.engine import gpu
from pliska.aggregation.engine.networks import Selection

def rows_of(n, d, dtype=torch.float32, seed=1):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).to(dtype)
"""


def interpret(program: str, cwd: Path) -> None:
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run(
        [sys.executable, "-c", PREPARATION + program], check=True, cwd=cwd, env=environment
    )


def test_band_means_equal_the_sort(tmp_path: Path) -> None:
    interpret(
        """
for n, f, dtype in ((1, 0, torch.float32), (5, 2, torch.bfloat16), (8, 2, torch.float16),
                    (16, 4, torch.float32), (33, 8, torch.float32)):
    rows = rows_of(n, 300, dtype)
    out = torch.full((300,), 9.0)
    sums = gpu.select_mean(tuple(rows), Selection(n, range(f, n - f)), slice(2, 300), out)
    ordered = rows.double()[:, 2:].sort(dim=0).values[f : n - f]
    assert torch.equal(out[2:], ordered.mean(dim=0).float()), (n, f)
    assert out[:2].tolist() == [9, 9]
    part = rows.double()[:, 2:]
    inside = (part >= ordered[0]) & (part <= ordered[-1])
    assert torch.equal(sums[2], inside.sum(dim=1).double()), (n, f)
    assert torch.allclose(sums[0], (part - out[2:].double()).square().sum(dim=1))
    assert torch.allclose(sums[1], part.square().sum(dim=1))
""",
        tmp_path,
    )


def test_products_equal_those_in_float64(tmp_path: Path) -> None:
    interpret(
        """
for n, centre, dtype in ((3, -1, torch.float32), (16, 2, torch.float32), (17, 0, torch.bfloat16)):
    d = gpu.CHUNK_COLUMNS + 70
    rows = rows_of(n, d, dtype) + (100 if centre >= 0 else 0)
    found = gpu.products(tuple(rows), slice(1, d), centre)
    exact = rows.double()[:, 1:]
    assert torch.allclose(found[n], exact.square().sum(dim=1), rtol=1e-6)
    exact = exact - (exact[centre] if centre >= 0 else 0)
    found = found[:n]
    assert torch.allclose(found, exact @ exact.T, atol=1e-6 * float((exact @ exact.T).max()))
    assert torch.equal(found, found.T)
""",
        tmp_path,
    )


def test_weighted_sums_equal_those_in_float64(tmp_path: Path) -> None:
    interpret(
        """
for n, dtype in ((1, torch.float32), (7, torch.bfloat16), (30, torch.float16)):
    rows = rows_of(n, 1500, dtype)
    weights = torch.randn(n, generator=torch.Generator().manual_seed(2)).double()
    out = torch.empty(1500)
    gpu.weighted_sum(tuple(rows), weights.tolist(), out)
    assert torch.allclose(out, (weights @ rows.double()).float(), rtol=1e-6, atol=1e-6)
""",
        tmp_path,
    )


def test_extreme_values_keep_their_order(tmp_path: Path) -> None:
    interpret(
        """
rows = torch.tensor([[-1e38, 1e-45], [1e38, 2e-45], [3.4e38, 0.0], [-3.4e38, -1e-45]])
out = torch.empty(2)
gpu.select_mean(tuple(rows), Selection(4, range(1, 3)), slice(0, 2), out)
assert out[0] == 0.0
""",
        tmp_path,
    )
