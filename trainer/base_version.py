"""The version that a worker computes on: downloaded, checked, and given to others that join.

The first one of a large model comes from whoever gives it (`recovery`), later ones
come from the leader, one request each.
"""

import numpy as np

from pliska.coordinator.client import (
    CoordinatorClient,
    JobDirectory,
    Membership,
    Newest,
    NothingNewer,
    ProtocolError,
    Version,
)
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Reply, Signer, hash_tree
from pliska.coordinator.wire.thread import in_thread
from pliska.trainer.donation import Donation
from pliska.trainer.recovery import ParameterRecovery

WHOLE_BYTES_MAX = 4 * 2**20
"""Parameters up to this size are fetched in one request also by a worker that joins."""


class BaseVersion:
    """What a worker's gradients are computed at. Belongs to one event loop."""

    def __init__(
        self,
        computation: Computation,
        directory: JobDirectory,
        signer: Signer,
        donation: Donation | None,
    ) -> None:
        """Begin with none.

        Args:
            computation: Gets the parameters.
            directory: Names the coordinators.
            signer: The worker's key.
            donation: Where the parameters are given to others; None where they are not.
        """
        self._parameters = computation.parameters
        self._landing = np.empty(computation.dimension, dtype="<f4")
        self._recovery = ParameterRecovery(directory, signer, self._landing.data.cast("B"))
        self._donation = donation
        self._version: Version | None = None

    @property
    def version(self) -> Version | None:
        """The version whose parameters are there; None before the first."""
        return self._version

    def forget(self) -> None:
        """Take any version for newer from now on: the leader's is another one."""
        self._version = None

    async def renew(
        self, client: CoordinatorClient, joined: Membership, wait_s: float, *, wants_lease: bool
    ) -> Version | NothingNewer | Reply:
        """Download the newest version, if there is one newer than this.

        Args:
            client: Speaks to the leader.
            joined: From joining it.
            wait_s: How long the leader may wait for a newer one.
            wants_lease: Wait no longer once the worker has a lease.

        Raises:
            ProtocolError: What came is not what the leader named.
            WireError: It did not come.
        """
        landing = self._landing.data.cast("B")
        if self._version is None and len(landing) > WHOLE_BYTES_MAX:
            newest = await client.newest(joined)
            if not isinstance(newest, Newest):
                return newest
            await self._recovery.fetch(newest)
            return self._take(newest.version)
        after = -1 if self._version is None else self._version.version
        news = await client.model(joined, after, wait_s, landing, wants_lease=wants_lease)
        if not isinstance(news, Version):
            return news
        if await in_thread(_root, landing) != news.digest:
            raise ProtocolError(f"the parameters of version {news.version} were damaged")
        return self._take(news)

    def _take(self, version: Version) -> Version:
        """Compute on what has landed, and give it to others from now on."""
        if self._donation is not None:
            self._donation.donor.release()
        self._parameters[:] = self._landing
        if self._donation is not None:
            self._donation.donor.hold(version.digest, self._parameters.data.cast("B"))
        self._version = version
        return version


def _root(payload: memoryview) -> bytes:
    return hash_tree.root(hash_tree.leaves(payload), len(payload))
