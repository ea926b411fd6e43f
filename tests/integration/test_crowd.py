"""A job with hundreds of workers, its leader and the next one in this process.

What a thousand connections cost is for `benchmarks/rounds_crowd.py`.
"""

import json
from pathlib import Path

from training.leadership import Lead
from training.toy_job import toy_job

from pliska.coordinator.client import STATUS_BYTES_MAX
from pliska.locks.backends.base import RECORD_BYTES_MAX

WORKERS = 300


def lead(folder: Path, name: str) -> Lead:
    job = toy_job(workers=WORKERS, quorum=WORKERS, rule='name = "multi-krum", f = 60')
    return Lead(job, folder, f"memory:{folder}", name)


async def test_hundreds_of_workers_make_a_version_and_the_next_leader_goes_on(
    tmp_path: Path,
) -> None:
    workers = [f"w{number:03d}" for number in range(WORKERS)]
    first = lead(tmp_path, "c1")
    first.begin()
    await first.join(*workers)
    async with first.running():
        for number, worker in enumerate(workers):
            await first.push(worker, 1.0 + number / WORKERS)
        await first.committed(1)
    status = first.leading.status()
    assert len(status["workers"]) == WORKERS
    assert len(json.dumps(status)) < STATUS_BYTES_MAX
    tip = first.directory.commit()
    assert tip is not None
    assert len(tip.value) < RECORD_BYTES_MAX / 100
    first.grant.resign()

    second = lead(tmp_path, "c2")
    second.begin()
    after = second.leading.status()
    assert (after["version"], after["digest"]) == (1, status["digest"])
    assert len(second.leading.intake.driver.acceptable().recent.lags()) == WORKERS
    for each in (first, second):
        each.close()
