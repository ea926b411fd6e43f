"""Lies beside the gradient: about labels, and about how much a worker's word should count."""

from collections.abc import Collection, Mapping

from torch import Tensor


def flipped_labels(labels: Tensor, classes: int) -> Tensor:
    """Return classes - 1 - label for each label: what a label-flipping worker trains on."""
    return classes - 1 - labels


def claimed_masses(
    masses: Mapping[str, float], liars: Collection[str], factor: float = 1e9
) -> dict[str, float]:
    """Return the masses that workers claim when the liars multiply theirs.

    What a coordinator would take for voting masses if it believed messages.
    """
    return {worker: mass * factor if worker in liars else mass for worker, mass in masses.items()}
