"""Committed rounds come out bit for bit when they are computed again; what does not is named."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from training.audited import KEEPING, Audited, lie
from training.leadership import Lead
from training.toy_job import toy_job

from pliska.coordinator.audit.replay import Replay, Replayed, Run
from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.wire.job import Job, parse_job

WORKERS = ("w1", "w2", "w3", "w4", "w5")
SETTINGS = {
    "count": 5,
    "workers": 5,
    "quorum": 5,
    "rule": 'name = "multi-krum", f = 1',
    "more": KEEPING,
}


async def trained(lead: Lead, *, rounds: int = 5) -> Audited:
    job = Audited(lead)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running():
        for number in range(rounds):
            lies = {"w5": lie(job.computation.dimension, number)}
            await job.round(*WORKERS, lies=lies)
        await job.settled()
    return job


@pytest.fixture
def job(lead_toy: Callable[..., Lead]) -> Audited:
    return asyncio.run(trained(lead_toy(**SETTINGS)))


def replaying(job: Audited, settings: Job | None = None) -> Replay:
    return Replay(settings or job.lead.job, job.lead.storage)


def replayed(job: Audited, settings: Job | None = None) -> list[Replayed]:
    replay = replaying(job, settings)
    return [each for run in replay.runs(job.commits()) for each in replay.rounds(run)]


def differences(job: Audited, settings: Job | None = None) -> str:
    return "; ".join(text for each in replayed(job, settings) for text in each.differences)


def payload_of(job: Audited, worker: str, number: int) -> str:
    record = job.commits()[number - 1].record
    (root,) = [each.payload_root for each in record.contributions if each.worker == worker]
    return f"jobs/toy/payloads/{number:012d}/{root.hex()}.payload"


def test_every_kept_round_comes_out_equal_and_alone_too(job: Audited) -> None:
    rounds = replayed(job)
    assert [each.commit.record.round for each in rounds] == [1, 2, 3, 4, 5]
    assert [each.gradients for each in rounds] == [5] * 5
    assert all(each.differences == () for each in rounds)
    commits = job.commits()
    (third,) = replaying(job).rounds(Run(commits[1], [commits[2]]))
    assert third.differences == ()


def test_gap_in_what_is_kept_parts_the_runs_and_is_named_when_asked_for(job: Audited) -> None:
    (job.files / payload_of(job, "w2", 3)).unlink()
    runs = replaying(job).runs(job.commits())
    assert [[each.record.round for each in run.commits] for run in runs] == [[1, 2], [4, 5]]
    assert runs[1].previous == job.commits()[2]
    commits = job.commits()
    with pytest.raises(NotKeptError, match=r"audit\.keep_rounds"):
        list(replaying(job).rounds(Run(commits[1], [commits[2]])))


def test_altered_gradient_is_refused_and_not_replayed(job: Audited) -> None:
    path = job.files / payload_of(job, "w1", 2)
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStateError, match="does not have this root"):
        replayed(job)


def reissued(job: Audited, number: int, **changes: object) -> Run:
    """Sign a record again as a coordinator would that lies about its round."""
    commits = job.commits()
    commit = commits[number - 1]
    entry = job.log.read(commit.record.version, commit.digest)
    forged = Commit.sign(replace(commit.record, **changes), job.lead.identity.signer)  # type: ignore[arg-type]
    job.log.write(forged, entry.aggregate, entry.annex)
    return Run(commits[number - 2], [forged])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"rule": "coordinate-median"}, "aggregate"),
        ({"aggregate_digest": bytes(32)}, "aggregate"),
        ({"parameters_digest": bytes(32)}, "parameters after"),
        ({"state_digest": bytes(32)}, "training state after"),
        ({"base_digest": bytes(32)}, "parameters before"),
        ({"learning_rate": 0.5}, "parameters after"),
    ],
)
def test_what_does_not_come_out_is_named(
    job: Audited, changes: dict[str, object], what: str
) -> None:
    (found,) = replaying(job).rounds(reissued(job, 3, **changes))
    assert any(text.startswith(f"{what}: ") for text in found.differences), found.differences


def test_false_verdict_on_a_worker_is_named(job: Audited) -> None:
    record = job.commits()[2].record
    liar = next(each for each in record.contributions if each.worker == "w5")
    others = tuple(each for each in record.contributions if each.worker != "w5")
    (found,) = replaying(job).rounds(
        reissued(job, 3, contributions=(*others, replace(liar, score=1.0, weight=0.1)))
    )
    (difference,) = found.differences
    assert difference.startswith("verdict on w5: outvoted, 0, but the record has outvoted, 0.1")
    (found,) = replaying(job).rounds(
        reissued(job, 3, contributions=(*others, replace(liar, score=1.0)))
    )
    (difference,) = found.differences
    assert difference.startswith("score of w5: ")


def test_another_optimizer_than_was_run_comes_out_different(job: Audited) -> None:
    slower = toy_job(**SETTINGS, soft_deadline_s=1.0)  # type: ignore[arg-type]
    assert differences(job, slower) == ""  # deadlines are no part of the numbers
    text = slower.text.replace("lr = 0.1", "lr = 0.05, nesterov = true")
    assert "parameters after" in differences(job, parse_job(text, "toy.toml"))


@pytest.mark.parametrize(
    "rule", ["trimmed-mean", "centered-clipping", "geometric-median", "bulyan"]
)
def test_other_rules_and_what_they_remember_replay_too(
    lead_toy: Callable[..., Lead], rule: str
) -> None:
    f = 0 if rule == "bulyan" else 1
    lead = lead_toy(**{**SETTINGS, "count": 3, "rule": f'name = "{rule}", f = {f}'})
    job = asyncio.run(trained(lead, rounds=3))
    assert [each.differences for each in replayed(job)] == [()] * 3
