"""What a committed step amounted to: the learning rate and the batch behind it.

Another mode steps along fewer gradients, and damped ones. The optimizer's
learning rate stays what the job says; what becomes of it is shown here.
"""

from dataclasses import dataclass

from pliska.aggregation.report import Verdict
from pliska.coordinator.records.commit import CommitRecord


@dataclass(frozen=True, slots=True)
class EffectiveStep:
    """One step.

    Attributes:
        learning_rate: The optimizer's, times the mean damping of what was kept.
        batch: Examples behind the gradients that were kept.
    """

    learning_rate: float
    batch: int

    @classmethod
    def of(cls, record: CommitRecord, batch: int) -> "EffectiveStep":
        """Read it off a record.

        Args:
            record: The round.
            batch: Examples in one gradient.
        """
        kept = [each for each in record.contributions if each.verdict == Verdict.KEPT]
        weights = sum(each.weight for each in kept) or 1.0
        damping = sum(each.weight * each.damping for each in kept) / weights if kept else 1.0
        return cls(record.learning_rate * damping, batch * len(kept))
