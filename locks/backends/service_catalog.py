"""The seam for stores that keep services of their own, as Consul's catalog does.

A backend that has one offers it as `service_catalog`; discovery then registers
services there, where the store's own tools find them. For every other backend
discovery keeps services as ordinary records and nothing here is needed.

An entry lives by itself, not by a `BackendSession`: whoever registered it says
so again within `ttl_s`, or the store counts it as critical.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from pliska.locks.backends.base import CALL_TIMEOUT_S, ChangeFeed, Revision


class EntryHealth(StrEnum):
    """What the store says about an entry."""

    PASSING = "passing"
    """It was heard of within its time to live and can be used."""
    MAINTENANCE = "maintenance"
    """It lives and asks for no new work."""
    CRITICAL = "critical"
    """It says itself, or a check of it says, that it cannot be used."""
    LOST = "lost"
    """It, or the machine it was on, was not heard of for too long."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One instance of a service as the store's catalog has it.

    Attributes:
        service: Name of the service.
        id: Unique within the service.
        address: Host name or IP address; empty for that of the machine the
            entry was registered on.
        port: TCP port, 0 for none.
        tags: Words to select by.
        metadata: Short texts by short names.
        weight: Share of the load among its kind, at least 1.
        health: Whether it can be used.
        owner: Tells its registration from others of the same id; empty where it
            was registered by another program.
    """

    service: str
    id: str
    address: str
    port: int
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    weight: int
    health: EntryHealth = EntryHealth.PASSING
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """How an entry stands, and whose it is."""

    health: EntryHealth
    owner: str


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """All entries of one service, whatever their health, and the catalog's revision."""

    entries: tuple[CatalogEntry, ...]
    revision: Revision


class ServiceCatalog(Protocol):
    """A store's own register of services. Safe to use from any thread.

    Every call blocks for at most `timeout_s` and raises `StoreError` when the
    store does not answer.
    """

    @property
    def ttl_s_min(self) -> float:
        """The shortest time to live that the store takes."""

    def register(
        self, entry: CatalogEntry, ttl_s: float, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        """Add the entry with its health, or replace the one with its service and id.

        `list` shows it when this returns.
        """

    def renew(self, entry: CatalogEntry, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Say that a registered entry lives and how healthy it is.

        Raises:
            ConflictError: The store has no such entry; register it.
        """

    def status(
        self,
        service: str,
        id: str,  # noqa: A002
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> EntryStatus | None:
        """How an entry that was registered here stands; None when there is none such."""

    def drain(
        self,
        service: str,
        id: str,  # noqa: A002
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """Put an entry, anybody's, into maintenance; False when there is none such.

        It stays there whatever its owner's `renew` says, until it is deregistered.
        `list` shows it when this returns.

        Raises:
            LockUsageError: It was registered at another place, which has to be told.
        """

    def deregister(
        self,
        service: str,
        id: str,  # noqa: A002
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """Remove an entry that was registered here; True when it was there.

        `list` shows it no more when this returns.
        """

    def list(self, service: str, timeout_s: float = CALL_TIMEOUT_S) -> CatalogListing:
        """Read the entries of one service."""

    def services(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """The names of all services that have entries, sorted."""

    def open_feed(self) -> ChangeFeed:
        """A feed whose paths are the names of services."""


@runtime_checkable
class CatalogBackend(Protocol):
    """A backend whose store has a catalog of its own."""

    @property
    def service_catalog(self) -> ServiceCatalog:
        """The catalog, through the backend's connections."""
