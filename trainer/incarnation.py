"""One life of a worker: what it signs bears an id drawn at its start and numbers that only grow.

A coordinator takes a later life's word over an earlier one's, and no header twice.
Sends nothing. Used by `worker`.
"""

import secrets
import time

from pliska.coordinator.client import Version
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import GradientHeader, SealedPayload, Signed, Signer


class Incarnation:
    """See the module."""

    def __init__(self, worker: str, computation: Computation, signer: Signer) -> None:
        """Begin a life.

        Args:
            worker: Its name in the keyring.
            computation: What it computes gradients with.
            signer: The worker's key.
        """
        self.id = secrets.token_bytes(16)
        self.manifest_digest = computation.manifest().digest
        self._worker = worker
        self._job = computation.job
        self._signer = signer
        self._seq = 0

    def sign(
        self, base: Version, lease: int, epoch: int, mode_epoch: int, sealed: SealedPayload
    ) -> Signed:
        """Sign a gradient, be it for the first time or again.

        Args:
            base: The version that it was computed on.
            lease: The batch that it was computed on.
            epoch: Of the leader that it goes to.
            mode_epoch: Of the mode in force there.
            sealed: The gradient.
        """
        self._seq += 1
        header = GradientHeader(
            job=self._job.name,
            epoch=epoch,
            round=base.version + 1,
            mode_epoch=mode_epoch,
            base_version=base.version,
            base_digest=base.digest,
            worker=self._worker,
            incarnation=self.id,
            key_id=self._signer.key_id,
            seq=self._seq,
            nonce=secrets.token_bytes(16),
            issued_at=time.time(),
            lease=lease,
            n_samples=self._job.data.batch,
            codec=sealed.codec,
            manifest_digest=self.manifest_digest,
            payload_len=sealed.payload_len,
            chunk_len=sealed.chunk_len,
            payload_root=sealed.root,
        )
        return self._signer.sign(header)
