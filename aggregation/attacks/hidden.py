"""Attacks that know the honest rows, and hide among them."""

from statistics import NormalDist

import torch
from torch import Tensor

from pliska.aggregation.attacks.attack import repeated
from pliska.aggregation.errors import ParameterError


def ipm(honest: Tensor, count: int, generator: torch.Generator, *, epsilon: float = 0.1) -> Tensor:
    """Inner product manipulation: -epsilon times the honest mean.

    A small epsilon hides among the honest rows and still turns the inner
    product of the aggregate with the true gradient negative.

    Source: Xie, Koyejo, Gupta, "Fall of empires", UAI 2019.
    """
    del generator
    return repeated(-epsilon * honest.mean(dim=0), count)


def alie(
    honest: Tensor, count: int, generator: torch.Generator, *, z: float | None = None
) -> Tensor:
    """A little is enough: mean - z * standard deviation, per coordinate.

    The forged rows stay within the spread of the honest ones, so that
    distances do not give them away. With one honest row there is no spread and
    the attack sends that row.

    Source: Baruch, Baruch, Goldberg, "A little is enough", NeurIPS 2019,
    Algorithm 3.

    Args:
        honest: [h, d].
        count: Rows to forge.
        generator: Unused.
        z: Standard deviations to move by; None takes the paper's largest
            unnoticeable one for n = h + count workers. That is 0 unless nearly
            half of them collude, so small drills set it, to 1.5 say.
    """
    del generator
    if z is None:
        z = alie_z(len(honest) + count, count)
    deviation = honest.std(dim=0) if len(honest) > 1 else torch.zeros_like(honest[0])
    return repeated(honest.mean(dim=0) - z * deviation, count)


def alie_z(n: int, f: int) -> float:
    """Return the largest z that goes unnoticed: of n workers, f of them attackers.

    z = Phi^-1((n - f - s) / (n - f)) with s = floor(n / 2 + 1) - f, the honest
    rows that the attackers need on their side (Algorithm 3, lines 1 and 2).
    """
    supporters = n // 2 + 1 - f
    quantile = (n - f - supporters) / (n - f)
    return NormalDist().inv_cdf(quantile) if 0 < quantile < 1 else 0.0


def min_max(
    honest: Tensor, count: int, generator: torch.Generator, *, direction: str = "std"
) -> Tensor:
    """Move the mean so far that no honest row is farther from it than two honest ones are apart.

    mean + gamma * p with the largest gamma for which max |forged - x_i| is at
    most max |x_i - x_j|; found in closed form, where the paper searches.

    Source: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021,
    Section IV-B.

    Args:
        honest: [h, d].
        count: Rows to forge.
        generator: Unused.
        direction: p: "std", "sign" or "unit", each against the honest mean.
    """
    del generator
    flat = honest.reshape(len(honest), -1).double()
    offsets, along = _offsets(flat, direction)
    squared = offsets.square().sum(dim=1)
    limit = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").max().square()
    # |gamma p - o|^2 <= limit for every offset o: the larger root of each, the least of all.
    length = along.square().sum()
    inner = offsets @ along
    roots = inner + (inner.square() + length * (limit - squared).clamp(min=0)).sqrt()
    gamma = (roots / length).min() if length > 0 else 0.0
    return _moved(honest, flat, gamma * along, count)


def min_sum(
    honest: Tensor, count: int, generator: torch.Generator, *, direction: str = "std"
) -> Tensor:
    """Move the mean so far that it is in sum no farther from the honest rows than one of them is.

    As `min_max`, with sums of squared distances in place of maxima: the sum
    over i of |forged - x_i|^2 is at most the largest over j of the sum over i of
    |x_j - x_i|^2.

    Source: Shejwalkar, Houmansadr, NDSS 2021, Section IV-C.
    """
    del generator
    flat = honest.reshape(len(honest), -1).double()
    offsets, along = _offsets(flat, direction)
    squared = offsets.square().sum(dim=1)
    # Sums to all rows, about the mean: S + h |o_j|^2 for row j, S + h gamma^2 |p|^2 forged.
    length = along.square().sum()
    gamma = (squared.max() / length).sqrt() if length > 0 else 0.0
    return _moved(honest, flat, gamma * along, count)


def mimic(honest: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Copy the honest row that lies farthest out along the direction of largest spread.

    No row is a lie, but one worker's data counts count + 1 times. The paper
    learns the direction over the first rounds; this takes it from the round.

    Source: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous
    datasets via bucketing", ICLR 2022, Appendix B.
    """
    del generator
    flat = honest.reshape(len(honest), -1).double()
    centred = flat - flat.mean(dim=0)
    _, vectors = torch.linalg.eigh(centred @ centred.T)
    return repeated(honest[int(vectors[:, -1].abs().argmax())], count)


def _offsets(flat: Tensor, direction: str) -> tuple[Tensor, Tensor]:
    """Return the rows less their mean, and the direction to move the mean in."""
    mean = flat.mean(dim=0)
    if direction == "std":
        along = -flat.std(dim=0) if len(flat) > 1 else torch.zeros_like(mean)
    elif direction == "sign":
        along = -mean.sign()
    elif direction == "unit":
        along = -mean / mean.norm().clamp(min=torch.finfo(torch.float64).tiny)
    else:
        raise ParameterError(f'direction must be "std", "sign" or "unit", not {direction!r}')
    return flat - mean, along


def _moved(honest: Tensor, flat: Tensor, step: Tensor, count: int) -> Tensor:
    forged = (flat.mean(dim=0) + step).to(honest.dtype).reshape(honest.shape[1:])
    return repeated(forged, count)
