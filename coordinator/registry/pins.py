"""Pins: versions that must stay, whatever an operator's retention says."""

from dataclasses import dataclass

from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import RegistryConflictError
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import read_stored
from pliska.locks import Backend, ConflictError, Create, Unmodified

PIN_BYTES_MAX = 16 * 1024

_FORMAT = "pliska-pin-1"


@dataclass(frozen=True, slots=True)
class Pin:
    """Why one version must stay.

    Attributes:
        reason: For people.
        actor: Who pinned it.
        at: UTC time, ISO 8601.
    """

    namespace: str
    model: str
    version: int
    reason: str
    actor: str
    at: str

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "version": self.version,
                "reason": self.reason,
                "actor": self.actor,
                "at": self.at,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Pin":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, PIN_BYTES_MAX, what)
        document.check_format(_FORMAT)
        pin = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            version=document.integer("version", minimum=1),
            reason=document.text("reason"),
            actor=document.text("actor"),
            at=document.time("at"),
        )
        document.finish()
        return pin


class Pins:
    """The pins of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._keys = Keys(namespace)

    def of_model(self, model: str) -> dict[int, Pin]:
        """Return the pins of a model by version."""
        records = self._backend.list(self._keys.pins(model)).records
        pins = (read_stored(found, Pin.from_bytes, _key_of).record for found in records)
        return {pin.version: pin for pin in pins}

    def put(self, pin: Pin, version_is: Unmodified) -> None:
        """Pin a version that is as it was read; one that is pinned stays as it is.

        Raises:
            RegistryConflictError: The version changed meanwhile.
        """
        key = _key_of(pin)
        if self._backend.get(key) is not None:
            return
        try:
            self._backend.transact([version_is], [Create(key, pin.to_bytes())])
        except ConflictError as error:
            raise RegistryConflictError(
                f"{pin.model}:{pin.version} changed meanwhile; try again"
            ) from error

    def remove(self, model: str, version: int) -> bool:
        """Unpin; False where it was not pinned."""
        return self._backend.delete(self._keys.pin(model, version))


def _key_of(pin: Pin) -> str:
    return Keys(pin.namespace).pin(pin.model, pin.version)
