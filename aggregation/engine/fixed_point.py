"""Numbers on a grid, for results that are the same bytes on every device.

Floating sums depend on their order, and a GPU adds in another order than a
CPU. Sums of whole numbers do not, as long as none is rounded. So values are
rounded to multiples of a power of two, few enough bits that every sum a rule
forms is exact in float64: whatever adds them, in whatever order, with or
without fused multiplication, gets the same bytes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

VALUE_BITS = 22
"""Bits of a value with its sign. With `WEIGHT_BITS` and 64 rows they fit into float64's 53."""

WEIGHT_BITS = 24
LIMB_BITS = 11
"""Values are multiplied in two halves: sums of 2^30 such products are exact in float64."""

ROWS_MAX = 64
BLOCK_ELEMENTS = 1 << 20


def grid_of(largest: Sequence[float]) -> float:
    """Return the step of the grid: a power of two.

    The median row's largest value just fits. So a minority that sends huge
    values cannot make the grid coarse; such values are cut to what fits.

    Args:
        largest: Largest absolute value of each row that is finite.
    """
    middle = sorted(largest)[len(largest) // 2]
    if middle == 0:
        return 1.0
    exponent = torch.frexp(torch.tensor(middle, dtype=torch.float64)).exponent.item()
    return float(2.0 ** (exponent - (VALUE_BITS - 1)))


def snapped(row: Tensor, grid: float) -> Tensor:
    """Return `row` rounded to the grid, halves to even, as float32; NaN stays NaN."""
    most = float(2 ** (VALUE_BITS - 1) - 1)
    steps = (row.to(torch.float64) / grid).round().clamp(-most, most)
    return (steps * grid).to(torch.float32)


def snapped_weights(weights: Sequence[float]) -> list[float]:
    """Return weights rounded to multiples of 2^-`WEIGHT_BITS`, halves to even."""
    scale = float(2**WEIGHT_BITS)
    return [round(weight * scale) / scale for weight in weights]


def exact_products(rows: Sequence[Tensor], grid: float, columns: slice) -> list[list[int]]:
    """Return the inner products of rows on the grid, in units of grid squared, exactly.

    Args:
        rows: n tensors [d], float32 on the grid, on any one device.
        grid: Its step.
        columns: Which.
    """
    n = len(rows)
    total = torch.zeros((2 * n, 2 * n), dtype=torch.float64, device=rows[0].device)
    width = max(1, BLOCK_ELEMENTS // n)
    for start in range(columns.start, columns.stop, width):
        end = min(start + width, columns.stop)
        steps = torch.stack([row[start:end] for row in rows]).to(torch.float64) / grid
        high = (steps / 2**LIMB_BITS).floor()
        limbs = torch.cat([high, steps - high * 2**LIMB_BITS])
        total += limbs @ limbs.T
    found = [[int(value) for value in row] for row in total.tolist()]
    base = 2**LIMB_BITS
    return [
        [
            found[i][j] * base * base
            + (found[i][n + j] + found[n + i][j]) * base
            + found[n + i][n + j]
            for j in range(n)
        ]
        for i in range(n)
    ]


def distances_of(products: list[list[int]], grid: float) -> Tensor:
    """Return squared distances, float64 [n, n], each rounded once from the exact number."""
    n = len(products)
    exact = [
        [products[i][i] + products[j][j] - 2 * products[i][j] for j in range(n)] for i in range(n)
    ]
    return scaled(exact, grid)


def scaled(exact: list[list[int]], grid: float) -> Tensor:
    """Return numbers in units of grid squared as float64 [n, n], each rounded once."""
    rounded = [[float(value) for value in row] for row in exact]
    return torch.tensor(rounded, dtype=torch.float64) * grid**2
