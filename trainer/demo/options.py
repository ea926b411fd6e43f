"""What the person who runs the demonstration may choose, checked before anything starts.

Values only: the jobs made from them are `jobs`, what is claimed of them `claims`.
"""

from dataclasses import dataclass
from pathlib import Path

from pliska.aggregation import AttackName, Mean, Rule, rule_named
from pliska.trainer.demo.digits import source_kind
from pliska.trainer.demo.errors import DemoUsageError

WORKERS_MAX = 64
"""Each is a process of two hundred megabytes."""

ROUNDS_MIN = 20
"""Fewer leave no room to learn before the leader is killed and after."""
ROUNDS_MAX = 100_000

SCALE_MAX = 1e6
"""Beyond it the mean's parameters overflow, and its run halts instead of going wrong."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The choices, with what `pliska demo` takes when nothing is said.

    Attributes:
        workers: Worker processes of each run, 1 to `WORKERS_MAX`.
        byzantine: How many of them attack, and the f of the rule; fewer than
            half, and as few as the rule can bear.
        attack: What they do.
        scale: How strong, in the attack's own terms; None for its default.
        rule: Name of the robust rule; `mean` is what it is compared with.
        data: `digits`, or `mnist:DIR`.
        rounds: Rounds of each run, `ROUNDS_MIN` to `ROUNDS_MAX`.
        seed: Of the model, the batches and the split of the data; 0 or more.
        session_timeout_s: After this long without a renewal the leader counts
            as gone; 1 to 60.
    """

    workers: int = 8
    byzantine: int = 2
    attack: AttackName = AttackName.SIGN_FLIP
    scale: float | None = None
    rule: str = "multi-krum"
    data: str = "digits"
    rounds: int = 120
    seed: int = 7
    session_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            DemoUsageError: A number out of range, or data of an unknown kind.
            RuleUsageError: No such rule, or one that these numbers do not allow.
        """
        _require("--workers", self.workers, 1, WORKERS_MAX)
        _require("--byzantine", self.byzantine, 0, (self.workers - 1) // 2)
        _require("--rounds", self.rounds, ROUNDS_MIN, ROUNDS_MAX)
        _require("--seed", self.seed, 0, 2**63 - 1)
        _require("--session-timeout", self.session_timeout_s, 1, 60)
        source_kind(self.data)
        if self.scale is not None and self.attack.strength is None:
            raise DemoUsageError(f"the attack {self.attack} has no strength: leave out --scale")
        if self.rule == Mean.name:
            raise DemoUsageError("--rule mean is what the rule is compared with: name another one")
        if self.scale is not None:
            _require("--scale", self.scale, 0, SCALE_MAX)
        self.robust_rule().check(self.workers)

    def robust_rule(self) -> Rule:
        """Return the rule, set up to bear the Byzantine workers."""
        return rule_named(self.rule, f=self.byzantine)

    @property
    def attack_scale(self) -> float | None:
        """The scale that the attack will have."""
        if self.scale is not None or self.attack.strength is None:
            return self.scale
        return self.attack.strength.drill

    @property
    def attack_text(self) -> str:
        """Who attacks and how, in words."""
        if not self.byzantine:
            return f"{self.workers} workers, none attacks"
        strength = "" if self.attack_scale is None else f", strength {self.attack_scale:g}"
        return f"{self.byzantine} of {self.workers} workers attack: {self.attack}{strength}"

    @property
    def worker_names(self) -> tuple[str, ...]:
        """All workers: w1, w2, ..."""
        return tuple(f"w{number}" for number in range(1, self.workers + 1))

    @property
    def byzantine_names(self) -> tuple[str, ...]:
        """The last ones of them, which attack."""
        return self.worker_names[self.workers - self.byzantine :]

    @property
    def data_source(self) -> str:
        """The data, with MNIST's directory made absolute for processes that run elsewhere."""
        if source_kind(self.data) == "digits":
            return self.data
        return f"mnist:{Path(self.data.removeprefix('mnist:')).expanduser().absolute()}"


def _require(option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise DemoUsageError(f"{option} is {value:g}: write a number from {least:g} to {most:g}")
