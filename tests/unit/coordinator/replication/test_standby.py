"""A standby beside a leader that commits by hand: what it keeps, follows, refuses and lacks."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from training.leadership import PATIENCE_S, ArrivingBody
from training.replication_scene import Scene

from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.horizon import raise_horizon
from pliska.coordinator.replication.following import place_of
from pliska.coordinator.replication.probe import leave_mark
from pliska.coordinator.replication.recovery import ORIGIN
from pliska.coordinator.training.training_state import tensor_bytes
from pliska.coordinator.wire import ReplyCode, Signer
from pliska.coordinator.wire.job import parse_job
from pliska.discovery import Role, new_private_key, public_bytes
from pliska.discovery import key_id as id_of


@pytest.fixture
def scene(lead: Any, tiny_job: Any, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(lead, tiny_job(), tmp_path)
    yield made
    made.close()


async def test_an_entry_is_on_disk_before_the_leader_is_told_so(scene: Scene) -> None:
    async with scene.running():
        first, second = scene.round(), scene.round()
        reply = await scene.send(first)
        assert (reply.code, reply.version) == (ReplyCode.ACCEPTED, 1)
        assert scene.archive.log.read(1, first.digest).commit == first
        assert (await scene.send(second)).code is ReplyCode.ACCEPTED
        standing = await scene.standby.standing(scene.leader.epoch, "")
        assert (standing["version"], standing["digest"]) == (2, second.digest.hex())
        assert scene.standby.status()["version"] == 0, "nothing was committed"


async def test_committed_rounds_are_applied_to_a_model_in_memory(scene: Scene) -> None:
    async with scene.running():
        for _ in range(3):
            commit = scene.round()
            assert (await scene.send(commit)).code is ReplyCode.ACCEPTED
            scene.commit(commit)
        await scene.follows(3)
        digest = scene.head.record.parameters_digest  # type: ignore[union-attr]
        parameters = await scene.standby.parameters(digest)
        assert parameters == bytes(tensor_bytes(scene.leader.model.parameters()))
        assert await scene.standby.parameters(bytes(32)) is None
    warm = scene.standby.take_over()
    assert warm is not None
    assert warm.place == place_of(commit)
    assert warm.model.state_digest() == scene.leader.model.state_digest()
    assert scene.sources.asked == []
    assert scene.standby.take_over() is None


async def test_an_entry_of_a_leader_that_was_replaced_is_refused(scene: Scene) -> None:
    async with scene.running():
        stale = scene.round()
        body = scene.body(stale)
        scene.new_leader()
        reply = await scene.standby.receive(ArrivingBody(body))
        assert reply.code is ReplyCode.STALE_EPOCH
        assert scene.on_disk() == []


async def test_a_leader_that_is_replaced_while_it_sends_is_refused(scene: Scene) -> None:
    async with scene.running():
        content = scene.body(scene.round())
        body = ArrivingBody(content, len(content) - 10)
        receiving = asyncio.create_task(scene.standby.receive(body))
        await body.is_waiting.wait()
        scene.new_leader()
        body.arrive()
        assert (await receiving).code is ReplyCode.STALE_EPOCH
        assert scene.on_disk() == []


async def test_an_entry_of_another_coordinator_than_the_leader_is_refused(scene: Scene) -> None:
    key = new_private_key()
    scene.directory.keyring.enroll("other", Role.COORDINATOR, public_bytes(key))
    scene.leader.signer = Signer(key, id_of(public_bytes(key)))
    async with scene.running():
        assert (await scene.send(scene.round())).code is ReplyCode.BAD_SIG
        scene.leader.signer = Signer(new_private_key(), "ed25519:nobody")
        assert (await scene.send(scene.leader.run_round())).code is ReplyCode.SCHEMA
    assert scene.on_disk() == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda body: body[:-4], ReplyCode.SCHEMA),
        (lambda body: body + bytes(4), ReplyCode.SCHEMA),
        (lambda body: body[:-1] + bytes([body[-1] ^ 1]), ReplyCode.DIGEST),
        (lambda body: b"\xff" * 4 + body[4:], ReplyCode.TOO_LARGE),
        (lambda body: body[:9] + b"x" + body[10:], ReplyCode.SCHEMA),
        (lambda body: body[:2], ReplyCode.SCHEMA),
    ],
)
async def test_a_damaged_entry_is_refused_and_nothing_is_kept(
    scene: Scene, change: Callable[[bytes], bytes], code: ReplyCode
) -> None:
    async with scene.running():
        body = scene.body(scene.round())
        assert (await scene.standby.receive(ArrivingBody(change(body)))).code is code
    assert scene.on_disk() == []


async def test_a_standby_that_lags_says_so_and_fetches_what_it_lacks(scene: Scene) -> None:
    scene.sources.archive = Archive(scene.leader_storage, scene.job)
    async with scene.running():
        first, second, third = (scene.round() for _ in range(3))
        reply = await scene.send(third)
        assert (reply.code, reply.reason) == (ReplyCode.BUSY, "lacks what version 3 follows")
        scene.commit(first)
        scene.commit(second)
        await scene.follows(2)
        assert {"head 2", "head 1"} <= set(scene.sources.asked)
        assert (await scene.send(third)).code is ReplyCode.ACCEPTED


async def test_what_a_dead_leader_sent_and_never_committed_makes_room(scene: Scene) -> None:
    async with scene.running():
        first = scene.round()
        await scene.send(first)
        scene.commit(first)
        await scene.follows(1)
        orphan = scene.round("of the dead one")
        assert (await scene.send(orphan)).code is ReplyCode.ACCEPTED
        scene.new_leader()
        standing = await scene.standby.standing(scene.leader.epoch, "")
        assert standing["version"] == 1, "the new leader has not sent version 2"
        second = scene.round("of the new one")
        assert (await scene.send(second)).code is ReplyCode.ACCEPTED
        scene.commit(second)
        await scene.follows(2)
    warm = scene.standby.take_over()
    assert warm is not None
    assert warm.model.state_digest() == second.record.state_digest
    assert scene.on_disk() == [1, 2, 2]


async def test_what_a_dead_leader_sent_and_did_commit_stays(scene: Scene) -> None:
    async with scene.running():
        first, second = scene.round(), scene.round()
        for commit in (first, second):
            await scene.send(commit)
        scene.commit(first)
        scene.commit(second)
        await scene.follows(2)
        assert scene.sources.asked == [], "it has it on its own disk"


async def test_it_keeps_checkpoints_of_its_own_and_clears_up_to_the_horizon(
    lead: Any, tiny_job: Any, tmp_path: Path
) -> None:
    text = tiny_job().text + "checkpoint = { every = 2, keep = 1 }\ndurable = { keep_rounds = 0 }\n"
    scene = Scene(lead, parse_job(text, "tiny.toml"), tmp_path)
    async with scene.running():
        for version in range(1, 5):
            commit = scene.round()
            await scene.send(commit)
            scene.commit(commit)
            await scene.follows(version)
        raise_horizon(scene.directory, scene.leadership, 4)
        scene.spared = [4]
        for version in range(5, 9):
            commit = scene.round()
            await scene.send(commit)
            scene.commit(commit)
            await scene.follows(version)
    # Nobody needs aggregates up to version 4; somebody reads the checkpoint of version 4.
    assert scene.archive.pruner.versions() == [8, 6, 4]
    assert scene.on_disk() == [5, 6, 7, 8]
    scene.close()


async def test_one_that_shares_the_leaders_storage_writes_nothing_there(scene: Scene) -> None:
    probe = leave_mark(scene.leader_storage, "tiny", scene.leader.epoch, b"s" * 32)
    scene.standby = scene.new_standby(scene.leader_storage)
    async with scene.running():
        standing = await scene.standby.standing(scene.leader.epoch, probe)
        assert standing["shares_storage"] is True
        for _ in range(scene.job.checkpoint.every):
            scene.commit(scene.round())
        await scene.follows(scene.job.checkpoint.every)
        assert scene.sources.asked == []
    assert Archive(scene.leader_storage, scene.job).checkpoints.places() == []


async def test_it_says_what_it_lacks_and_goes_on_when_it_comes(scene: Scene) -> None:
    async with scene.running():
        commit = scene.round()
        scene.commit(commit)
        async with asyncio.timeout(PATIENCE_S):
            told = scene.standby.status
            while "is missing" not in told()["reason"]:  # noqa: ASYNC110 - nothing to wait on
                await asyncio.sleep(0.005)
        scene.sources.archive = Archive(scene.leader_storage, scene.job)
        await scene.follows(1)
        assert scene.standby.status()["reason"] == "follows"


async def test_a_restart_goes_on_from_its_disk(scene: Scene) -> None:
    async with scene.running():
        for _ in range(3):
            commit = scene.round()
            await scene.send(commit)
            scene.commit(commit)
        await scene.follows(3)
    scene.standby = scene.new_standby(scene.storage)
    async with scene.running():
        await scene.follows(3)
    warm = scene.standby.take_over()
    assert warm is not None
    assert torch.equal(warm.model.parameters(), scene.leader.model.parameters())
    assert scene.sources.asked == []


async def test_a_job_without_rounds_has_its_first_model_in_memory(scene: Scene) -> None:
    async with scene.running():
        pass
    warm = scene.standby.take_over()
    assert warm is not None
    assert warm.place == ORIGIN
