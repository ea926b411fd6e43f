"""Everything that a liar or a stranger may send to a real coordinator during training.

An enrolled worker, Mallory, trains beside two honest ones and never contributes
a gradient that counts. Each message gets its typed reply, the rounds go on,
`pliska status` counts it, and the last version is bit for bit that of the two
honest workers alone.
"""

import asyncio
import json
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from training.mallory import NAME, OTHER, SECOND_LIFE, Case, Mallory, envelope, hello_of
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator import routes
from pliska.coordinator.client import CoordinatorClient
from pliska.coordinator.wire import (
    CHUNK_BYTES,
    CodecSpec,
    ReplyCode,
    Signer,
)
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.limits import BODY_BYTES_MAX
from pliska.coordinator.wire.tls import client_context
from pliska.discovery import key_id, new_private_key, public_bytes


def headers_that_do_not_fit(mallory: Mallory) -> list[Case]:
    """List well signed headers of which one field is wrong."""
    code = ReplyCode
    assert mallory.base is not None
    epoch, version = mallory.base.epoch, mallory.base.version
    fields: list[tuple[dict[str, Any], ReplyCode]] = [
        ({"job": "another"}, code.SCHEMA),
        ({"epoch": epoch - 1}, code.STALE_EPOCH),
        ({"epoch": epoch + 1}, code.STALE_EPOCH),
        ({"round": version}, code.STALE_ROUND),
        ({"round": version + 2}, code.FUTURE_ROUND),
        ({"mode_epoch": 1}, code.STALE_MODE),
        ({"base_version": version + 1}, code.WRONG_BASE),
        ({"base_digest": OTHER}, code.WRONG_BASE),
        ({"worker": "w1"}, code.OLD_INCARNATION),
        ({"worker": "nobody"}, code.NOT_MEMBER),
        ({"incarnation": SECOND_LIFE}, code.OLD_INCARNATION),
        ({"key_id": "ed25519:" + "0" * 32}, code.BAD_SIG),
        ({"manifest_digest": OTHER}, code.SCHEMA),
        ({"codec": CodecSpec("float16")}, code.SCHEMA),
        ({"codec": CodecSpec("float32", (("scale", "2"),))}, code.SCHEMA),
        ({"payload_len": 4}, code.SCHEMA),
        ({"payload_len": 2**40}, code.TOO_LARGE),
        ({"chunk_len": CHUNK_BYTES // 2}, code.SCHEMA),
        ({"lease": mallory.lease + 1}, code.STALE_LEASE),
        ({"lease": 2**64 - 1}, code.STALE_LEASE),
        ({"payload_root": OTHER}, code.DIGEST),
    ]
    return [
        (str(change), partial(mallory.push_changed, **change), expected)
        for change, expected in fields
    ]


def broken_frames(mallory: Mallory) -> list[Case]:
    """List bodies that are not one well signed message."""
    code, push = ReplyCode, mallory.push
    rng = random.Random(5)
    good, altered_chunk = mallory.frame(), bytearray(mallory.frame())
    altered_chunk[-1] ^= 1
    signed = mallory.signer.sign(mallory.header())
    altered = replace(signed, signature=bytes([signed.signature[0] ^ 1]) + signed.signature[1:])
    forged = Signer(new_private_key(), mallory.signer.key_id).sign(mallory.header())
    hello = mallory.signer.sign(hello_of(mallory.signer, bytes(32)))
    cases: list[Case] = [
        ("an altered signature", lambda: push(envelope(altered)), code.BAD_SIG),
        ("another key's signature", lambda: push(envelope(forged)), code.BAD_SIG),
        ("another kind of message", lambda: push(envelope(hello)), code.SCHEMA),
        ("a cut frame", lambda: push(good[:-1]), code.SCHEMA),
        ("a frame with a tail", lambda: push(mallory.frame(), b"x"), code.SCHEMA),
        ("a cut envelope", lambda: push(good[:100]), code.SCHEMA),
        ("nothing", lambda: push(b""), code.SCHEMA),
        ("an altered chunk", lambda: push(altered_chunk), code.DIGEST),
        ("the same message again", lambda: push(altered_chunk), code.REPLAY),
        ("an oversized envelope", lambda: push(b"\xff" * 4, bytes(64)), code.TOO_LARGE),
        ("an oversized body", lambda: mallory.raw_post(BODY_BYTES_MAX + 1), code.TOO_LARGE),
    ]
    for size in (1, 3, 300, 70_000):
        noise = bytes(2) + rng.randbytes(size)  # a length of the envelope that is within bounds
        cases.append((f"{size} random bytes", partial(push, noise), code.SCHEMA))
    return cases


async def unwelcome_hellos(
    mallory: Mallory,
) -> list[Case]:
    code = ReplyCode
    fresh_key = new_private_key()
    fresh = Signer(fresh_key, key_id(public_bytes(fresh_key)))
    forger = Signer(fresh_key, mallory.signer.key_id)
    revoked = mallory.site.signer("revoked")
    hellos = [
        (await mallory.hello(fresh), code.NOT_MEMBER),
        (await mallory.hello(forger), code.BAD_SIG),
        (await mallory.hello(revoked, worker="revoked"), code.KEY_REVOKED),
        (await mallory.hello(mallory.signer, worker="w1"), code.BAD_SIG),
        (await mallory.hello(mallory.signer, job="another"), code.SCHEMA),
        (await mallory.hello(mallory.signer, nonce=OTHER), code.REPLAY),
        (await mallory.hello(mallory.signer, manifest_digest=OTHER), code.SCHEMA),
        (b"hello", code.SCHEMA),
        (bytes(routes.HELLO_BYTES_MAX + 1), code.TOO_LARGE),
    ]
    return [
        (f"hello {number}", partial(mallory.post, "hello", body), expected)
        for number, (body, expected) in enumerate(hellos)
    ]


def lost_ways(mallory: Mallory) -> list[Case]:
    """List requests for what is not there, or not theirs."""
    code = ReplyCode
    model = routes.job_path("toy", "model")
    return [
        ("no such route", lambda: mallory.call("GET", "/v1/../etc/passwd"), code.SCHEMA),
        ("no such action", lambda: mallory.post("train", b""), code.SCHEMA),
        ("no such method", lambda: mallory.call("DELETE", model), code.SCHEMA),
        ("no token", lambda: mallory.call("GET", model), code.NOT_MEMBER),
        ("a guessed token", lambda: mallory.call("GET", model, token="0" * 64), code.NOT_MEMBER),
        ("a heartbeat of nobody", lambda: mallory.post("heartbeat", b""), code.NOT_MEMBER),
    ]


async def noise(mallory: Mallory) -> None:
    """Send what can get no reply, or loses it, but is counted."""
    frame = mallory.frame()
    head = f"POST {routes.job_path('toy', 'gradients')} HTTP/1.1\r\nhost: x\r\n"
    assert b"SCHEMA" in await mallory.raw(random.Random(6).randbytes(500), b"\r\n\r\n")
    await mallory.raw(b"\xff" * 500, tls=False)
    # A connection that ends within a payload whose header has its slot.
    mallory.got.update({"SCHEMA": 2})
    await mallory.counted()
    reader, writer = await asyncio.open_connection(
        mallory.client.endpoint.host,
        mallory.client.endpoint.port,
        ssl=client_context(mallory.client.endpoint.certificate),
    )
    del reader
    writer.write(f"{head}content-length: {len(frame)}\r\n\r\n".encode() + frame[:-1])
    await writer.drain()
    await mallory.site.status(lambda now: slot_of(now) == "receiving")
    writer.close()
    mallory.got.update({"SCHEMA": 1})
    await mallory.counted()


def slot_of(now: Any) -> str | None:
    (slot,) = [each["slot"] for each in now["workers"] if each["worker"] == NAME]
    return slot if slot is None else str(slot)


async def status_of(site: Site) -> dict[str, Any]:
    """Ask the real command."""
    child = await site.processes.start(
        "status", ["status", "--job", "toy", "--store", site.store, "-o", "json"]
    )
    assert await child.process.wait() == 0
    (job,) = json.loads(child.log.read_text())["jobs"]
    return dict(job)


@pytest.fixture
async def mallory(site: Site) -> Any:
    """Join as the first member; the job has two honest workers beside."""
    # Mallory would be in quarantine before it is through with its lies.
    site.define(toy_job(count=5, quorum=2, more="[reputation]\nquarantine_rounds = 0"))
    await site.coordinator("c1")
    for name in (NAME, "revoked"):
        site.enroll(name)
    site.directory.keyring.revoke("revoked", "lost")
    await site.leads("c1")
    endpoint = site.directory.leader().endpoint
    http = HttpClient(f"{endpoint.host}:{endpoint.port}", client_context(endpoint.certificate))
    async with CoordinatorClient(endpoint, "toy") as client, http:
        yield Mallory(site, client, http)


async def test_bad_input_gets_its_reply_is_counted_and_changes_no_bit(
    site: Site, mallory: Mallory
) -> None:
    code = ReplyCode
    joined = await mallory.join()
    second_hold, last_hold = site.held_worker("w1", 3), site.held_worker("w2", 4)

    await mallory.next_round(joined)  # round 1: its slot stays free until the last message
    await mallory.expect(headers_that_do_not_fit(mallory))
    await mallory.expect(broken_frames(mallory))
    await mallory.expect(await unwelcome_hellos(mallory))
    await mallory.expect(lost_ways(mallory))
    await noise(mallory)
    nan = mallory.frame(mallory.payload(float("nan")))
    await mallory.expect([("NaN", lambda: mallory.push(nan), code.NONFINITE)])

    await mallory.next_round(joined)  # round 2
    infinite = mallory.frame(mallory.payload(float("-inf")))
    await mallory.expect(
        [
            ("a message of the round before", lambda: mallory.push(nan), code.STALE_ROUND),
            ("infinity", lambda: mallory.push(infinite), code.NONFINITE),
        ]
    )

    await mallory.next_round(joined)  # round 3, which waits for w1
    one, two = mallory.frame(mallory.payload(2.0)), mallory.frame(mallory.payload(3.0))
    assert (await mallory.push(one)).code is code.ACCEPTED
    assert (await mallory.push(one)).code is code.DUPLICATE
    await mallory.expect(
        [
            ("a second gradient", lambda: mallory.push(two), code.EQUIVOCATION),
            ("the first one again", lambda: mallory.push(one), code.EQUIVOCATION),
        ]
    )
    second_hold.go_on.set()

    await mallory.next_round(joined)  # round 4, which waits for w2
    hello = await mallory.hello(mallory.signer, incarnation=SECOND_LIFE)
    assert (await mallory.post("hello", hello)).code is code.ACCEPTED
    late = mallory.frame(incarnation=SECOND_LIFE)
    assert (await mallory.push(late)).code is code.BUSY
    await mallory.expect(
        [
            ("the same hello again", lambda: mallory.post("hello", hello), code.REPLAY),
            ("an earlier life", lambda: mallory.push(mallory.frame()), code.OLD_INCARNATION),
        ]
    )
    site.directory.keyring.revoke(NAME, "caught")
    revoked = mallory.frame(incarnation=SECOND_LIFE)
    await mallory.expect(
        [
            ("a revoked key", lambda: mallory.push(revoked), code.KEY_REVOKED),
            ("the member is gone", lambda: mallory.push(revoked), code.NOT_MEMBER),
        ]
    )

    status = await status_of(site)
    assert {name: status["replies"].get(name) for name in mallory.got} == dict(mallory.got)
    assert set(mallory.got) <= set(status["reasons"])
    assert set(mallory.got) == set(ReplyCode) - {
        code.ACCEPTED, code.DUPLICATE, code.BUSY, code.COMMITTED, code.QUARANTINED,
    }  # fmt: skip
    last_hold.go_on.set()
    assert await site.finished() == [5, 5]
    chain = site.chain()
    assert [
        [each.worker for each in record.contributions if each.verdict == "refused"]
        for record in chain
    ] == [[NAME], [NAME], [NAME], [], []]
    counted = [
        {e.worker: e.lease for e in record.contributions if e.is_counted} for record in chain
    ]
    assert [sorted(leases) for leases in counted] == [["w1", "w2"]] * 5
    assert chain[-1].parameters_digest == site.trained_digest(counted)
