"""Gradients computed again by whoever has a job's files, code and data.

What a leader does by lot while it leads, anybody can do afterwards: for doubts
about a worker, or about a leader that convicted one. The model before a gradient
comes from checkpoints and log, its batch from its header.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pliska.coordinator.errors import NotKeptError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.payloads import PayloadStore, decoded
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rounds.recomputation import compare
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import GradientHeader, peek
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Recomputed:
    """One gradient beside the one that its batch gives.

    Attributes:
        is_equal: Whether they are the same bytes.
        deviation: Distance as a share of the length; None where they differ and
            the gradient is not kept.
        is_lie: Whether it is further away than the job allows; None where that
            cannot be said.
    """

    header: GradientHeader
    is_equal: bool
    deviation: float | None
    is_lie: bool | None


def recompute(
    job: Job, storage: Storage, commit: Commit, chain: Iterable[Commit], worker: str | None
) -> Iterator[Recomputed]:
    """Compute the gradients of a committed round again. Blocks on disk and processor.

    Args:
        job: As it was run.
        storage: Holds log, checkpoints and kept gradients.
        commit: The round.
        chain: The committed chain, for the versions that gradients are based on.
        worker: Only this one's; None for all.

    Raises:
        NotKeptError: The log does not hold the version that a gradient is based on.
        RecoveryError: That version cannot be rebuilt.
    """
    bases: dict[int, Commit | None] = {0: None}
    bases |= {each.record.version: each for each in chain}
    computation = Computation(job)
    payloads = PayloadStore(storage, job.name)
    annex = UpdateLog(storage, job.name).head(commit.record.version, commit.digest).annex
    for signed in annex.headers:
        header = peek(signed, GradientHeader).claim
        if worker not in (None, header.worker):
            continue
        if header.base_version not in bases:
            raise NotKeptError(f"version {header.base_version} is not in these files")
        model = recover(job, bases[header.base_version], storage).model
        parameters = model.parameters().numpy()
        try:
            payload = payloads.read(header.round, header.payload_root)
        except NotKeptError:
            # Against itself: whether it is equal, its root tells all the same.
            computation.parameters[:] = parameters
            own = computation.gradient(header.lease).numpy()
            is_equal = compare(computation, parameters, header, own).is_equal
            yield Recomputed(
                header,
                is_equal,
                deviation=0.0 if is_equal else None,
                is_lie=False if is_equal else None,
            )
        else:
            gradient = decoded(payload, header, model.dimension)
            found = compare(computation, parameters, header, gradient)
            is_lie = found.deviation > job.audit.tolerance
            yield Recomputed(header, found.is_equal, found.deviation, is_lie)
