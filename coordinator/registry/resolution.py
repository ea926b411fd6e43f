"""From how a person names a version to its record."""

from collections.abc import Mapping

from pliska.coordinator.registry.errors import IntegrityError, NotFoundError
from pliska.coordinator.registry.names import LATEST, Reference, check_model
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.versions import State, VersionRecord


def find_version(namespace: Namespace, reference: Reference) -> VersionRecord:
    """Return the version that a reference names; a bare model means its latest.

    Raises:
        NotFoundError: There is none.
        IntegrityError: The alias, its history or the version was changed.
    """
    stored = namespace.versions.of_model(check_model(reference.model))
    versions = {number: each.record for number, each in stored.items()}
    found = _find(namespace, reference, versions)
    if found is None:
        raise NotFoundError(f"no version {reference}")
    return found


def _find(
    namespace: Namespace, reference: Reference, versions: Mapping[int, VersionRecord]
) -> VersionRecord | None:
    if reference.version is not None:
        return versions.get(reference.version)
    if reference.digest is not None:
        digest = reference.digest
        named = (r for r in versions.values() if digest in (r.content_id, r.manifest_digest))
        return next(named, None)
    if reference.alias is not None and reference.alias != LATEST:
        return _pointed_at(namespace, reference.model, reference.alias, versions)
    ready = [record for record in versions.values() if record.state is State.READY]
    return ready[-1] if ready else None


def _pointed_at(
    namespace: Namespace, model: str, alias: str, versions: Mapping[int, VersionRecord]
) -> VersionRecord | None:
    """Return the version of an alias; both must name the same manifest."""
    history = namespace.aliases.read(model, alias).history
    if not history:
        return None
    record = versions.get(history[-1].to_version)
    if record is None or record.manifest_digest != history[-1].manifest_digest:
        raise IntegrityError(
            f"alias {alias!r} of {model!r}: version {history[-1].to_version} is missing or "
            "has another manifest than when the alias was moved to it; do not use it"
        )
    return record
