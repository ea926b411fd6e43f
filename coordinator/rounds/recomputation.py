"""Which gradients are computed again, and what comes of it.

Workers are drawn when their gradients are committed to: the lots depend on the
digest of the commit record, which nobody can know before. So a worker that lies
in one gradient of a hundred is found as surely as the share says, and whoever
has the log can check who was to be drawn.

The batch of a gradient follows from the lease in its header, so the leader, a second worker
or an auditor computes the same one. Equal software on equal machines gives equal
bits; on others rounding differs, and the job's tolerance decides.
"""

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import Finding
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire.codec import codec_named
from pliska.coordinator.wire.frame import seal
from pliska.coordinator.wire.messages import GradientHeader
from pliska.coordinator.wire.seed import derive_seed

PROBATION_FACTOR = 10.0
"""Workers that are suspected are drawn so many times as often."""
DEVIATION_MAX = 1e9
"""Deviations stop here, so that a finding is finite whatever a gradient says."""
_LOTS = 2.0**63
"""How many seeds there are."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A gradient beside the one that its batch gives.

    Attributes:
        recomputed_root: Of the hash tree over the recomputed one, encoded alike.
        is_equal: Whether the two are the same bytes.
        deviation: Distance as a share of the length of the recomputed one.
    """

    recomputed_root: bytes
    is_equal: bool
    deviation: float


def drawn(commit: Commit, standings: Mapping[str, Standing], share: float) -> tuple[str, ...]:
    """Draw the workers of a committed round whose gradients are computed again.

    Args:
        commit: The round.
        standings: Before the round, by worker.
        share: Of the gradients, 0 to 1.

    Returns:
        Sorted by worker; refused gradients are never drawn, since they prove themselves.
    """
    record = commit.record
    return tuple(
        contribution.worker
        for contribution in record.contributions
        if contribution.is_counted
        and _lot(commit, contribution.worker) < share * _weight(standings, contribution.worker)
    )


def compare(
    computation: Computation,
    parameters: NDArray[np.float32],
    header: GradientHeader,
    gradient: NDArray[np.float32],
) -> Compared:
    """Compute a gradient again.

    Args:
        computation: Of the job; its parameters are replaced.
        parameters: float32 [d], of the version that the header names as its base.
        header: Verified.
        gradient: float32 [d], as it was decoded.
    """
    computation.parameters[:] = parameters
    recomputed = computation.gradient(header.lease)
    sealed = seal(codec_named(header.codec.id, header.codec.params), recomputed.numpy())
    if sealed.root == header.payload_root:
        return Compared(sealed.root, is_equal=True, deviation=0.0)
    return Compared(sealed.root, is_equal=False, deviation=deviation(gradient, recomputed))


def deviation(gradient: NDArray[np.float32], recomputed: torch.Tensor) -> float:
    """Return the distance of a gradient from the recomputed one, as a share of its length."""
    expected = recomputed.to(torch.float64)
    distance = float(
        torch.linalg.vector_norm(torch.from_numpy(gradient).to(torch.float64) - expected)
    )
    length = float(torch.linalg.vector_norm(expected))
    if distance == 0 or not math.isfinite(length):
        return 0.0  # what overflows here convicts nobody
    return min(distance / length, DEVIATION_MAX) if length > 0 else DEVIATION_MAX


def finding(
    commit: Commit, header: GradientHeader, compared: Compared, tolerance: float
) -> Finding:
    """State what was found, for the coordinator to sign."""
    return Finding(
        job=header.job,
        round=commit.record.round,
        worker=header.worker,
        record_digest=commit.digest,
        payload_root=header.payload_root,
        recomputed_root=compared.recomputed_root,
        deviation=compared.deviation,
        tolerance=tolerance,
        computed_with=computed_with(),
    )


@cache
def computed_with() -> str:
    """Name the software and the processor that compute here."""
    return f"torch {torch.__version__}, {platform.machine()}, {platform.system()}"[:60]


def _lot(commit: Commit, worker: str) -> float:
    seed = derive_seed("recompute", commit.record.seed, commit.digest.hex(), worker)
    return seed / _LOTS


def _weight(standings: Mapping[str, Standing], worker: str) -> float:
    standing = standings.get(worker)
    return PROBATION_FACTOR if standing is not None and standing.is_suspected else 1.0
