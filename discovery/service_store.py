"""Where services are kept: one face for stores with a catalog of their own and for all others.

`open_service_store` picks: Consul's catalog where the backend offers one, and
ordinary records in Curator's layout everywhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pliska.discovery.instance import Instance
from pliska.locks import Backend, Clock, Revision
from pliska.locks.backends.base import CALL_TIMEOUT_S, ChangeFeed
from pliska.locks.backends.service_catalog import CatalogBackend


@dataclass(frozen=True, slots=True)
class ServiceListing:
    """What a store says about one service.

    Attributes:
        instances: Those that can be read, ordered by id.
        revision: How new the answer is.
        unreadable: One reason for each entry that is none; others may write
            here too, and their mistakes do not hide the rest.
    """

    instances: tuple[Instance, ...]
    revision: Revision
    unreadable: tuple[str, ...] = ()


class Announcer(Protocol):
    """Keeps one instance in the store while somebody calls `announce` every `interval_s`."""

    @property
    def interval_s(self) -> float:
        """How often to announce."""

    @property
    def is_announced(self) -> bool:
        """Whether the store shows the instance, as far as is known here."""

    def announce(self, instance: Instance) -> Instance:
        """Make the store show `instance`, whatever it showed before.

        Returns:
            What it shows now: an instance that somebody drained stays drained.

        Raises:
            InstanceConflictError: Another process holds the id.
            DeregisteredError: Somebody removed the instance; leave it at that.
            SessionLostError: What it held is gone; the next call begins anew.
            StoreError: The store did not answer.
        """

    def withdraw(self) -> None:
        """Remove the instance, at the latest when its lease has run out."""


class ServiceStore(Protocol):
    """The services of one store. Safe to use from any thread."""

    def names(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """The services that have instances, or had some a short while ago, sorted."""

    def list(self, service: str, timeout_s: float = CALL_TIMEOUT_S) -> ServiceListing:
        """The instances of a service, whatever their state."""

    def open_feed(self) -> ChangeFeed:
        """A feed of the changes of services, each by its `path`."""

    def path(self, service: str) -> str:
        """What the feed calls a service."""

    def drain(self, service: str, instance_id: str, timeout_s: float = CALL_TIMEOUT_S) -> Instance:
        """Tell everybody to send the instance no new work.

        Raises:
            NoInstanceError: There is none such.
        """

    def announcer(
        self, service: str, instance_id: str, lease_s: float, clock: Clock, wake: Callable[[], None]
    ) -> Announcer:
        """Prepare to keep an instance in the store.

        Args:
            service: Its service.
            instance_id: Its id.
            lease_s: How long the store shows it after its process died.
            clock: Where the time comes from.
            wake: Called when there is reason to announce before the interval is over.
        """


def open_service_store(backend: Backend) -> ServiceStore:
    """The services of a store, kept the way that its own tools read them."""
    if isinstance(backend, CatalogBackend):
        from pliska.discovery.catalog_services import CatalogServices

        return CatalogServices(backend.service_catalog)
    from pliska.discovery.record_services import RecordServices

    return RecordServices(backend)
