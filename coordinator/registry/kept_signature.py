"""A signature in the form that records of the registry keep: base64 of the signed statement.

One way to write, read and count them for versions, marks, approvals and charters;
what a signature is over is each one's own statement.
"""

import base64
from collections.abc import Iterable

from pliska.coordinator.wire.encoding import Message
from pliska.coordinator.wire.errors import BadSignatureError, MalformedError, UnknownKeyError
from pliska.coordinator.wire.signing import KeyLookup, Signed, Signer, verify


def sign_statement(statement: Message, signer: Signer) -> str:
    """Return the signer's signature on a statement."""
    return base64.b64encode(signer.sign(statement).to_bytes()).decode("ascii")


def read_signature(text: str) -> Signed:
    """Read what a record keeps; nothing is checked but its form.

    Raises:
        MalformedError: It is no signature.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError as error:  # no base64, or not even ASCII
        raise MalformedError(str(error)) from error
    return Signed.from_bytes(content)


def counted_signers(
    texts: Iterable[str], statement: Message, public_key: KeyLookup
) -> frozenset[str]:
    """Return the ids of the keys whose signatures on a statement count, each once.

    Args:
        texts: Signatures; those that do not fit count for nothing.
        statement: What has to be signed.
        public_key: Key id to public key; None for a key that does not count
            (not enrolled, not a publisher's, revoked).
    """
    counted = set()
    for text in texts:
        try:
            signed = read_signature(text)
            message = verify(signed, type(statement), public_key).message
        except (BadSignatureError, MalformedError, UnknownKeyError):
            continue
        if message == statement:
            counted.add(signed.key_id)
    return frozenset(counted)
