"""Where a worker's gradients come from: its own data, or an attack.

The worker's loop does not know which: both answer the same question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from pliska.coordinator.computation import Computation
from pliska.trainer.adversary import Adversary


class GradientSource(Protocol):
    """Answers "what do I send in this round?"."""

    @property
    def needs_members(self) -> bool:
        """Whether the names of the live workers matter."""

    def gradient(self, round_number: int, members: Sequence[str]) -> torch.Tensor:
        """Return the gradient to sign, float32 [d], at the computation's parameters.

        Args:
            round_number: The round it is for.
            members: The live workers; empty unless `needs_members`.
        """


@dataclass(frozen=True, slots=True)
class HonestSource:
    """The gradient of the worker's own batch."""

    computation: Computation
    worker: str
    needs_members: bool = False

    def gradient(self, round_number: int, members: Sequence[str]) -> torch.Tensor:
        """Differentiate the loss of the worker's batch."""
        del members
        return self.computation.gradient(round_number, self.worker)


@dataclass(frozen=True, slots=True)
class ByzantineSource:
    """What an adversary makes of it, for drills.

    Attributes:
        accomplices: Workers that attack too, this one included; all others
            count as honest, and their batches are known to an omniscient attack.
    """

    computation: Computation
    worker: str
    adversary: Adversary
    accomplices: frozenset[str]

    @property
    def needs_members(self) -> bool:
        """Whether the attack is computed from the honest workers' gradients."""
        return self.adversary.attack.is_omniscient

    def gradient(self, round_number: int, members: Sequence[str]) -> torch.Tensor:
        """Forge a gradient, together with those accomplices that are there."""
        present = self.accomplices & {*members} if self.needs_members else self.accomplices
        liars = sorted(present | {self.worker})

        def honest() -> torch.Tensor:
            victims = [member for member in members if member not in self.accomplices]
            gradients = [self.computation.gradient(round_number, each) for each in victims]
            return torch.stack(gradients) if gradients else own.unsqueeze(0)

        own = self.computation.gradient(round_number, self.worker, self._corrupt)
        place = liars.index(self.worker)
        return self.adversary.gradient(own, honest, round_number, place, len(liars))

    def _corrupt(self, targets: torch.Tensor) -> torch.Tensor:
        return self.adversary.corrupt_targets(targets, self.computation.classes)
