"""Attacks that know the rule, and search for the lie that does it most harm.

Harm is how far the aggregate lies from the mean of the honest rows. A rule that
an attack of this file cannot move may still be moved by another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.attacks.attack import repeated
from pliska.aggregation.attacks.hidden import mimic
from pliska.aggregation.errors import AggregationError
from pliska.aggregation.trimmed_mean import TrimmedMean

STRENGTHS = tuple(10 ** (exponent / 2) for exponent in range(-4, 9))
"""Multiples of a direction that are tried first: 0.01 to 10000, two a decade."""
REFINEMENTS = 8
"""Steps of the search around the best of them; each asks the rule twice."""


@dataclass(frozen=True, slots=True)
class _Trial:
    harm: float
    rows: Tensor


def alie_optimised(
    honest: Tensor, count: int, generator: torch.Generator, *, rule: Rule | None = None
) -> Tensor:
    """A little is enough, with the number of deviations that harms this rule most.

    Source: the optimised attack of Allouah et al., "Fixing by mixing", AISTATS
    2023, Appendix; it searches z where Baruch et al. compute it.

    Args:
        honest: [h, d].
        count: Rows to forge.
        generator: Unused.
        rule: What to attack; None stands for `TrimmedMean(f=count)`.
    """
    del generator
    return _strongest(honest, count, rule, [_deviation(honest)])


def ipm_optimised(
    honest: Tensor, count: int, generator: torch.Generator, *, rule: Rule | None = None
) -> Tensor:
    """Inner product manipulation with the factor that harms this rule most.

    As `alie_optimised`, along the honest mean instead of the deviations.
    """
    del generator
    return _strongest(honest, count, rule, [honest.mean(dim=0)])


def adaptive(
    honest: Tensor, count: int, generator: torch.Generator, *, rule: Rule | None = None
) -> Tensor:
    """Search over directions and strengths, and add copies of honest rows to the candidates.

    The directions are the honest mean, its sign, the standard deviation, the
    direction of largest spread and one drawn by lot, each both ways from the
    mean; `mimic` is tried too. Asks the rule about 150 times.
    """
    draw = torch.randn(honest.shape[1:], generator=generator, dtype=torch.float32).to(honest)
    mean = honest.mean(dim=0)
    centred = honest - mean
    extremal = mimic(honest, 1, generator)[0] - mean
    spread = centred.square().mean().sqrt()
    directions = [mean, mean.sign() * spread, _deviation(honest), extremal, draw * spread]
    copies = [mimic(honest, count, generator)]
    return _strongest(honest, count, rule, directions, copies)


def _strongest(
    honest: Tensor,
    count: int,
    rule: Rule | None,
    directions: Sequence[Tensor],
    others: Sequence[Tensor] = (),
) -> Tensor:
    attacked = TrimmedMean(f=count) if rule is None else rule
    mean = honest.mean(dim=0)

    def trial(rows: Tensor) -> _Trial:
        try:
            vector = attacked(torch.cat([rows, honest])).vector
        except AggregationError:
            return _Trial(-1.0, rows)
        return _Trial(float((vector - mean).double().norm()), rows)

    trials = [trial(rows) for rows in others]
    trials += [
        _best_strength(trial, partial(_shifted, mean, direction, count)) for direction in directions
    ]
    return max(trials, key=lambda each: each.harm).rows


def _shifted(mean: Tensor, direction: Tensor, count: int, strength: float) -> Tensor:
    return repeated(mean + strength * direction, count)


def _best_strength(trial: Callable[[Tensor], _Trial], forge: Callable[[float], Tensor]) -> _Trial:
    """Try strengths both ways, then halve the ratio around the best one."""
    signed = [sign * strength for strength in STRENGTHS for sign in (-1, 1)]
    tried = [(strength, trial(forge(strength))) for strength in signed]
    strength, best = max(tried, key=lambda pair: pair[1].harm)
    ratio = 10**0.25
    for _ in range(REFINEMENTS):
        for candidate in (strength * ratio, strength / ratio):
            attempt = trial(forge(candidate))
            if attempt.harm > best.harm:
                strength, best = candidate, attempt
        ratio = ratio**0.5
    return best


def _deviation(honest: Tensor) -> Tensor:
    return honest.std(dim=0) if len(honest) > 1 else torch.zeros_like(honest[0])
