"""Computes drawn gradients again, on a thread of its own, and says which are not what they claim.

Used by the audit trail of a leadership. It loads the job's data for the first
gradient that is drawn, not before.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import Miscomputation
from pliska.coordinator.rounds.recomputation import compare, finding
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import GradientHeader, Signed, Signer
from pliska.coordinator.wire.job import Job

log = logging.getLogger(__name__)

WAITING_MAX = 64
"""Gradients that wait to be computed again; more are passed over, which the log says."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A gradient that was drawn.

    Attributes:
        commit: The round that counted it.
        header: As the worker signed it; verified.
        gradient: float32 [d]; nobody changes it.
        parameters: Returns those that it was computed at, float32 [d].
    """

    commit: Commit
    header: Signed
    message: GradientHeader
    gradient: NDArray[np.float32]
    parameters: Callable[[], NDArray[np.float32]]


class Recomputer:
    """One job's gradients computed again, one after the other."""

    def __init__(self, job: Job, signer: Signer) -> None:
        """Prepare; nothing is loaded yet."""
        self._job = job
        self._signer = signer
        self._computation: Computation | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recompute")
        self._waiting = 0

    def submit(self, drawn: Drawn) -> Future[Miscomputation | None] | None:
        """Have a gradient computed again soon; None where too many wait.

        Returns:
            A future of the evidence, which is None where the gradient is right.
        """
        if self._waiting >= WAITING_MAX:
            log.warning(
                "worker=%s round=%d reason=%s",
                drawn.message.worker,
                drawn.commit.record.round,
                f"not computed again: {WAITING_MAX} gradients wait",
            )
            return None
        self._waiting += 1
        return self._thread.submit(self._examine, drawn)

    def close(self) -> None:
        """Give up what waits, and end the thread after what it works on."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _examine(self, drawn: Drawn) -> Miscomputation | None:
        try:
            if self._computation is None:
                self._computation = Computation(self._job)
            compared = compare(self._computation, drawn.parameters(), drawn.message, drawn.gradient)
        finally:
            self._waiting -= 1
        tolerance = self._job.audit.tolerance
        log.info(
            "worker=%s round=%d recomputed=%s deviation=%.3g",
            drawn.message.worker,
            drawn.commit.record.round,
            "equal" if compared.is_equal else "different",
            compared.deviation,
        )
        if compared.deviation <= tolerance:
            return None
        found = finding(drawn.commit, drawn.message, compared, tolerance)
        return Miscomputation(drawn.header, self._signer.sign(found))
