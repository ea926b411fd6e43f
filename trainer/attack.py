"""The attacks that a worker can be told to make, by the name on its command line.

Names only: what an attack sends is `pliska.aggregation.attacks`, and who makes
it is `adversary`. It imports no torch, so that a command line can offer the
names without waiting for it.
"""

from enum import StrEnum


class AttackName(StrEnum):
    """What a Byzantine worker does instead of sending its gradient."""

    SIGN_FLIP = "sign-flip"
    """Sends its own gradient turned round and scaled."""
    ALIE = "alie"
    """A little is enough: hides inside the spread of the honest gradients."""
    IPM = "ipm"
    """Inner product manipulation: a small step against the mean of the honest."""
    GAUSSIAN = "gaussian"
    """Sends noise."""
    NAN = "nan"
    """Sends its own gradient with one NaN in it."""
    LABEL_FLIP = "label-flip"
    """Trains on wrong labels: 9 for 0, 8 for 1, ..."""

    @property
    def is_omniscient(self) -> bool:
        """Whether it is computed from the gradients of the honest workers."""
        return self in (AttackName.ALIE, AttackName.IPM)

    @property
    def default_scale(self) -> float | None:
        """How strong it is when nothing is said; None for an attack that has no strength.

        ALIE's paper has a formula that gives 0 standard deviations, no attack
        at all, for up to eight workers; 1.5 is what ByzFL uses.
        """
        return _DEFAULT_SCALES.get(self)


_DEFAULT_SCALES = {
    AttackName.SIGN_FLIP: 10.0,
    AttackName.ALIE: 1.5,
    AttackName.IPM: 0.1,
    AttackName.GAUSSIAN: 200.0,
}
