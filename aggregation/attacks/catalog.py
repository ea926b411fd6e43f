"""The function of each attack on gradients, by its name."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from torch import Tensor

from pliska.aggregation.attack_name import AttackName
from pliska.aggregation.attacks.adaptive import adaptive, alie_optimised, ipm_optimised
from pliska.aggregation.attacks.attack import Attack
from pliska.aggregation.attacks.blind import (
    delayed,
    gaussian,
    huge_coordinate,
    infinity,
    not_a_number,
    sign_flip,
)
from pliska.aggregation.attacks.hidden import alie, ipm, mimic, min_max, min_sum
from pliska.aggregation.errors import ParameterError, UnknownNameError, suggestion

ATTACKS: dict[str, Callable[..., Tensor]] = {
    AttackName.SIGN_FLIP: sign_flip,
    AttackName.IPM: ipm,
    AttackName.IPM_OPTIMISED: ipm_optimised,
    AttackName.ALIE: alie,
    AttackName.ALIE_OPTIMISED: alie_optimised,
    AttackName.MIN_MAX: min_max,
    AttackName.MIN_SUM: min_sum,
    AttackName.MIMIC: mimic,
    AttackName.DELAYED: delayed,
    AttackName.GAUSSIAN: gaussian,
    AttackName.NAN: not_a_number,
    AttackName.INF: infinity,
    AttackName.HUGE_COORDINATE: huge_coordinate,
    AttackName.ADAPTIVE: adaptive,
}
"""All but label flipping, which is on data (see `claims.flipped_labels`)."""


def attack_names() -> tuple[str, ...]:
    """Return the names that `attack_named` knows."""
    return tuple(str(name) for name in ATTACKS)


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
