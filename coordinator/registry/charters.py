"""Keeping the charters of a namespace, and asking whose signatures count.

Charters are only ever added, and read from the first to the newest, each verified
against the one before, so that a store that was tampered with can show an older
charter at most. A reader who names the hash of one insists that it is among them.
"""

from pliska.coordinator.registry.charter import Charter, check_follows
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.errors import (
    IntegrityError,
    RefusedError,
    RegistryConflictError,
)
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import read_stored
from pliska.discovery import Enrolled, Keyring, Role
from pliska.locks import Backend, ConflictError


class Charters:
    """The charters of one namespace.

    Args:
        backend: The coordination store.
        namespace: Whose.
        pinned: Hash of a charter that has to be among them; None to trust the store.
    """

    def __init__(self, backend: Backend, namespace: str, pinned: Digest | None) -> None:
        self._backend = backend
        self._namespace = namespace
        self._keys = Keys(namespace)
        self._keyring = Keyring(backend)
        self._pinned = pinned

    def read(self) -> tuple[Charter, ...]:
        """Return all charters, oldest first, each verified; empty where there is none.

        Raises:
            IntegrityError: One is missing, damaged or not signed as it must be, or the
                pinned one is not among them.
        """
        records = self._backend.list(self._keys.charters).records
        charters: list[Charter] = []
        for found in sorted(records, key=lambda record: record.key):
            charter = read_stored(found, Charter.from_bytes, self._key_of).record
            try:
                check_follows(charters[-1] if charters else None, charter, self._namespace)
            except RefusedError as error:
                raise IntegrityError(f"{error}; trust no signature here") from error
            charters.append(charter)
        if self._pinned is not None and self._pinned not in {each.hash for each in charters}:
            raise IntegrityError(
                f"charter {self._pinned} is not among the {len(charters)} of "
                f"{self._namespace!r}; trust no signature here"
            )
        return tuple(charters)

    def enact(self, charter: Charter) -> None:
        """Put the next charter in force.

        Raises:
            RefusedError: Too few keys signed it.
            IntegrityError: It does not follow the newest one.
            RegistryConflictError: Another one was put in force meanwhile.
        """
        charters = self.read()
        check_follows(charters[-1] if charters else None, charter, self._namespace)
        try:
            self._backend.create(self._key_of(charter), charter.to_bytes())
        except ConflictError as error:
            raise RegistryConflictError(
                f"another charter {charter.number} of {self._namespace!r} is in force; draft again"
            ) from error

    def publisher_key(self, key_id: str) -> bytes | None:
        """Return the public key of a publisher whose signatures count here, or None.

        That is a key of the newest charter or, where there is none, an enrolled
        publisher's. A key that is revoked in the keyring does not count in any case.
        """
        charters = self.read()
        enrolled = self._keyring.find(key_id)
        if enrolled is not None and not enrolled.is_active:
            return None
        return charters[-1].public_key(key_id) if charters else _publishers_key(enrolled)

    def _key_of(self, charter: Charter) -> str:
        return Keys(charter.namespace).charter(charter.number)


def _publishers_key(enrolled: Enrolled | None) -> bytes | None:
    is_publisher = enrolled is not None and enrolled.role is Role.PUBLISHER
    return enrolled.public_key if enrolled is not None and is_publisher else None
