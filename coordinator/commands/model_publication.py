"""`pliska model publish` and `adopt`: versions in git repositories and OCI registries."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pliska.coordinator.commands.model_options import (
    ActorOption,
    Place,
    ReferenceArgument,
    default_actor,
    load_signer,
    with_place,
)
from pliska.coordinator.commands.model_rows import VERSION_COLUMNS, version_row
from pliska.coordinator.registry import (
    DestinationError,
    IntegrityError,
    Publication,
    Receipt,
    Reference,
    RegistryUsageError,
    VersionRecord,
)
from pliska.coordinator.registry.adoption import adopt as adopt_publication
from pliska.coordinator.registry.alias_publication import (
    Publish,
    follow_alias,
    publish_pointed_at,
)
from pliska.coordinator.registry.git import GitRepository
from pliska.coordinator.registry.git_publication import publish_to_git, read_from_git
from pliska.coordinator.registry.oci_credentials import OciCredentials, credentials_in
from pliska.coordinator.registry.oci_reference import OciReference
from pliska.locks.presentation import show_json, show_rows

GitOption = Annotated[
    Path | None, typer.Option(metavar="REPO", help="A git repository on this machine.")
]
OciOption = Annotated[
    str | None, typer.Option(metavar="HOST/NAME:TAG", help="An artifact in an OCI registry.")
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        envvar="PLISKA_OCI_CREDENTIALS",
        help="Private file with USERNAME:PASSWORD for the OCI registry; PLISKA_OCI_USERNAME and "
        "PLISKA_OCI_PASSWORD otherwise.",
    ),
]


@with_place
def publish(
    place: Place,
    reference: ReferenceArgument,
    git: GitOption = None,
    oci: OciOption = None,
    credentials: CredentialsOption = None,
    follow: Annotated[
        bool, typer.Option(help="Go on, and let the OCI tag follow the alias, until interrupted.")
    ] = False,
) -> None:
    """Add a version to a git repository under a tag, or to an OCI registry.

    What is there already is not sent again. A tag for MODEL@ALIAS moves with the
    alias; any other tag is set once.
    """
    named = Reference.parse(reference)
    send = _sender(named, git, oci, credentials)
    if follow and (oci is None or named.alias is None):
        raise RegistryUsageError("--follow takes MODEL@ALIAS and --oci HOST/NAME:TAG")
    with place.open() as registry:
        if follow and named.alias is not None:
            follow_alias(registry, named.model, named.alias, send, _tell)
        record, receipt = publish_pointed_at(registry, named, send)
    _tell(record, receipt)
    if place.is_json:
        show_json(_receipt_row(record, receipt))
    else:
        typer.echo(receipt.digest)


@with_place
def adopt(
    place: Place,
    reference: ReferenceArgument,
    git: GitOption = None,
    oci: OciOption = None,
    credentials: CredentialsOption = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Sign with this publisher's key file.")
    ] = None,
    actor: ActorOption = None,
) -> None:
    """Register a version that was published elsewhere, verifying every byte and signature.

    MODEL:N is its name there. It gets the next number here, which is printed.
    """
    named = Reference.parse(reference)
    signer = None if sign is None else load_signer(sign)
    with (
        _published(named, place.namespace, git, oci, credentials) as publication,
        place.open() as registry,
    ):
        adopted = adopt_publication(
            registry, publication, actor=actor or default_actor(), signer=signer
        )
    version = adopted.version
    if place.is_json:
        show_json({**version_row(version, []), "created": adopted.created})
    else:
        show_rows(place.output, "versions", VERSION_COLUMNS, [version_row(version, [])])


def _sender(
    named: Reference, git: Path | None, oci: str | None, credentials: Path | None
) -> Publish:
    if git is not None and oci is None:
        return partial(publish_to_git, repository=GitRepository(git))
    if oci is None or git is not None:
        raise RegistryUsageError("say where to: either --git REPO or --oci HOST/NAME:TAG")
    from pliska.coordinator.registry.oci_publication import publish_to_oci

    return partial(
        publish_to_oci,
        reference=OciReference.parse(oci),
        credentials=_credentials(credentials),
        tag_may_move=named.alias is not None,
    )


@contextmanager
def _published(
    named: Reference, namespace: str, git: Path | None, oci: str | None, credentials: Path | None
) -> Iterator[Publication]:
    """Read what was published; its files are there as long as the caller reads them."""
    if (git is None) == (oci is None):
        raise RegistryUsageError("say from where: either --git REPO or --oci HOST/NAME:TAG")
    if git is not None:
        if named.version is None:
            raise RegistryUsageError("name the version that was published, MODEL:N")
        yield read_from_git(GitRepository(git), namespace, named.model, named.version)
        return
    from pliska.coordinator.registry.oci_publication import read_from_oci

    with tempfile.TemporaryDirectory(prefix="pliska-adopt-") as folder:
        artifact = OciReference.parse(oci or "")
        publication = read_from_oci(artifact, _credentials(credentials), Path(folder))
        there = publication.record
        if (there.namespace, there.model) != (namespace, named.model) or named.version not in (
            None,
            there.version,
        ):
            raise IntegrityError(f"{artifact} is {there.name} of {there.namespace!r}, not {named}")
        yield publication


def _credentials(file: Path | None) -> OciCredentials | None:
    return credentials_in(os.environ, file)


def _receipt_row(record: VersionRecord, receipt: Receipt) -> dict[str, Any]:
    return {
        "version": record.name,
        "manifest_digest": record.manifest_digest,
        "place": receipt.place,
        "digest": receipt.digest,
        "created": receipt.created,
        "blobs_added": receipt.blobs_added,
    }


def _tell(record: VersionRecord, news: Receipt | DestinationError) -> None:
    if isinstance(news, DestinationError):
        message = f"{record.name} is not published yet: {news}"
    elif news.created:
        message = f"published {record.name} as {news.place}: {news.blobs_added} new tensors"
    else:
        message = f"{record.name} is published as {news.place} already"
    typer.echo(message, err=True)
