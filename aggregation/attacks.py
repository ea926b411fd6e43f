"""Known attacks, as pure functions, for tests, drills and benchmarks.

Each takes the honest rows an attacker knows, how many rows to forge, and a
generator, and returns the forged rows; it never changes the honest ones. An
attacker who knows only its own gradient passes that one row. Label flipping
poisons data instead of gradients and is `flipped_labels`.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from statistics import NormalDist
from typing import Any, Protocol

import torch
from torch import Tensor

from pliska.aggregation.errors import ParameterError, UnknownNameError, suggestion


class Attack(Protocol):
    """Forges rows: (honest [h, d], count, generator) -> [count, d] of the same dtype."""

    def __call__(self, honest: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` forged rows; draw only from `generator`."""
        ...


def sign_flip(
    honest: Tensor, count: int, generator: torch.Generator, *, scale: float = 1.0
) -> Tensor:
    """Send -scale times the mean of the honest rows: training runs uphill."""
    del generator
    return _repeated(-scale * honest.mean(dim=0), count)


def ipm(honest: Tensor, count: int, generator: torch.Generator, *, epsilon: float = 0.1) -> Tensor:
    """Inner product manipulation: -epsilon times the honest mean.

    A small epsilon hides among the honest rows and still turns the inner
    product of the aggregate with the true gradient negative.

    Source: Xie, Koyejo, Gupta, "Fall of empires", UAI 2019.
    """
    del generator
    return _repeated(-epsilon * honest.mean(dim=0), count)


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
    return _repeated(honest.mean(dim=0) - z * deviation, count)


def alie_z(n: int, f: int) -> float:
    """Return the largest z that goes unnoticed: of n workers, f of them attackers.

    z = Phi^-1((n - f - s) / (n - f)) with s = floor(n / 2 + 1) - f, the honest
    rows that the attackers need on their side (Algorithm 3, lines 1 and 2).
    """
    supporters = n // 2 + 1 - f
    quantile = (n - f - supporters) / (n - f)
    return NormalDist().inv_cdf(quantile) if 0 < quantile < 1 else 0.0


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


def flipped_labels(labels: Tensor, classes: int) -> Tensor:
    """Return classes - 1 - label for each label: what a label-flipping worker trains on."""
    return classes - 1 - labels


ATTACKS: dict[str, Callable[..., Tensor]] = {
    "sign-flip": sign_flip,
    "ipm": ipm,
    "alie": alie,
    "gaussian": gaussian,
    "nan": not_a_number,
    "inf": infinity,
    "huge-coordinate": huge_coordinate,
}


def attack_names() -> tuple[str, ...]:
    """Return the names that `attack_named` knows."""
    return tuple(ATTACKS)


def attack_named(name: str, **parameters: Any) -> Attack:
    """Return the attack with this name and these parameters, ready to call.

    Raises:
        UnknownNameError: There is no such attack.
        ParameterError: It has no such parameter.
    """
    if name not in ATTACKS:
        raise UnknownNameError("attack", name, attack_names())
    attack = ATTACKS[name]
    known = tuple(
        parameter.name
        for parameter in signature(attack).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    )
    for parameter in parameters:
        if parameter not in known:
            raise ParameterError(
                f"{name} has no parameter {parameter!r}{suggestion(parameter, known)}"
            )
    return partial(attack, **parameters)


def _repeated(row: Tensor, count: int) -> Tensor:
    return row.expand(count, *row.shape).clone()


def _spiked(honest: Tensor, count: int, generator: torch.Generator, value: float) -> Tensor:
    rows = _repeated(honest.mean(dim=0), count)
    columns = torch.randint(honest[0].numel(), (count,), generator=generator)
    rows.view(count, -1)[torch.arange(count), columns] = value
    return rows
