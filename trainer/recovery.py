"""The parameters of a worker that joins: fetched from every coordinator and worker that gives them.

In checked spans, from several donors at once; a leader that dies meanwhile costs
the spans that were on their way, since the next leader offers the same version.
Later versions come from the leader, one request each. A worker needs nothing
else: the optimizer's state is the coordinators', and which data comes next the
leader says with the version (see `coordinator.training.batches`).
"""

import asyncio
import logging
from collections.abc import Sequence

from pliska.coordinator.client import DonorClient, Endpoint, JobDirectory, Newest, parameters_path
from pliska.coordinator.wire import Download, Resource, Signer

log = logging.getLogger(__name__)


class ParameterRecovery:
    """What has arrived of one version; kept from one leader to the next."""

    def __init__(self, directory: JobDirectory, signer: Signer, landing: memoryview) -> None:
        """Begin with nothing.

        Args:
            directory: Names the coordinators.
            signer: The worker's key.
            landing: 4 d bytes that the parameters are received in.
        """
        self._directory = directory
        self._signer = signer
        self._landing = landing
        self._download: Download | None = None

    async def fetch(self, newest: Newest) -> None:
        """Fetch the parameters of the newest version, or what is missing of them.

        Raises:
            NoDonorError: No coordinator has them any more, or none answers.
            StoreError: The store does not answer.
        """
        version = newest.version
        if self._download is None or self._download.resource.root != version.digest:
            path = parameters_path(version)
            resource = Resource(path, version.digest, len(self._landing))
            self._download = Download(resource, self._landing)
        coordinators = await asyncio.to_thread(self._directory.coordinators)
        endpoints = (*coordinators, *newest.donors)
        await _fetch_from(self._download, endpoints, self._directory.job, self._signer)
        given = ",".join(f"{name}:{count}" for name, count in self._download.given.items())
        log.info("version=%d bytes=%s reason=%s", version.version, given, "recovered")
        self._download = None


async def _fetch_from(
    download: Download, endpoints: Sequence[Endpoint], job: str, signer: Signer
) -> None:
    donors = [DonorClient(endpoint, job, signer) for endpoint in endpoints]
    try:
        await download.fetch(donors)
    finally:
        for donor in donors:
            await donor.close()
