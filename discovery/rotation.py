"""The change from one key to the next, signed by both.

The old key's signature says that its holder wants the change, the new key's
that the holder has the new one: nobody can take over a name, and nobody can
have a stranger's key put under theirs. `Keyring.rotate` carries it out.
"""

from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from pliska.discovery.enrolled import Enrolled
from pliska.discovery.errors import KeyRotationError
from pliska.discovery.keys import key_id, public_bytes, public_text

_DOMAIN = "pliska key rotation 1"


@dataclass(frozen=True, slots=True)
class Rotation:
    """A signed wish to change a key.

    Attributes:
        public_key: The new key, 32 bytes.
        old_signature: The old key's, over `statement`.
        new_signature: The new key's, over the same.
    """

    public_key: bytes
    old_signature: bytes
    new_signature: bytes


def statement(enrolled: Enrolled, public_key: bytes) -> bytes:
    """What both keys sign: whose key changes into which.

    It names the revision of the old key's enrolment, so it counts once and in
    one store. No field can contain the line breaks between them.

    Args:
        enrolled: The old key.
        public_key: The new one, 32 bytes.
    """
    fields = (
        _DOMAIN,
        enrolled.name,
        enrolled.role,
        str(enrolled.revision),
        public_text(enrolled.public_key),
        public_text(public_key),
    )
    return "\n".join(fields).encode()


def sign_rotation(enrolled: Enrolled, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Rotation:
    """Sign the change of an enrolled key with both private keys."""
    public_key = public_bytes(new)
    message = statement(enrolled, public_key)
    return Rotation(public_key, old.sign(message), new.sign(message))


def verify_rotation(enrolled: Enrolled, rotation: Rotation) -> None:
    """Refuse a change that the old key or the new one has not signed.

    Raises:
        KeyRotationError: A signature is not that key's, over this change.
    """
    message = statement(enrolled, rotation.public_key)
    for which, public_key, signature in (
        ("old", enrolled.public_key, rotation.old_signature),
        ("new", rotation.public_key, rotation.new_signature),
    ):
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
        except (InvalidSignature, ValueError) as error:
            raise KeyRotationError(
                f"the change of {enrolled.name}'s key is not signed by the {which} key, "
                f"{key_id(public_key)}"
            ) from error
