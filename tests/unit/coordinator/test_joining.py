"""How a leader takes workers in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from training.leadership import LIFE, Lead

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.members import Member
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.wire import ReplyCode
from pliska.discovery import new_private_key

DONOR = Endpoint("whoever", "10.0.0.7", 4711, "certificate", "any")


@pytest.fixture
def lead(lead_toy: Callable[..., Lead]) -> Lead:
    lead = lead_toy(workers=1, quorum=1)
    lead.begin()
    return lead


async def refused(lead: Lead, hello: bytes) -> ReplyCode:
    outcome = await lead.leading.joining.hello(hello)
    assert isinstance(outcome, Refusal)
    assert lead.leading.tally.reasons()[outcome.code] == outcome.reason
    return outcome.code


async def test_signed_answer_to_a_challenge_makes_a_member_and_opens_the_round(lead: Lead) -> None:
    member = await lead.leading.joining.hello(lead.hello("w1"))
    assert isinstance(member, Member)
    assert (member.worker, member.incarnation) == ("w1", LIFE)
    assert lead.leading.members.with_token(member.token) == member
    assert lead.leading.status()["phase"] == "collecting"


async def test_manifest_of_the_same_model_is_accepted(lead: Lead) -> None:
    digest = lead.leading.intake.manifest.digest
    outcome = await lead.leading.joining.hello(lead.hello("w1", manifest_digest=digest))
    assert isinstance(outcome, Member)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"job": "other"}, ReplyCode.SCHEMA),
        ({"worker": "w2"}, ReplyCode.BAD_SIG),
        ({"key_id": "another"}, ReplyCode.BAD_SIG),
        ({"nonce": bytes(32)}, ReplyCode.REPLAY),
        ({"manifest_digest": b"x" * 32}, ReplyCode.SCHEMA),
        ({"donor": b"{}"}, ReplyCode.SCHEMA),
        ({"donor": DONOR.to_bytes().replace(b"10.0.0.7", b"h/path?")}, ReplyCode.SCHEMA),
    ],
)
async def test_hello_that_does_not_fit_is_refused(
    lead: Lead, wrong: dict[str, Any], code: ReplyCode
) -> None:
    assert await refused(lead, lead.hello("w1", **wrong)) is code
    assert not lead.leading.members.present()


async def test_a_donor_stands_under_the_name_and_key_that_it_proved(lead: Lead) -> None:
    hello = lead.hello("w1", donor=DONOR.to_bytes())
    member = await lead.leading.joining.hello(hello)
    assert isinstance(member, Member)
    assert member.donor == replace(DONOR, name="w1", key_id=lead.signer("w1").key_id)


async def test_hello_of_a_forger_does_not_use_up_the_challenge(lead: Lead) -> None:
    nonce = lead.leading.joining.challenge()
    right = lead.hello("w1", nonce=nonce)
    true_key = lead.keys["w1"]
    lead.keys["w1"] = new_private_key()
    assert await refused(lead, lead.hello("w1", nonce=nonce)) is ReplyCode.NOT_MEMBER
    lead.keys["w1"] = true_key
    assert isinstance(await lead.leading.joining.hello(right), Member)
    assert await refused(lead, right) is ReplyCode.REPLAY


async def test_random_bytes_are_refused(lead: Lead) -> None:
    assert await refused(lead, b"\x00\xff" * 50) is ReplyCode.SCHEMA
    assert await refused(lead, b"") is ReplyCode.SCHEMA


async def test_revoked_key_cannot_join(lead: Lead) -> None:
    hello = lead.hello("w1")
    lead.directory.keyring.revoke("w1", "lost")
    assert await refused(lead, hello) is ReplyCode.KEY_REVOKED


async def test_full_job_asks_the_next_worker_to_come_again(lead: Lead) -> None:
    room = lead.leading.members.members_max
    await lead.join(*(f"w{number}" for number in range(room)))
    assert await refused(lead, lead.hello("one-more")) is ReplyCode.BUSY
