"""The charter of a namespace: whose signatures count there, agreed upon by k of n keys.

Without one, every enrolled publisher counts, so that whoever can write to the store
decides. With one, only the keys in it do, and it changes only by the next charter,
which has to be signed by enough keys of the charter before *and* by enough of its own:
nobody is put in charge by strangers, and no key is in charge that nobody holds.
Charters are numbered without a gap and each carries the hash of the one before.

Source: the root role of The Update Framework (specification 1.0, 5.3), without
its expiry and its other roles. Pure; `charters` keeps them.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from pliska.coordinator.registry.digest import NO_DIGEST, Digest, digest_of, hex_of
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import (
    IntegrityError,
    RefusedError,
    RegistryUsageError,
)
from pliska.coordinator.registry.kept_signature import (
    counted_signers,
    read_signature,
    sign_statement,
)
from pliska.coordinator.wire.encoding import Digest as RawDigest
from pliska.coordinator.wire.encoding import Name
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.signing import Signer
from pliska.discovery.errors import KeyringUsageError
from pliska.discovery.keys import key_id, parse_public_text

CHARTER_BYTES_MAX = 64 * 1024
KEYS_MAX = 32
SIGNATURES_MAX = 2 * KEYS_MAX
"""Those of the charter before may sign too."""

_FORMAT = "pliska-charter-1"


@dataclass(frozen=True, slots=True)
class CharterStatement:
    """What a key signs: this is the next charter of the namespace."""

    wire_type: ClassVar[str] = "pliska/charter/1"

    namespace: Name
    number: int
    charter_digest: RawDigest


@dataclass(frozen=True, slots=True)
class Charter:
    """Whose signatures count in a namespace.

    Attributes:
        namespace: Where.
        number: 1 for the first, then one more each time.
        keys: Public keys as people pass them on (`ed25519:…`), sorted, each once.
        quorum: How many of them it takes to change the charter.
        prev_hash: Hash of the charter before; `NO_DIGEST` for the first.
        signatures: Base64 of signed `CharterStatement`s, one a key; not part of the hash.
    """

    namespace: str
    number: int
    keys: tuple[str, ...]
    quorum: int
    prev_hash: Digest = NO_DIGEST
    signatures: tuple[str, ...] = ()

    @property
    def hash(self) -> Digest:
        """What the next charter refers to, and what a reader can insist on."""
        return digest_of(canonical_bytes(self._body()))

    def public_key(self, wanted: str) -> bytes | None:
        """Return the public key with this id; None where it does not count."""
        return self._by_id().get(wanted)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys."""
        return tuple(self._by_id())

    def to_bytes(self) -> bytes:
        """Return the stored form, signatures included."""
        return canonical_bytes({**self._body(), "signatures": list(self.signatures)})

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Charter":
        """Read the stored form; signatures are not checked. Raises `IntegrityError`."""
        document = read_document(content, CHARTER_BYTES_MAX, what)
        document.check_format(_FORMAT)
        charter = cls(
            namespace=document.text("namespace"),
            number=document.integer("number", minimum=1),
            keys=document.texts("keys", KEYS_MAX),
            quorum=document.integer("quorum", minimum=1),
            prev_hash=document.digest("prev_hash"),
            signatures=document.texts("signatures", SIGNATURES_MAX),
        )
        document.finish()
        if charter.keys != tuple(sorted(set(charter.keys))) or not charter.keys:
            raise document.bad("keys", "at least one, sorted, each once")
        if charter.quorum > len(charter.keys):
            raise document.bad("quorum", f"at most the number of keys, {len(charter.keys)}")
        try:
            charter._by_id()
        except KeyringUsageError as error:
            raise document.bad("keys", "public keys") from error
        return charter

    def _body(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "namespace": self.namespace,
            "number": self.number,
            "keys": list(self.keys),
            "quorum": self.quorum,
            "prev_hash": self.prev_hash,
        }

    def _by_id(self) -> dict[str, bytes]:
        public = (parse_public_text(text) for text in self.keys)
        return {key_id(each): each for each in public}


def next_charter(
    namespace: str, before: Charter | None, keys: tuple[str, ...], quorum: int
) -> Charter:
    """Return an unsigned charter that follows `before`; None for the first of a namespace.

    Raises:
        RegistryUsageError: There are no keys or too many, or a quorum that they cannot reach.
    """
    keys = tuple(sorted(set(keys)))
    if not 1 <= quorum <= len(keys) <= KEYS_MAX:
        raise RegistryUsageError(
            f"{quorum} of {len(keys)} keys: name 1 to {KEYS_MAX} keys and a quorum of them"
        )
    if before is None:
        return Charter(namespace, 1, keys, quorum)
    return Charter(namespace, before.number + 1, keys, quorum, before.hash)


def sign_charter(charter: Charter, signer: Signer) -> Charter:
    """Return the charter with a signature of the signer's key, in the place of an earlier one."""
    others = [text for text in charter.signatures if _signer_id(text) != signer.key_id]
    own = sign_statement(_statement(charter), signer)
    return dataclasses.replace(charter, signatures=(*others, own))


def merge_signatures(charters: tuple[Charter, ...]) -> Charter:
    """Return one charter with the signatures of several copies of it.

    Raises:
        RegistryUsageError: They are not the same charter, or have too many signatures.
    """
    first, *others = charters
    if any(other.hash != first.hash for other in others):
        raise RegistryUsageError("these are different charters; sign copies of one draft")
    signatures = tuple(dict.fromkeys(text for each in charters for text in each.signatures))
    if len(signatures) > SIGNATURES_MAX:
        raise RegistryUsageError(f"more than {SIGNATURES_MAX} signatures")
    return dataclasses.replace(first, signatures=signatures)


def charter_signers(charter: Charter, among: Charter) -> frozenset[str]:
    """Return the ids of the keys of another charter that signed this one, each once."""
    return counted_signers(charter.signatures, _statement(charter), among.public_key)


def check_follows(before: Charter | None, charter: Charter, namespace: str) -> None:
    """Check that a charter may stand after another one; None before the first.

    Raises:
        IntegrityError: It is of another place in the chain.
        RefusedError: Too few keys signed it.
    """
    number, prev_hash = (1, NO_DIGEST) if before is None else (before.number + 1, before.hash)
    what = f"charter {charter.number} of {charter.namespace!r}"
    if (charter.namespace, charter.number, charter.prev_hash) != (namespace, number, prev_hash):
        raise IntegrityError(f"{what} does not follow charter {number - 1} of {namespace!r}")
    sides = [("its own", charter)] + ([] if before is None else [("the former", before)])
    for whose, side in sides:
        signers = charter_signers(charter, side)
        if len(signers) < side.quorum:
            raise RefusedError(
                f"{what} is signed by {len(signers)} of {whose} keys; it takes {side.quorum} "
                f"of {', '.join(side.key_ids)}"
            )


def _statement(charter: Charter) -> CharterStatement:
    return CharterStatement(charter.namespace, charter.number, bytes.fromhex(hex_of(charter.hash)))


def _signer_id(text: str) -> str:
    """Return the key id that a signature claims; empty where it is malformed."""
    try:
        return read_signature(text).key_id
    except MalformedError:
        return ""
