"""Known attacks, as pure functions, for tests, drills and benchmarks.

Each takes the honest rows an attacker knows, how many rows to forge, and a
generator, and returns the forged rows; it never changes the honest ones. An
attacker who knows only its own gradient passes that one row. Label flipping
poisons data instead of gradients, and false weights the claims beside them.
"""

from pliska.aggregation.attacks.attack import Attack
from pliska.aggregation.attacks.catalog import ATTACKS, attack_named, attack_names
from pliska.aggregation.attacks.claims import claimed_masses, flipped_labels
from pliska.aggregation.attacks.hidden import alie_z

__all__ = [
    "ATTACKS",
    "Attack",
    "alie_z",
    "attack_named",
    "attack_names",
    "claimed_masses",
    "flipped_labels",
]
