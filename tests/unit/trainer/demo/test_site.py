"""Everything that a demonstration makes lies in one directory that was empty before."""

import stat
from contextlib import closing
from pathlib import Path

import pytest

from pliska.discovery import Keyring, Role, key_id, load_private_key, public_bytes
from pliska.locks import connect
from pliska.trainer.demo.errors import DemoUsageError
from pliska.trainer.demo.jobs import demo_jobs
from pliska.trainer.demo.options import DemoOptions
from pliska.trainer.demo.site import Site


def test_directory_is_made_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Site.at(Path("new/demo")).directory == tmp_path / "new" / "demo"
    assert (tmp_path / "new" / "demo").is_dir()


def test_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DemoUsageError, match="is not empty"):
        Site.at(tmp_path)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DemoUsageError, match="cannot be used: Not a directory"):
        Site.at(tmp_path / "file" / "demo")


def test_workers_get_enrolled_keys_that_nobody_else_can_read(tmp_path: Path) -> None:
    site = Site.at(tmp_path / "demo")
    site.enrol_workers(["w1", "w2"])
    with closing(connect(site.store)) as backend:
        enrolled = Keyring(backend).list(Role.WORKER)
    assert [each.name for each in enrolled] == ["w1", "w2"]
    for each in enrolled:
        file = site.key_file(each.name)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert key_id(public_bytes(load_private_key(file))) == each.key_id


def test_job_files_are_the_jobs_texts(tmp_path: Path) -> None:
    site, jobs = Site.at(tmp_path / "demo"), demo_jobs(DemoOptions())
    site.write_jobs(jobs)
    assert [site.job_file(job).read_text() for job in jobs] == [job.text for job in jobs]
    assert len({site.job_file(job) for job in jobs}) == 3
