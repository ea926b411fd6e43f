"""Where a worker's gradients come from: its own data, or an attack.

The worker's loop does not know which: both answer the same question.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from pliska.coordinator.training.computation import Computation
from pliska.trainer.adversary import Adversary


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker is to compute.

    Attributes:
        round: That the gradient is for.
        lease: Of the batch.
        members: The leases of the live workers that have one; empty unless the
            source needs them.
    """

    round: int
    lease: int
    members: Mapping[str, int] = field(default_factory=dict)


class GradientSource(Protocol):
    """Answers "what do I send in this round?"."""

    @property
    def needs_members(self) -> bool:
        """Whether the leases of the live workers matter."""

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        """Return the gradient to sign, float32 [d], at the computation's parameters."""


@dataclass(frozen=True, slots=True)
class HonestSource:
    """The gradient of the worker's own batch."""

    computation: Computation
    needs_members: bool = False

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        """Differentiate the loss of the worker's batch."""
        return self.computation.gradient(assignment.lease)


@dataclass(frozen=True, slots=True)
class ByzantineSource:
    """What an adversary makes of it, for drills.

    Attributes:
        accomplices: Workers that attack too, this one included; all others
            count as honest, and their batches are known to an omniscient attack
            by their leases.
    """

    computation: Computation
    worker: str
    adversary: Adversary
    accomplices: frozenset[str]

    @property
    def needs_members(self) -> bool:
        """Whether the attack is computed from the honest workers' gradients."""
        return self.adversary.attack.is_omniscient

    def gradient(self, assignment: Assignment) -> torch.Tensor:
        """Forge a gradient, together with those accomplices that are there."""
        members = assignment.members
        present = self.accomplices & {*members} if self.needs_members else self.accomplices
        liars = sorted(present | {self.worker})

        def honest() -> torch.Tensor:
            victims = sorted(members.keys() - self.accomplices)
            gradients = [self.computation.gradient(members[victim]) for victim in victims]
            return torch.stack(gradients) if gradients else own.unsqueeze(0)

        own = self.computation.gradient(assignment.lease, self._corrupt)
        place = liars.index(self.worker)
        return self.adversary.gradient(own, honest, assignment.round, place, len(liars))

    def _corrupt(self, targets: torch.Tensor) -> torch.Tensor:
        return self.adversary.corrupt_targets(targets, self.computation.classes)
