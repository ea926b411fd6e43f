"""What a Byzantine worker sends, for drills: a worker told to attack asks here.

It knows nothing of rounds on the wire, keys or transport: targets and gradients
in, targets and gradients out. The attacks themselves are
`pliska.aggregation.attacks`. Called by the worker's loop under `--attack`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pliska.aggregation import AttackName, ParameterError, Rule, attack_named, flipped_labels

DELAY_MAX = 1000
"""Rounds by which a gradient may be late; so many are kept."""


class Adversary:
    """One Byzantine worker's conduct. The same answers for the same seed and rounds.

    Accomplices are given the same seed and different places, and forge one set
    of rows together, of which each sends its own.
    """

    def __init__(
        self,
        attack: AttackName,
        scale: float | None = None,
        seed: int = 0,
        rule: Rule | None = None,
    ) -> None:
        """Choose an attack.

        Args:
            attack: What to do.
            scale: How strong, in the attack's own terms (see `Strength`), for
                `delayed` in rounds. None takes the strength for drills.
            seed: Non-negative; what is random is drawn from (seed, round).
            rule: What the gradients are combined by, for attacks that know it.

        Raises:
            ParameterError: A scale for an attack that has none, or a delay
                that is not a number of rounds from 1 to `DELAY_MAX`.
        """
        strength = attack.strength
        if scale is not None and strength is None:
            raise ParameterError(f"the attack {attack} has no scale: leave it out")
        self.attack = attack
        self.scale = strength.drill if scale is None and strength is not None else scale
        self.seed = seed
        self._parameters: dict[str, Any] = {"rule": rule} if attack.knows_rule else {}
        self._past: deque[torch.Tensor] = deque()
        if attack is AttackName.DELAYED:
            self._past = deque(maxlen=_rounds(self.scale) + 1)
        elif strength is not None:
            self._parameters[strength.parameter] = self.scale

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
        self,
        own: torch.Tensor,
        honest: Callable[[], torch.Tensor],
        round_number: int,
        place: int = 0,
        liars: int = 1,
    ) -> torch.Tensor:
        """Return the gradient to send.

        Args:
            own: [d], this worker's gradient, on `corrupt_targets`. Not mutated.
            honest: Computes the honest workers' gradients of this round,
                [h, d]; called only for attacks that are omniscient.
            round_number: The round that the gradient is for.
            place: Of this worker among the liars, from 0.
            liars: How many lie together.

        Returns:
            [d], of the dtype of `own`.
        """
        if self.attack is AttackName.LABEL_FLIP:
            return own
        parameters = self._parameters
        if self.attack is AttackName.DELAYED:
            self._past.append(own.clone())
            parameters = {"past": self._past[0].unsqueeze(0)}
        known = honest() if self.attack.is_omniscient else own.unsqueeze(0)
        forge = attack_named(self.attack, **parameters)
        return forge(known, liars, self._generator(round_number))[place].to(own.dtype)

    def _generator(self, round_number: int) -> torch.Generator:
        state = np.random.SeedSequence([self.seed, round_number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0]))


def _rounds(delay: float | None) -> int:
    if delay is None or delay % 1 or not 1 <= delay <= DELAY_MAX:
        raise ParameterError(f"a delay is a number of rounds from 1 to {DELAY_MAX}, not {delay!r}")
    return int(delay)
