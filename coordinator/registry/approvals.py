"""Approvals: publishers' signatures on what an alias is made to say.

Each is over the generation, the version, its manifest and the history before it, so it
approves of one move and no other. How many are needed is set where a registry is
opened; a node counts them again before it follows the alias.
"""

from dataclasses import dataclass
from typing import ClassVar

from pliska.coordinator.registry.digest import hex_of
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.kept_signature import counted_signers, sign_statement
from pliska.coordinator.wire.encoding import Digest as RawDigest
from pliska.coordinator.wire.encoding import Name
from pliska.coordinator.wire.signing import KeyLookup, Signer


@dataclass(frozen=True, slots=True)
class AliasStatement:
    """What a publisher signs: in this generation the alias says this."""

    wire_type: ClassVar[str] = "pliska/alias/1"

    namespace: Name
    model: Name
    alias: Name
    gen: int
    version: int
    manifest_digest: RawDigest
    canary_digest: RawDigest | None
    canary_percent: int
    prev_hash: RawDigest
    expires: str


def sign_entry(entry: HistoryEntry, signer: Signer) -> str:
    """Return an approval of the entry in the form that records keep."""
    return sign_statement(_statement(entry), signer)


def approvers(entry: HistoryEntry, publisher_key: KeyLookup) -> frozenset[str]:
    """Return the ids of the keys that approved of the entry and count.

    Args:
        entry: With its approvals; those that do not fit it count for nothing.
        publisher_key: Key id to public key; None for a key that does not count
            (not enrolled, not a publisher's, revoked).
    """
    return counted_signers(entry.approvals, _statement(entry), publisher_key)


def _statement(entry: HistoryEntry) -> AliasStatement:
    canary = entry.canary
    return AliasStatement(
        namespace=entry.namespace,
        model=entry.model,
        alias=entry.alias,
        gen=entry.gen,
        version=entry.to_version,
        manifest_digest=bytes.fromhex(hex_of(entry.manifest_digest)),
        canary_digest=None if canary is None else bytes.fromhex(hex_of(canary.manifest_digest)),
        canary_percent=0 if canary is None else canary.percent,
        prev_hash=bytes.fromhex(hex_of(entry.prev_hash)),
        expires=entry.expires or "",
    )
