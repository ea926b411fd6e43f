"""The opened parts of one namespace, which everything that works on it shares."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pliska.coordinator.registry.aliases import Aliases
from pliska.coordinator.registry.blobs import Blobs
from pliska.coordinator.registry.charters import Charters
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.marks import Marks
from pliska.coordinator.registry.names import check_namespace
from pliska.coordinator.registry.nodes import Nodes
from pliska.coordinator.registry.operation_reader import Operations
from pliska.coordinator.registry.packed_storage import packable
from pliska.coordinator.registry.pins import Pins
from pliska.coordinator.registry.sweeps import Sweeps
from pliska.coordinator.registry.verification import Verifier
from pliska.coordinator.registry.version_store import Versions
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.signing import KeyLookup
from pliska.locks import Backend


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace's records and files. Make one with `open`.

    Attributes:
        name: Of the tenant.
        backend: The coordination store.
        publisher_key: Key id to the public key of a publisher whose signatures count, or None.
        signatures_min: How many publishers must have signed a version.
        approvals_min: How many publishers must have approved of what an alias says.
        now: Returns the time, in UTC.
    """

    name: str
    backend: Backend
    blobs: Blobs
    versions: Versions
    marks: Marks
    aliases: Aliases
    operations: Operations
    nodes: Nodes
    pins: Pins
    sweeps: Sweeps
    charters: Charters
    verifier: Verifier
    publisher_key: KeyLookup
    signatures_min: int
    approvals_min: int
    now: Callable[[], datetime]

    @classmethod
    def open(
        cls,
        backend: Backend,
        storage: Storage,
        name: str,
        signatures_min: int,
        approvals_min: int,
        now: Callable[[], datetime],
        charter: Digest | None = None,
    ) -> "Namespace":
        """Put the parts together; see `Registry` for the arguments."""
        check_namespace(name)
        blobs = Blobs(packable(storage), name)
        charters = Charters(backend, name, charter)
        publisher_key = charters.publisher_key
        return cls(
            name=name,
            backend=backend,
            blobs=blobs,
            versions=Versions(backend, name),
            marks=Marks(backend, name, publisher_key, signatures_min),
            aliases=Aliases(backend, name),
            operations=Operations(backend, name),
            nodes=Nodes(backend, name),
            pins=Pins(backend, name),
            sweeps=Sweeps(backend, name, now),
            charters=charters,
            verifier=Verifier(blobs, publisher_key, signatures_min),
            publisher_key=publisher_key,
            signatures_min=signatures_min,
            approvals_min=approvals_min,
            now=now,
        )

    @property
    def keys(self) -> Keys:
        """Where its records lie."""
        return Keys(self.name)
