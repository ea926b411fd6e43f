"""Attacks that need no knowledge of the other workers, or only of their mean."""

import torch
from torch import Tensor

from pliska.aggregation.attacks.attack import repeated


def sign_flip(
    honest: Tensor, count: int, generator: torch.Generator, *, scale: float = 1.0
) -> Tensor:
    """Send -scale times the mean of the honest rows: training runs uphill."""
    del generator
    return repeated(-scale * honest.mean(dim=0), count)


def gaussian(
    honest: Tensor, count: int, generator: torch.Generator, *, deviation: float = 200.0
) -> Tensor:
    """Send independent normal noise of mean 0 (Blanchard et al. 2017, Section 6)."""
    noise = torch.randn((count, *honest.shape[1:]), generator=generator, dtype=torch.float32)
    return (deviation * noise).to(honest)


def not_a_number(honest: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Send NaN in one coordinate drawn by lot, which poisons any sum that includes it."""
    return _spiked(honest, count, generator, torch.nan)


def infinity(honest: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Send infinity in one coordinate drawn by lot."""
    return _spiked(honest, count, generator, torch.inf)


def huge_coordinate(
    honest: Tensor, count: int, generator: torch.Generator, *, value: float = 1e20
) -> Tensor:
    """Send the honest mean with one coordinate, drawn by lot, set to a huge finite value."""
    return _spiked(honest, count, generator, value)


def delayed(
    honest: Tensor, count: int, generator: torch.Generator, *, past: Tensor | None = None
) -> Tensor:
    """Send the mean of an earlier round, which was right once.

    Args:
        honest: [h, d].
        count: Rows to forge.
        generator: Unused.
        past: Honest rows of that round, [h', d]; None, as in the first rounds,
            sends the present mean.
    """
    del generator
    return repeated((honest if past is None else past.to(honest)).mean(dim=0), count)


def _spiked(honest: Tensor, count: int, generator: torch.Generator, value: float) -> Tensor:
    rows = repeated(honest.mean(dim=0), count)
    columns = torch.randint(honest[0].numel(), (count,), generator=generator)
    rows.view(count, -1)[torch.arange(count), columns] = value
    return rows
