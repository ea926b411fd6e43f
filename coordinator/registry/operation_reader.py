"""Reads the operations of a namespace from the store: those that are open, and how they ended.

It writes nothing (`transactions`) and decides nothing (`protocol`).
"""

from pliska.coordinator.registry.ended_operations import EndedOperation, ended_key
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.operations import Operation, StoredOperation, operation_key
from pliska.coordinator.registry.stored import read_stored
from pliska.locks import Backend, Record


class Operations:
    """Reads the operations of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._keys = Keys(namespace)

    def open(self, model: str, alias: str) -> StoredOperation | None:
        """Return the open operation on an alias, or None."""
        found = self._backend.get(self._keys.operation(model, alias))
        return None if found is None else self.stored(found)

    def how_ended(self, model: str, alias: str, op_id: str) -> EndedOperation | None:
        """Return how an operation ended; None where it has not, or never was."""
        found = self._backend.get(self._keys.ended_operation(model, alias, op_id))
        return None if found is None else self.read_ended(found)

    def ended(self, model: str, alias: str) -> tuple[EndedOperation, ...]:
        """Return how all operations on an alias ended, the first to end first."""
        listing = self._backend.list(self._keys.ended(model, alias))
        return tuple(self.read_ended(found) for found in listing.records)

    def stored(self, found: Record) -> StoredOperation:
        """Read an open operation."""
        return read_stored(found, Operation.from_bytes, operation_key)

    def read_ended(self, found: Record) -> EndedOperation:
        """Read how an operation ended."""
        return read_stored(found, EndedOperation.from_bytes, ended_key).record
