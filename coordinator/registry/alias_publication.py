"""Publishing what an alias points at, so that a tag elsewhere follows the alias.

OCI registries have no compare-and-set for tags. Instead, whoever has moved a tag
looks at the alias again, and once more moves the tag where the alias has moved
meanwhile: of several publishers that do so, the last one leaves the tag right.
"""

import time
from collections.abc import Callable

from pliska.coordinator.registry.errors import DestinationError, RegistryConflictError
from pliska.coordinator.registry.names import Reference
from pliska.coordinator.registry.publication import Publication, Receipt, publication_of
from pliska.coordinator.registry.registry import Registry
from pliska.coordinator.registry.versions import VersionRecord

ATTEMPTS_MAX = 20
POLL_S = 2.0
"""How often to look at the alias though nobody said that it changed."""
RETRY_S = 5.0

Publish = Callable[[Publication], Receipt]
Tell = Callable[[VersionRecord, Receipt | DestinationError], None]


def publish_pointed_at(
    registry: Registry, reference: Reference, publish: Publish
) -> tuple[VersionRecord, Receipt]:
    """Publish what a reference names until that is what it still names afterwards.

    Raises:
        RegistryConflictError: It keeps moving.
    """
    for _ in range(ATTEMPTS_MAX):
        record = registry.resolve(reference)
        receipt = publish(publication_of(registry.namespace, record))
        if registry.resolve(reference).manifest_digest == record.manifest_digest:
            return record, receipt
    raise RegistryConflictError(f"{reference} keeps moving; try again")


def follow_alias(registry: Registry, model: str, alias: str, publish: Publish, tell: Tell) -> None:
    """Publish what an alias points at, now and after each move, until interrupted.

    Args:
        registry: Where the alias is.
        model: Its model.
        alias: Its name.
        publish: Publishes one version.
        tell: Gets every receipt, and what went wrong at the destination; that is tried again.
    """
    key = registry.namespace.keys.alias(model, alias)
    backend = registry.namespace.backend
    reference = Reference(model, alias=alias)
    while True:
        found = backend.get(key)
        record = registry.resolve(reference)
        try:
            record, receipt = publish_pointed_at(registry, reference, publish)
        except DestinationError as error:
            tell(record, error)
            time.sleep(RETRY_S)
            continue
        tell(record, receipt)
        while found is not None and registry.resolve(reference) == record:
            backend.wait_for_change(key, found.modified, POLL_S)
            found = backend.get(key)
