"""Services in a store's own catalog, Consul's for one, where its own tools find them.

An instance is an entry with a time to live: its owner says every third of it
that it lives, and it is gone when it did not. Zone and state have no place of
their own in a catalog: the zone is in the metadata, a draining instance is in
maintenance, a failing one critical. A catalog belongs to the whole store, so
the prefix of the store's address makes no difference here.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from pliska.discovery.errors import (
    InstanceConflictError,
    InstanceFormatError,
    NoInstanceError,
    ServiceUsageError,
)
from pliska.discovery.instance import (
    METADATA_ENTRIES_MAX,
    Instance,
    InstanceState,
    check_instance_id,
    check_service_name,
    fits_metadata,
)
from pliska.discovery.service_store import ServiceListing
from pliska.locks import Clock, ConflictError, LockError
from pliska.locks.backends.base import CALL_TIMEOUT_S, ChangeFeed
from pliska.locks.backends.service_catalog import CatalogEntry, EntryHealth, ServiceCatalog

ZONE = "zone"
"""The metadata that carries the zone."""
RENEWALS_PER_LEASE = 3
WITHDRAW_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)

_HEALTH_OF = MappingProxyType(
    {
        InstanceState.UP: EntryHealth.PASSING,
        InstanceState.DRAINING: EntryHealth.MAINTENANCE,
        InstanceState.FAILING: EntryHealth.CRITICAL,
    }
)
_STATE_OF = MappingProxyType({health: state for state, health in _HEALTH_OF.items()})


class CatalogServices:
    """See `ServiceStore`."""

    def __init__(self, catalog: ServiceCatalog) -> None:
        self._catalog = catalog

    def names(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """See `ServiceStore.names`."""
        return self._catalog.services(timeout_s)

    def list(self, service: str, timeout_s: float = CALL_TIMEOUT_S) -> ServiceListing:
        """See `ServiceStore.list`."""
        check_service_name(service)
        listing = self._catalog.list(service, timeout_s)
        instances, unreadable = [], []
        for entry in listing.entries:
            try:
                if entry.health is not EntryHealth.LOST:
                    instances.append(_instance(entry))
            except InstanceFormatError as error:
                unreadable.append(str(error))
        instances.sort(key=lambda instance: instance.id)
        return ServiceListing(tuple(instances), listing.revision, tuple(unreadable))

    def open_feed(self) -> ChangeFeed:
        """See `ServiceStore.open_feed`."""
        return self._catalog.open_feed()

    def path(self, service: str) -> str:
        """See `ServiceStore.path`."""
        check_service_name(service)
        return service

    def drain(self, service: str, instance_id: str, timeout_s: float = CALL_TIMEOUT_S) -> Instance:
        """See `ServiceStore.drain`."""
        check_instance_id(instance_id)
        found = [each for each in self.list(service, timeout_s).instances if each.id == instance_id]
        if not found or not self._catalog.drain(service, instance_id, timeout_s):
            raise NoInstanceError(
                f"{service} has no instance {instance_id}: `pliska service list {service}` "
                "shows those it has"
            )
        return found[0].drained()

    def announcer(
        self,
        service: str,
        instance_id: str,
        lease_s: float,
        clock: Clock,
        wake: Callable[[], None],  # noqa: ARG002 - an entry has no session that could be lost
    ) -> "CatalogAnnouncer":
        """See `ServiceStore.announcer`."""
        return CatalogAnnouncer(self._catalog, service, instance_id, lease_s, clock)


class CatalogAnnouncer:
    """One instance's entry, renewed before its time to live is over.

    A catalog cannot tell an entry that its owner's machine lost from one that
    somebody removed, so a missing entry is added again: drain an instance that
    should go, do not remove it.
    """

    def __init__(
        self,
        catalog: ServiceCatalog,
        service: str,
        instance_id: str,
        lease_s: float,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._service = service
        self._id = instance_id
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._ttl_s = max(lease_s, catalog.ttl_s_min)
        self._renewed: CatalogEntry | None = None
        self._renewed_s = 0.0
        self.interval_s = self._ttl_s / RENEWALS_PER_LEASE

    @property
    def is_announced(self) -> bool:
        """See `Announcer.is_announced`."""
        age_s = self._clock.now_s() - self._renewed_s
        return self._renewed is not None and age_s < self._ttl_s

    def announce(self, instance: Instance) -> Instance:
        """See `Announcer.announce`."""
        sent_s = self._clock.now_s()
        status = self._catalog.status(self._service, self._id)
        if status is not None and status.owner != self._owner:
            if status.health is not EntryHealth.LOST:
                raise InstanceConflictError(
                    f"{self._service} has an instance {self._id} of another process: choose "
                    "another id, or wait until that one is gone"
                )
            status = None
        if status is not None and status.health is EntryHealth.MAINTENANCE:
            instance = instance.drained()
        entry = replace(_entry(instance), owner=self._owner)
        self._say(entry, is_known=status is not None and entry == self._renewed)
        self._renewed, self._renewed_s = entry, sent_s
        return instance

    def withdraw(self) -> None:
        """See `Announcer.withdraw`."""
        was_announced, self._renewed = self._renewed is not None, None
        if not was_announced:
            return
        try:
            status = self._catalog.status(self._service, self._id, WITHDRAW_TIMEOUT_S)
            if status is not None and status.owner == self._owner:
                self._catalog.deregister(self._service, self._id, WITHDRAW_TIMEOUT_S)
        except LockError as error:
            name = f"{self._service}/{self._id}"
            _log.warning("an entry was left to run out: instance=%s reason=%s", name, error)

    def _say(self, entry: CatalogEntry, *, is_known: bool) -> None:
        if is_known:
            try:
                self._catalog.renew(entry)
            except ConflictError:
                is_known = False  # gone since we looked
        if not is_known:
            self._catalog.register(entry, self._ttl_s)


def _entry(instance: Instance) -> CatalogEntry:
    metadata = dict(instance.metadata)
    if instance.zone:
        metadata[ZONE] = instance.zone
    return CatalogEntry(
        instance.service,
        instance.id,
        instance.address,
        instance.port,
        instance.tags,
        metadata,
        instance.weight,
        _HEALTH_OF[instance.state],
    )


def _instance(entry: CatalogEntry) -> Instance:
    try:
        return Instance(
            service=entry.service,
            id=entry.id,
            address=entry.address,
            port=entry.port,
            metadata={
                key: value
                for key, value in list(entry.metadata.items())[:METADATA_ENTRIES_MAX]
                if key != ZONE and fits_metadata(key, value)
            },
            tags=entry.tags,
            zone=entry.metadata.get(ZONE, ""),
            weight=entry.weight,
            state=_STATE_OF[entry.health],
        )
    except ServiceUsageError as error:
        raise InstanceFormatError(
            f"what is registered as {entry.service}/{entry.id} cannot be used: {error}"
        ) from error
