"""The snapshot of a job that people and programs see."""

import json
from collections.abc import Callable

from training.leadership import Lead

WORKERS = ("w1", "w2", "w3")


async def test_snapshot_shows_round_workers_and_replies(lead_toy: Callable[..., Lead]) -> None:
    lead = lead_toy()
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running():
        for worker in WORKERS:
            await lead.push(worker, float("nan") if worker == "w3" else 1.0)
        await lead.committed(1)
        await lead.push("w1", round=77)
        await lead.push("w2")
        status = lead.leading.status()
    assert json.loads(json.dumps(status, allow_nan=False)) == status
    assert (status["job"], status["round"], status["rounds"], status["version"]) == ("toy", 2, 8, 1)
    assert status["phase"] == "collecting"
    assert status["reason"] == "collects from 3 workers"
    assert status["rule"] == {"name": "mean", "f": 1}
    assert status["replies"] == {"ACCEPTED": 3, "FUTURE_ROUND": 1, "NONFINITE": 1}
    assert status["reasons"]["FUTURE_ROUND"] == "round 77 has not begun; round 2 collects"
    assert status["model_file"] is None
    mode = status["mode"]
    assert (mode["mode"], mode["mode_epoch"], mode["asked_for"]) == (
        "synchronous",
        0,
        "synchronous",
    )
    assert (mode["soft_deadline_s"], mode["lag_most"], mode["late_share"]) == (60.0, 0, 0.0)
    assert (mode["effective_learning_rate"], mode["effective_batch"]) == (0.1, 16)
    workers = {each["worker"]: each for each in status["workers"]}
    assert workers["w2"]["slot"] == "filled"
    assert workers["w1"]["slot"] is None
    assert sorted(each["lease"] for each in workers.values()) == [1, 3, 4]  # w3's was given back
    assert workers["w3"]["offences"] == 1
    assert "NaN" in workers["w3"]["last_offence"] or "nan" in workers["w3"]["last_offence"]
    assert workers["w3"]["replies"] == {"NONFINITE": 1}
    assert (workers["w3"]["standing"], workers["w3"]["cut_share"]) == ("good", 1.0)
    assert (workers["w1"]["standing"], workers["w1"]["cut_share"]) == ("good", 0.0)
    counts = [(each["kept"], each["outvoted"], each["refused"]) for each in status["workers"]]
    assert counts == [(1, 0, 0), (1, 0, 0), (0, 0, 1)]


async def test_worker_that_left_is_remembered_with_its_conduct(
    lead_toy: Callable[..., Lead],
) -> None:
    lead = lead_toy(quorum=2)
    lead.begin()
    member = await lead.join(*WORKERS)
    async with lead.running():
        for worker in WORKERS:
            await lead.push(worker)
        await lead.committed(1)
        lead.leading.leave(member)
        workers = {each["worker"]: each for each in lead.leading.status()["workers"]}
    assert not workers["w3"]["is_here"]
    assert workers["w3"]["rounds"] == 1
    assert workers["w1"]["is_here"]
