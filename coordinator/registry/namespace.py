"""The opened parts of one namespace, which everything that works on it shares."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pliska.coordinator.registry.aliases import Aliases
from pliska.coordinator.registry.blobs import Blobs
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.marks import Marks
from pliska.coordinator.registry.names import check_namespace
from pliska.coordinator.registry.nodes import Nodes
from pliska.coordinator.registry.operations import Operations
from pliska.coordinator.registry.pins import Pins
from pliska.coordinator.registry.sweeps import Sweeps
from pliska.coordinator.registry.verification import Verifier
from pliska.coordinator.registry.versions import Versions
from pliska.coordinator.storage import Storage
from pliska.coordinator.wire.signing import KeyLookup
from pliska.discovery import Keyring, Role
from pliska.locks import Backend


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace's records and files. Make one with `open`.

    Attributes:
        name: Of the tenant.
        backend: The coordination store.
        publisher_key: Key id to the public key of an enrolled publisher, or None.
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
    ) -> "Namespace":
        """Put the parts together; see `Registry` for the arguments."""
        check_namespace(name)
        blobs = Blobs(storage, name)
        publisher_key = _publishers(Keyring(backend))
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


def _publishers(keyring: Keyring) -> KeyLookup:
    def publisher_key(key_id: str) -> bytes | None:
        enrolled = keyring.find(key_id)
        if enrolled is None or enrolled.role is not Role.PUBLISHER or not enrolled.is_active:
            return None
        return enrolled.public_key

    return publisher_key
