"""Signatures that records keep are counted by key, and hostile text counts for nothing."""

import base64

import pytest

from pliska.coordinator.registry.approvals import AliasStatement
from pliska.coordinator.registry.kept_signature import (
    counted_signers,
    read_signature,
    sign_statement,
)
from pliska.coordinator.registry.signatures import VersionStatement
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import key_id, new_private_key, public_bytes

ONE = VersionStatement("default", "digits", 1, bytes(32))
OTHER = VersionStatement("default", "digits", 2, bytes(32))
ALIAS = AliasStatement("default", "digits", "prod", 1, 1, bytes(32), None, 0, bytes(32), "")
KEYS = [new_private_key() for _ in range(3)]
SIGNERS = [Signer(key, key_id(public_bytes(key))) for key in KEYS]
ENROLLED = {key_id(public_bytes(key)): public_bytes(key) for key in KEYS[:2]}
HOSTILE = ["", "é", "\udcff", "=", "AAAA", "not base64!", base64.b64encode(bytes(300)).decode()]


def test_each_enrolled_key_that_signed_the_statement_counts_once() -> None:
    texts = [sign_statement(ONE, signer) for signer in (*SIGNERS, SIGNERS[0])]
    assert counted_signers(texts, ONE, ENROLLED.get) == set(ENROLLED)


def test_a_signature_on_something_else_counts_for_nothing() -> None:
    texts = [sign_statement(each, SIGNERS[0]) for each in (OTHER, ALIAS)]
    assert counted_signers(texts, ONE, ENROLLED.get) == frozenset()


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_signature_is_refused_and_counts_for_nothing(text: str) -> None:
    with pytest.raises(MalformedError):
        read_signature(text)
    good = sign_statement(ONE, SIGNERS[0])
    assert counted_signers([text, good], ONE, ENROLLED.get) == {SIGNERS[0].key_id}
