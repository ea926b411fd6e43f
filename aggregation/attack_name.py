"""The known attacks by name, and what one must know to make them.

The one list of them: command lines offer these names, `attacks.catalog` has the
function of each, and a worker in a drill asks here what it needs. Imports no
torch, so that a command line can show the names without waiting for it.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Strength:
    """The number that says how strong an attack is.

    Attributes:
        parameter: What the attack's function calls it.
        drill: Its value in a drill where nothing is said. It may be another
            than the function's own default, which follows the paper.
    """

    parameter: str
    drill: float


class AttackName(StrEnum):
    """What a Byzantine worker does instead of sending its gradient."""

    SIGN_FLIP = "sign-flip"
    """Sends its own gradient turned round and scaled."""
    IPM = "ipm"
    """Inner product manipulation: a small step against the mean of the honest."""
    IPM_OPTIMISED = "ipm-optimised"
    """The same, with the step that harms the rule most."""
    ALIE = "alie"
    """A little is enough: hides inside the spread of the honest gradients."""
    ALIE_OPTIMISED = "alie-optimised"
    """The same, as far out as harms the rule most."""
    MIN_MAX = "min-max"
    """As far from the mean as no farther from any honest than two of them are apart."""
    MIN_SUM = "min-sum"
    """As far from the mean as, in sum, no farther from the honest than one of them is."""
    MIMIC = "mimic"
    """Copies the honest gradient that lies farthest out."""
    DELAYED = "delayed"
    """Sends its own gradient of an earlier round."""
    GAUSSIAN = "gaussian"
    """Sends noise."""
    NAN = "nan"
    """Sends its own gradient with one NaN in it."""
    INF = "inf"
    """Sends its own gradient with one infinity in it."""
    HUGE_COORDINATE = "huge-coordinate"
    """Sends its own gradient with one huge value in it."""
    ADAPTIVE = "adaptive"
    """Tries many lies on the rule and sends the most harmful."""
    LABEL_FLIP = "label-flip"
    """Trains on wrong labels: 9 for 0, 8 for 1, ..."""

    @property
    def is_omniscient(self) -> bool:
        """Whether it is computed from the gradients of the honest workers."""
        return self in _OMNISCIENT

    @property
    def knows_rule(self) -> bool:
        """Whether it asks the rule what its lies come to."""
        return self in _KNOWING_RULE

    @property
    def strength(self) -> Strength | None:
        """How strong it can be; None for an attack that has no such number."""
        return _STRENGTHS.get(self)


_KNOWING_RULE = frozenset(
    {AttackName.IPM_OPTIMISED, AttackName.ALIE_OPTIMISED, AttackName.ADAPTIVE}
)
_OMNISCIENT = _KNOWING_RULE | {
    AttackName.IPM,
    AttackName.ALIE,
    AttackName.MIN_MAX,
    AttackName.MIN_SUM,
    AttackName.MIMIC,
}
_STRENGTHS = {
    AttackName.SIGN_FLIP: Strength("scale", 10.0),
    AttackName.IPM: Strength("epsilon", 0.1),
    # The paper's formula gives 0, no attack at all, for up to eight workers; ByzFL uses 1.5.
    AttackName.ALIE: Strength("z", 1.5),
    AttackName.GAUSSIAN: Strength("deviation", 200.0),
    # A plain mean of 1e20 overflows at once, and a run that stops shows nothing.
    AttackName.HUGE_COORDINATE: Strength("value", 1e6),
    # Counted in rounds; the function takes the rows of that round.
    AttackName.DELAYED: Strength("past", 10.0),
}
