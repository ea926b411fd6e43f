"""What a Byzantine worker sends, for drills: a worker told to attack asks here.

It knows nothing of rounds on the wire, keys or transport: targets and gradients
in, targets and gradients out. The attacks themselves are
`pliska.aggregation.attacks`. Called by the worker's loop under `--attack`.
"""

from collections.abc import Callable

import numpy as np
import torch

from pliska.aggregation import Attack, ParameterError, attack_named, flipped_labels
from pliska.trainer.attack import AttackName

_SCALE_PARAMETERS = {
    AttackName.SIGN_FLIP: "scale",
    AttackName.ALIE: "z",
    AttackName.IPM: "epsilon",
    AttackName.GAUSSIAN: "deviation",
}
"""What each attack calls its strength."""


class Adversary:
    """One Byzantine worker's conduct. The same answers for the same seed and round.

    Two adversaries that shall send the same noise are given the same seed; two
    that shall not, different ones.
    """

    def __init__(self, attack: AttackName, scale: float | None = None, seed: int = 0) -> None:
        """Choose an attack.

        Args:
            attack: What to do.
            scale: How strong, in the attack's own terms: the factor of
                `sign-flip` and `ipm`, the standard deviations of `alie`, the
                deviation of `gaussian`. None takes `AttackName.default_scale`.
            seed: Non-negative; what is random is drawn from (seed, round).

        Raises:
            ParameterError: A scale for an attack that has none.
        """
        if scale is not None and attack.default_scale is None:
            raise ParameterError(f"the attack {attack} has no scale: leave it out")
        self.attack = attack
        self.scale = attack.default_scale if scale is None else scale
        self.seed = seed
        self._forge = _forger(attack, self.scale)

    def corrupt_targets(self, targets: torch.Tensor, classes: int) -> torch.Tensor:
        """Return the targets to train on: wrong ones under `label-flip`, else those given.

        Args:
            targets: int64 [batch], 0 to classes - 1. Not mutated.
            classes: How many classes there are.
        """
        if self.attack is AttackName.LABEL_FLIP:
            return flipped_labels(targets, classes)
        return targets

    def gradient(
        self, own: torch.Tensor, honest: Callable[[], torch.Tensor], round_number: int
    ) -> torch.Tensor:
        """Return the gradient to send.

        Args:
            own: [d], this worker's gradient, on `corrupt_targets`. Not mutated.
            honest: Computes the honest workers' gradients of this round,
                [h, d]; called only for attacks that are omniscient.
            round_number: The round that the gradient is for.

        Returns:
            [d], of the dtype of `own`.
        """
        if self._forge is None:
            return own
        known = honest() if self.attack.is_omniscient else own.unsqueeze(0)
        forged = self._forge(known, 1, self._generator(round_number))
        return forged[0].to(own.dtype)

    def _generator(self, round_number: int) -> torch.Generator:
        state = np.random.SeedSequence([self.seed, round_number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0]))


def _forger(attack: AttackName, scale: float | None) -> Attack | None:
    """Return the attack on gradients; None when only the targets are attacked."""
    if attack is AttackName.LABEL_FLIP:
        return None
    parameters = {} if scale is None else {_SCALE_PARAMETERS[attack]: scale}
    return attack_named(attack.value, **parameters)
