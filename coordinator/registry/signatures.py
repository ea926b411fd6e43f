"""Signatures on versions: a publisher's key vouches for a manifest under a name and number.

They are checked against the keyring whenever a version is loaded, exported,
promoted or returned to. A publisher whose key is revoked no longer counts.
"""

from dataclasses import dataclass
from typing import ClassVar

from pliska.coordinator.registry.digest import hex_of
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.kept_signature import read_signature, sign_statement
from pliska.coordinator.registry.versions import VersionRecord
from pliska.coordinator.wire.encoding import Digest as RawDigest
from pliska.coordinator.wire.encoding import Name
from pliska.coordinator.wire.errors import BadSignatureError, MalformedError, UnknownKeyError
from pliska.coordinator.wire.signing import KeyLookup, Signed, Signer, verify


@dataclass(frozen=True, slots=True)
class VersionStatement:
    """What a publisher signs: this manifest is this version of this model."""

    wire_type: ClassVar[str] = "pliska/model-version/1"

    namespace: Name
    model: Name
    version: int
    manifest_digest: RawDigest


def sign_version(record: VersionRecord, signer: Signer) -> str:
    """Return the signature in the form that a version record keeps."""
    return sign_statement(_statement(record), signer)


def signer_ids(record: VersionRecord) -> tuple[str, ...]:
    """Return the key ids that the record's signatures claim; nothing is checked."""
    return tuple(_signed(record, text).key_id for text in record.signatures)


def verify_signatures(
    record: VersionRecord, publisher_key: KeyLookup, signatures_min: int
) -> tuple[str, ...]:
    """Check the signatures of a version.

    Args:
        record: The version.
        publisher_key: Key id to public key; None for a key that does not count
            (not enrolled, not a publisher's, revoked).
        signatures_min: How many different keys must have signed. A version that
            carries signatures needs at least one that counts, even at 0.

    Returns:
        The key ids that count, each once.

    Raises:
        IntegrityError: A signature does not fit, or too few count.
    """
    counted = set()
    for text in record.signatures:
        signed = _signed(record, text)
        try:
            statement = verify(signed, VersionStatement, publisher_key).message
        except UnknownKeyError:
            continue
        except (BadSignatureError, MalformedError) as error:
            raise IntegrityError(f"{record.name}: {error}; do not use it") from error
        if statement != _statement(record):
            raise IntegrityError(
                f"{record.name}: signed by {signed.key_id} as version {statement.version} of "
                f"{statement.model!r} with another manifest; do not use it"
            )
        counted.add(signed.key_id)
    needed = max(signatures_min, 1 if record.signatures else 0)
    if len(counted) < needed:
        raise IntegrityError(
            f"{record.name}: {len(counted)} signatures of enrolled publishers, {needed} needed"
        )
    return tuple(sorted(counted))


def _statement(record: VersionRecord) -> VersionStatement:
    return VersionStatement(
        namespace=record.namespace,
        model=record.model,
        version=record.version,
        manifest_digest=bytes.fromhex(hex_of(record.complete_manifest_digest())),
    )


def _signed(record: VersionRecord, text: str) -> Signed:
    try:
        return read_signature(text)
    except MalformedError as error:
        raise IntegrityError(f"{record.name}: a signature is malformed: {error}") from error
