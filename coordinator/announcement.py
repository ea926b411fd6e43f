"""A coordinator as an instance of a service, for people and tools that look for services.

Its tag says whether it leads. This informs and decides nothing: workers go by
the election's own record, which carries the leader's certificate.
"""

import contextlib
import re

from pliska.coordinator.endpoint import Endpoint
from pliska.discovery import DeregisteredError, Instance, Registration
from pliska.discovery.instance import ID_CHARACTERS_MAX
from pliska.locks import Backend

SERVICE = "pliska-coordinator"
LEADER = "leader"
STANDBY = "standby"

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]")


class Announcement:
    """Keeps the instance registered, at first as a standby. Safe to use from any thread.

    While the store does not answer, or refuses us, it goes on trying and the coordinator
    goes on without; the reason is logged.
    """

    def __init__(self, backend: Backend, job: str, endpoint: Endpoint, lease_s: float) -> None:
        """Begin to register; does not wait for the store.

        Args:
            backend: The store.
            job: Name of the job.
            endpoint: Where the coordinator listens, and its name.
            lease_s: How long it is still seen after its process died.
        """
        instance = Instance(
            service=SERVICE,
            id=f"{job}:{_NOT_IN_IDS.sub('-', endpoint.name)}"[:ID_CHARACTERS_MAX],
            address=endpoint.host,
            port=endpoint.port,
            metadata={"job": job, "coordinator": endpoint.name},
            tags=(STANDBY,),
        )
        self._registration = Registration.begin(backend, instance, lease_s)

    def show(self, role: str) -> None:
        """Show `LEADER` or `STANDBY`."""
        with contextlib.suppress(DeregisteredError):  # an operator may have removed it
            self._registration.update(tags=(role,))

    def drain(self) -> None:
        """Show that it is about to go."""
        with contextlib.suppress(DeregisteredError):
            self._registration.drain()

    def end(self) -> None:
        """Deregister."""
        self._registration.deregister()
