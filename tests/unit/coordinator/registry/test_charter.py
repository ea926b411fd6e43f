"""Whose signatures count: rules on charters as data, then in a store, then for versions."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import (
    IntegrityError,
    Reference,
    RefusedError,
    Registry,
    RegistryConflictError,
    RegistryUsageError,
)
from pliska.coordinator.registry.charter import (
    KEYS_MAX,
    SIGNATURES_MAX,
    Charter,
    charter_signers,
    check_follows,
    merge_signatures,
    next_charter,
    sign_charter,
)
from pliska.coordinator.registry.charters import Charters
from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Keyring, Role, key_id, new_private_key, public_bytes, public_text
from pliska.locks import Backend

PRIVATE = [new_private_key() for _ in range(6)]
SIGNERS = [Signer(key, key_id(public_bytes(key))) for key in PRIVATE]
KEYS = [public_text(public_bytes(key)) for key in PRIVATE]


def charter_of(
    before: Charter | None, keys: tuple[int, ...], quorum: int, signers: tuple[int, ...]
) -> Charter:
    charter = next_charter("default", before, tuple(KEYS[k] for k in keys), quorum)
    for signer in signers:
        charter = sign_charter(charter, SIGNERS[signer])
    return charter


FIRST = charter_of(None, (0, 1, 2), 2, (0, 1))


def test_a_charter_is_read_back_as_it_was_written() -> None:
    assert Charter.from_bytes(FIRST.to_bytes(), "x") == FIRST
    assert FIRST.hash == dataclasses.replace(FIRST, signatures=()).hash


@pytest.mark.parametrize(
    ("before", "keys", "quorum", "signers"),
    [
        (None, (0, 1, 2), 2, (0, 1)),
        (None, (0,), 1, (0,)),
        (FIRST, (3, 4), 2, (0, 2, 3, 4)),
        (FIRST, (1, 3, 4), 2, (1, 2, 3)),  # key 1 counts on both sides
        (FIRST, (0, 1, 2), 3, (0, 1, 2)),
    ],
)
def test_enough_of_the_former_and_of_the_next_keys_put_a_charter_in_force(
    before: Charter | None, keys: tuple[int, ...], quorum: int, signers: tuple[int, ...]
) -> None:
    check_follows(before, charter_of(before, keys, quorum, signers), "default")


@pytest.mark.parametrize(
    ("before", "keys", "quorum", "signers"),
    [
        (None, (0, 1, 2), 2, (0,)),
        (None, (0, 1, 2), 2, (0, 5)),
        (FIRST, (3, 4), 2, (3, 4)),  # the new ones alone
        (FIRST, (3, 4), 2, (0, 3, 4)),  # one of the former is too few
        (FIRST, (3, 4), 2, (0, 1, 3)),  # one of the next is too few
        (FIRST, (3, 4), 2, (0, 1)),  # the former ones alone: does anybody hold the next?
    ],
)
def test_too_few_on_either_side_do_not(
    before: Charter | None, keys: tuple[int, ...], quorum: int, signers: tuple[int, ...]
) -> None:
    with pytest.raises(RefusedError, match="it takes 2"):
        check_follows(before, charter_of(before, keys, quorum, signers), "default")


def test_a_key_counts_once_however_often_it_signs() -> None:
    charter = charter_of(None, (0, 1), 2, (0,))
    text = charter.signatures[0]
    assert sign_charter(charter, SIGNERS[0]).signatures == (text,)
    doubled = dataclasses.replace(charter, signatures=(text, text))
    assert charter_signers(doubled, doubled) == {SIGNERS[0].key_id}


def test_a_signature_counts_for_no_other_charter() -> None:
    signed = charter_of(None, (0, 1), 2, (0, 1))
    for changed in (
        dataclasses.replace(signed, quorum=1),
        dataclasses.replace(signed, number=2),
        dataclasses.replace(signed, namespace="other"),
        dataclasses.replace(signed, keys=(signed.keys[0],)),
        dataclasses.replace(signed, prev_hash=digest_of(b"x")),
    ):
        assert charter_signers(changed, signed) == frozenset()


@pytest.mark.parametrize(
    "change",
    [{"number": 3}, {"prev_hash": digest_of(b"x")}, {"namespace": "other"}],
)
def test_a_charter_stands_in_one_place(change: dict[str, Any]) -> None:
    second = charter_of(FIRST, (3,), 1, (0, 1, 3))
    with pytest.raises(IntegrityError, match="does not follow"):
        check_follows(FIRST, dataclasses.replace(second, **change), "default")
    with pytest.raises(IntegrityError, match="does not follow"):
        check_follows(None, second, "default")


def test_members_sign_copies_that_are_put_together() -> None:
    draft = charter_of(None, (0, 1, 2), 2, ())
    copies = tuple(sign_charter(draft, SIGNERS[number]) for number in (0, 2, 2))
    assert charter_signers(merge_signatures(copies), draft) == {
        SIGNERS[0].key_id,
        SIGNERS[2].key_id,
    }
    with pytest.raises(RegistryUsageError, match="different charters"):
        merge_signatures((draft, charter_of(None, (0, 1), 2, ())))
    many = tuple(
        dataclasses.replace(draft, signatures=(f"{number}",)) for number in range(SIGNATURES_MAX)
    )
    assert len(merge_signatures(many).signatures) == SIGNATURES_MAX
    with pytest.raises(RegistryUsageError, match="more than"):
        merge_signatures((*many, copies[0]))


@pytest.mark.parametrize(("keys", "quorum"), [(0, 1), (1, 0), (1, 2), (KEYS_MAX + 1, 1)])
def test_a_quorum_that_keys_cannot_reach_is_refused(keys: int, quorum: int) -> None:
    texts = tuple(public_text(bytes([number]) * 32) for number in range(keys))
    with pytest.raises(RegistryUsageError):
        next_charter("default", None, texts, quorum)


@pytest.mark.parametrize(
    "change",
    [
        {"keys": ()},
        {"keys": (KEYS[0], KEYS[0])},
        {"keys": tuple(sorted(KEYS[:2], reverse=True)), "quorum": 1},
        {"keys": ("ed25519:AAAA",), "quorum": 1},
        {"quorum": 4},
        {"number": 0},
    ],
)
def test_what_is_no_charter_is_refused(change: dict[str, Any]) -> None:
    content = dataclasses.replace(FIRST, **change).to_bytes()
    with pytest.raises(IntegrityError):
        Charter.from_bytes(content, "x")


@pytest.fixture
def charters(backend: Backend) -> Charters:
    return Charters(backend, "default", None)


def test_charters_are_put_in_force_one_after_the_other(charters: Charters) -> None:
    second = charter_of(FIRST, (3, 4), 1, (0, 1, 3))
    with pytest.raises(IntegrityError):
        charters.enact(second)
    charters.enact(FIRST)
    charters.enact(second)
    assert charters.read() == (FIRST, second)
    with pytest.raises(IntegrityError, match="does not follow"):
        charters.enact(FIRST)


def test_of_two_charters_at_once_one_is_put_in_force(
    backend: Backend, interrupted: Any, charters: Charters
) -> None:
    rival = charter_of(None, (0,), 1, (0,))
    slow = Charters(interrupted, "default", None)
    real = backend.create

    def create(*arguments: Any, **more: Any) -> Any:
        charters.enact(rival)
        return real(*arguments, **more)

    interrupted.create = create
    with pytest.raises(RegistryConflictError, match="draft again"):
        slow.enact(FIRST)
    assert charters.read() == (rival,)


def test_a_charter_that_was_slipped_into_the_store_makes_nobody_count(
    backend: Backend, charters: Charters
) -> None:
    charters.enact(FIRST)
    forged = charter_of(FIRST, (5,), 1, (5,))
    backend.create("registry/default/charters/000000000002", forged.to_bytes())
    with pytest.raises(IntegrityError, match="trust no signature"):
        charters.publisher_key(SIGNERS[5].key_id)


def test_who_names_a_charter_notices_that_it_is_gone(backend: Backend, charters: Charters) -> None:
    second = charter_of(FIRST, (3, 4), 1, (0, 1, 3))
    charters.enact(FIRST)
    charters.enact(second)
    for pinned in (FIRST.hash, second.hash):
        assert Charters(backend, "default", pinned).read() == (FIRST, second)
    backend.delete("registry/default/charters/000000000002")
    careful = Charters(backend, "default", second.hash)
    with pytest.raises(IntegrityError, match="is not among"):
        careful.publisher_key(SIGNERS[0].key_id)
    backend.delete("registry/default/charters/000000000001")
    with pytest.raises(IntegrityError, match="is not among"):
        careful.read()
    assert charters.read() == ()


def test_only_keys_of_the_newest_charter_vouch_for_versions(
    desk: Any, tensors: Callable[[int], Any], tmp_path: Path
) -> None:
    keyring = Keyring(desk.backend)
    for number in (0, 5):
        keyring.enroll(f"p{number}", Role.PUBLISHER, public_bytes(PRIVATE[number]))
    careful = Registry(desk.backend, desk.storage, signatures_min=1)
    for version, signer in ((1, 0), (2, 5), (3, 3)):
        desk.registry.register("digits", tensors(version), actor="ann", signer=SIGNERS[signer])

    def counts(version: int) -> bool:
        try:
            careful.load(Reference("digits", version=version))
        except IntegrityError:
            return False
        return True

    assert [counts(n) for n in (1, 2, 3)] == [True, True, False], "enrolled publishers"
    charters = Charters(desk.backend, "default", None)
    charters.enact(FIRST)
    assert [counts(n) for n in (1, 2, 3)] == [True, False, False], "keys of the charter"
    charters.enact(charter_of(FIRST, (0, 3), 1, (0, 1, 3)))
    assert [counts(n) for n in (1, 2, 3)] == [True, False, True], "of the newest one"
    keyring.revoke("p0", "lost")
    assert [counts(n) for n in (1, 2, 3)] == [False, False, True], "and not revoked"
    pinned = Registry(desk.backend, desk.storage, signatures_min=1, charter=digest_of(b"another"))
    with pytest.raises(IntegrityError, match="is not among"):
        pinned.load(Reference("digits", version=3))


def test_another_namespace_has_its_own_charter(backend: Backend, charters: Charters) -> None:
    charters.enact(FIRST)
    other = Charters(backend, "other", None)
    assert other.read() == ()
    with pytest.raises(IntegrityError, match="does not follow"):
        other.enact(FIRST)
