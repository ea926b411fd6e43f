"""Who may read from a coordinator: a key that is enrolled, and a challenge that is signed."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.refusal import Refusal
from pliska.coordinator.visitors import VISIT_S, VISITORS_MAX, Visitor, Visitors
from pliska.coordinator.wire import PROTOCOL, Hello, ReplyCode, Signer, Visit
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import connect


class Door:
    """Visitors of a coordinator, and two keys that may come."""

    def __init__(self) -> None:
        self.now = 100.0
        self.keyring = Keyring(connect("memory:"))
        counter = itertools.count(1)
        self.visitors = Visitors(
            "toy", self.keyring, lambda: self.now, lambda size: next(counter).to_bytes(size)
        )
        self.worker = self.enroll("w1", Role.WORKER)
        self.coordinator = self.enroll("c2", Role.COORDINATOR)

    def enroll(self, name: str, role: Role) -> Signer:
        key = Ed25519PrivateKey.generate()
        self.keyring.enroll(name, role, public_bytes(key))
        return Signer(key, key_id(public_bytes(key)))

    def message(self, signer: Signer, /, **changes: Any) -> bytes:
        right: dict[str, Any] = {
            "protocol": PROTOCOL,
            "job": "toy",
            "key_id": signer.key_id,
            "nonce": self.visitors.challenge(),
        }
        return signer.sign(Visit(**{**right, **changes})).to_bytes()

    async def refused(self, message: bytes) -> Refusal:
        outcome = await self.visitors.visit(message)
        assert isinstance(outcome, Refusal)
        return outcome

    async def let_in(self, signer: Signer) -> Visitor:
        outcome = await self.visitors.visit(self.message(signer))
        assert isinstance(outcome, Visitor)
        return outcome


@pytest.fixture
def door() -> Door:
    return Door()


async def test_a_visitor_is_known_by_its_token_for_a_while(door: Door) -> None:
    visitor = await door.let_in(door.coordinator)
    assert (visitor.name, visitor.role) == ("c2", Role.COORDINATOR)
    assert door.visitors.with_token(visitor.token) == visitor
    assert door.visitors.with_token("0" * 64) is None
    assert visitor.token not in repr(visitor)
    door.now += VISIT_S
    assert door.visitors.with_token(visitor.token) is None


async def test_workers_are_told_from_coordinators(door: Door) -> None:
    assert (await door.let_in(door.worker)).role is Role.WORKER


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda door: door.message(door.worker, job="other"), ReplyCode.SCHEMA),
        (lambda door: door.message(door.worker, nonce=b"x" * 32), ReplyCode.REPLAY),
        (lambda door: door.message(door.worker, key_id="other"), ReplyCode.BAD_SIG),
        (lambda door: door.message(door.worker)[:-1], ReplyCode.SCHEMA),
        (
            lambda door: door.message(Signer(Ed25519PrivateKey.generate(), "ed25519:nobody")),
            ReplyCode.NOT_MEMBER,
        ),
        (
            lambda door: door.message(
                Signer(Ed25519PrivateKey.generate(), door.worker.key_id)  # not its key
            ),
            ReplyCode.BAD_SIG,
        ),
    ],
)
async def test_who_does_not_prove_an_enrolled_key_is_refused(
    door: Door, change: Callable[[Door], bytes], code: ReplyCode
) -> None:
    assert (await door.refused(change(door))).code is code


async def test_a_visit_cannot_be_made_twice(door: Door) -> None:
    message = door.message(door.worker)
    assert isinstance(await door.visitors.visit(message), Visitor)
    assert (await door.refused(message)).code is ReplyCode.REPLAY


async def test_a_hello_of_a_worker_is_no_visit(door: Door) -> None:
    hello = Hello(
        protocol=PROTOCOL,
        job="toy",
        worker="w1",
        incarnation=bytes(16),
        key_id=door.worker.key_id,
        nonce=door.visitors.challenge(),
    )
    refusal = await door.refused(door.worker.sign(hello).to_bytes())
    assert refusal.code is ReplyCode.SCHEMA


async def test_a_revoked_key_gets_no_further_token(door: Door) -> None:
    door.keyring.revoke("w1", "stolen")
    assert (await door.refused(door.message(door.worker))).code is ReplyCode.KEY_REVOKED


async def test_tokens_are_bounded(door: Door) -> None:
    first = await door.let_in(door.worker)
    for _ in range(VISITORS_MAX - 1):
        await door.let_in(door.worker)
    assert door.visitors.with_token(first.token) is not None
    await door.let_in(door.worker)
    assert door.visitors.with_token(first.token) is None
