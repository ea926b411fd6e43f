"""Publishing a version in a git repository, and reading it from one or from a clone.

A version is one commit under one tag, `pliska/NAMESPACE/MODEL/N`. Its tree is the
version and nothing else:

    origin.json          number, who registered it, signatures
    manifest.json        what the tensors are; its SHA-256 is the manifest digest
    tensors/<64 hex>     one file a tensor, named by the SHA-256 of its bytes

So git stores a tensor once, however many versions share it, and a clone of one
tag (`git clone --depth 1 --branch`) brings one version. The commit's parent is
the newest older version that was published; no branch is touched, hence neither
anybody's index nor work tree. The tag is created last and never moved.
"""

import re

from pliska.coordinator.registry.digest import Digest, hex_of
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.errors import (
    IntegrityError,
    NotFoundError,
    RegistryConflictError,
)
from pliska.coordinator.registry.git import GitRepository
from pliska.coordinator.registry.manifest import MANIFEST_BYTES_MAX, Manifest, TensorEntry
from pliska.coordinator.registry.publication import (
    ORIGIN_BYTES_MAX,
    Publication,
    Receipt,
    origin_bytes,
    read_parts,
)
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.versions import VersionRecord

ORIGIN_FILE = "origin.json"
MANIFEST_FILE = "manifest.json"
TENSORS_FOLDER = "tensors"

_NUMBER = re.compile(r"[1-9][0-9]{0,11}")


def publish_to_git(publication: Publication, repository: GitRepository) -> Receipt:
    """Add a version to a repository and tag it; one that is there already is left alone.

    Raises:
        RegistryConflictError: The tag is there with another manifest.
        RegistryUsageError: Git allows no tag of this name.
        DestinationError: Git failed; nothing was tagged.
    """
    record = publication.record
    tag = tag_of(record.namespace, record.model, record.version)
    repository.check_reference(_reference(tag))
    published = _published(repository, record.namespace, record.model)
    if record.version not in published:
        commit, added = _add(publication, repository, published)
        try:
            repository.create_reference(_reference(tag), commit)
        except RegistryConflictError:
            published = _published(repository, record.namespace, record.model)
        else:
            return Receipt(tag, commit, created=True, blobs_added=added)
    commit = published[record.version]
    there = repository.read_file(commit, MANIFEST_FILE, MANIFEST_BYTES_MAX)
    if there != publication.manifest.to_bytes():
        raise RegistryConflictError(
            f"{repository.directory}: tag {tag} is there with another manifest; was it published "
            "from another registry?"
        )
    return Receipt(tag, commit, created=False, blobs_added=0)


def read_from_git(
    repository: GitRepository, namespace: str, model: str, version: int
) -> Publication:
    """Return a published version; the tensors' bytes are not read yet, and not verified.

    Raises:
        NotFoundError: It was not published here.
        IntegrityError: What is under its tag is not a version, or is another one.
    """
    tag = tag_of(namespace, model, version)
    commit = _published(repository, namespace, model).get(version)
    if commit is None:
        raise NotFoundError(f"{repository.directory} has no tag {tag}")
    record, manifest = read_parts(
        repository.read_file(commit, ORIGIN_FILE, ORIGIN_BYTES_MAX),
        repository.read_file(commit, MANIFEST_FILE, MANIFEST_BYTES_MAX),
        f"tag {tag}",
    )
    if (record.namespace, record.model, record.version) != (namespace, model, version):
        raise IntegrityError(
            f"tag {tag} holds {record.name} of {record.namespace!r}; do not use it"
        )
    blobs = repository.files_below(commit, TENSORS_FOLDER)
    tensors = {
        entry.name: _tensor(repository, entry, blobs.get(hex_of(entry.digest)), tag)
        for entry in manifest.tensors
    }
    return Publication(record, manifest, tensors)


def tag_of(namespace: str, model: str, version: int) -> str:
    """Return the tag of a version."""
    return f"pliska/{namespace}/{model}/{version}"


def _reference(tag: str) -> str:
    return f"refs/tags/{tag}"


def _published(repository: GitRepository, namespace: str, model: str) -> dict[int, str]:
    """Return the versions of a model that are in a repository, and their commits."""
    prefix = f"refs/tags/pliska/{namespace}/{model}/"
    named = (
        (name.removeprefix(prefix), commit)
        for name, commit in repository.references(prefix).items()
    )
    return {int(number): commit for number, commit in named if _NUMBER.fullmatch(number)}


def _add(
    publication: Publication, repository: GitRepository, published: dict[int, str]
) -> tuple[str, int]:
    """Add the version's objects; return its commit and how many tensors were new."""
    record, manifest = publication.record, publication.manifest
    older = max((number for number in published if number < record.version), default=None)
    parent = None if older is None else published[older]
    there: dict[str, str] = {}
    for commit in published.values():
        there |= repository.files_below(commit, TENSORS_FOLDER)
    blobs = {}
    added = 0
    for digest, name in _names(manifest).items():
        known = there.get(hex_of(digest))
        if known is None:
            known = repository.add_blob(b"".join(publication.tensors[name].chunks()))
            added += 1
        blobs[hex_of(digest)] = known
    tree = repository.add_tree(
        {
            ORIGIN_FILE: repository.add_blob(origin_bytes(record)),
            MANIFEST_FILE: repository.add_blob(manifest.to_bytes()),
        },
        {TENSORS_FOLDER: repository.add_tree(blobs, {})},
    )
    time_s = int(moment(record.registered_at).timestamp())
    return repository.add_commit(tree, parent, _message(record), time_s), added


def _names(manifest: Manifest) -> dict[Digest, str]:
    """Return each digest once, with the name of a tensor that has it."""
    return {entry.digest: entry.name for entry in manifest.tensors}


def _message(record: VersionRecord) -> str:
    return (
        f"{record.name} of {record.namespace}\n\n"
        f"Content: {record.content_id}\n"
        f"Manifest: {record.manifest_digest}\n"
        f"Registered-by: {record.registered_by}\n"
    )


def _tensor(repository: GitRepository, entry: TensorEntry, blob: str | None, tag: str) -> Tensor:
    if blob is None:
        raise IntegrityError(f"tag {tag} lacks tensor {entry.name!r} ({entry.digest})")
    return Tensor(entry.type, lambda: iter((repository.read_blob(blob, entry.type.nbytes),)))
