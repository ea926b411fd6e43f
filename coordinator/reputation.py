"""How far each worker's gradients have been from the others', round after round.

A worker is *suspected* while its recent gradients were mostly refused for their
content or lay far outside the rest. Suspicion is a moving share between 0 and 1
and fades when the conduct improves. It is shown, never acted on here: the
aggregation rule is what protects the model.

Pure: the driver feeds it the report of each committed round.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReputationOptions:
    """When a worker counts as suspected.

    Attributes:
        memory_rounds: A single round moves suspicion by 1 / memory_rounds.
        outlier: Squared distance to the aggregate, as a multiple of the
            median worker's, from which a gradient counts against its worker.
            Honest gradients differ by sampling noise, which stays within a
            small factor of the median; see `WorkerReport.score`.
        suspect_above: Suspicion from which a worker is suspected.
        clear_below: Suspicion under which it no longer is.
    """

    memory_rounds: float = 8.0
    outlier: float = 4.0
    suspect_above: float = 0.5
    clear_below: float = 0.2


@dataclass(frozen=True, slots=True)
class Conduct:
    """What one round says about one worker.

    Attributes:
        deviation: Squared distance to the aggregate over the median worker's;
            None when the content was refused.
        reason: Why it counts against the worker, in words.
    """

    deviation: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is remembered of one worker."""

    suspicion: float = 0.0
    is_suspected: bool = False
    was_suspected: bool = False
    rounds: int = 0
    offences: int = 0
    reason: str = ""


def judge(
    standings: Mapping[str, Standing],
    conducts: Mapping[str, Conduct],
    options: ReputationOptions,
) -> dict[str, Standing]:
    """Take one committed round into account; workers that were not in it keep their standing."""
    judged = {
        worker: _judge_one(standings.get(worker, Standing()), conduct, options)
        for worker, conduct in conducts.items()
    }
    return {**standings, **judged}


def _judge_one(before: Standing, conduct: Conduct, options: ReputationOptions) -> Standing:
    offends = conduct.deviation is None or not conduct.deviation <= options.outlier
    suspicion = before.suspicion + (float(offends) - before.suspicion) / options.memory_rounds
    threshold = options.clear_below if before.is_suspected else options.suspect_above
    is_suspected = suspicion > threshold
    return Standing(
        suspicion=suspicion,
        is_suspected=is_suspected,
        was_suspected=before.was_suspected or is_suspected,
        rounds=before.rounds + 1,
        offences=before.offences + offends,
        reason=_describe(conduct) if offends else before.reason,
    )


def _describe(conduct: Conduct) -> str:
    if conduct.deviation is None:
        return conduct.reason
    return f"gradient {conduct.deviation:.3g} times as far (squared) as the median worker's"
