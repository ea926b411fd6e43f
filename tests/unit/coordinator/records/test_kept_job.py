"""The job file beside the log is the one that was run."""

from pathlib import Path

import pytest
from training.toy_job import toy_job

from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.storage.storage import LocalStorage


@pytest.fixture
def kept(tmp_path: Path) -> KeptJob:
    return KeptJob(LocalStorage(tmp_path), "toy")


def test_job_is_read_back_as_it_was_run(kept: KeptJob) -> None:
    kept.write(toy_job(count=3))
    kept.write(toy_job(count=3))
    assert len(kept.names()) == 1
    assert kept.read().rounds.count == 3
    assert kept.read().text == toy_job(count=3).text


def test_job_that_nobody_kept_is_asked_for(kept: KeptJob) -> None:
    with pytest.raises(NotKeptError, match="--job-file"):
        kept.read()


def test_altered_text_is_refused(kept: KeptJob, tmp_path: Path) -> None:
    kept.write(toy_job())
    (name,) = kept.names()
    (tmp_path / name).write_text(toy_job().text + "# harmless")
    with pytest.raises(DamagedStateError, match="not the one that it is named by"):
        kept.read()
