"""What every attack on gradients is."""

from typing import Protocol

import torch
from torch import Tensor


class Attack(Protocol):
    """Forges rows: (honest [h, d], count, generator) -> [count, d] of the same dtype."""

    def __call__(self, honest: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` forged rows; draw only from `generator`."""
        ...


def repeated(row: Tensor, count: int) -> Tensor:
    """Return `count` copies of one forged row."""
    return row.expand(count, *row.shape).clone()
