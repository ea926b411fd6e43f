"""What the store says about a job."""

from dataclasses import replace

import pytest
from training.toy_job import toy_job

from pliska.coordinator.directory import JobDirectory, Sighting
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError, JobConflictError
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import parse_job
from pliska.locks import ConflictError, Election, Revision, Session, StoreFormatError, connect


@pytest.fixture
def directory() -> JobDirectory:
    return JobDirectory.at("memory:", "toy")


def endpoint(name: str) -> Endpoint:
    return Endpoint(name, "127.0.0.1", 4000, "certificate", "ed25519:key")


def test_job_is_published_once_and_read_as_it_was_written(directory: JobDirectory) -> None:
    assert directory.definition() is None
    job = toy_job()
    directory.publish(job)
    directory.publish(job)
    assert directory.definition() == replace(job, source="jobs/toy")


def test_another_job_of_the_same_name_is_refused(directory: JobDirectory) -> None:
    directory.publish(toy_job())
    with pytest.raises(JobConflictError, match="give this one another name"):
        directory.publish(toy_job(count=9))


def test_comments_and_file_names_do_not_make_another_job(directory: JobDirectory) -> None:
    directory.publish(toy_job())
    directory.publish(parse_job(f"# a comment\n{toy_job().text}", "elsewhere.toml"))
    assert directory.definition() == replace(toy_job(), source="jobs/toy")


def test_text_that_is_no_job_is_refused(directory: JobDirectory) -> None:
    directory.backend.create("jobs/toy", b"\xff nonsense")
    with pytest.raises(JobFileError):
        directory.definition()


def test_leader_and_standbys_are_known_with_their_addresses(directory: JobDirectory) -> None:
    assert directory.leader() is None
    assert directory.coordinators() == ()
    with Session.open(directory.backend) as first, Session.open(directory.backend) as second:
        leading = Election(first, directory.election, "c1", endpoint("c1").to_bytes()).campaign()
        standby = Election(second, directory.election, "c2", endpoint("c2").to_bytes())
        leader = directory.leader()
        assert leader is not None
        assert (leader.epoch, leader.endpoint) == (leading.epoch, endpoint("c1"))
        leading.resign()
        successor = standby.campaign(timeout_s=5.0)
        leader = directory.leader()
        assert leader is not None
        assert leader.epoch == successor.epoch > leading.epoch
        assert directory.coordinators() == (endpoint("c2"),)
    assert directory.leader() is None


def test_sighting_names_the_leader_and_what_is_not_ours_is_an_error_of_the_store(
    directory: JobDirectory,
) -> None:
    assert directory.sighting() == Sighting(None, 0, Revision(0))
    with Session.open(directory.backend) as session:
        Election(session, directory.election, "c1", endpoint("c1").to_bytes()).campaign()
        assert directory.sighting() == Sighting(directory.leader(), 0, Revision(0))
        directory.backend.create(directory.commit_key, b"no tip")
        with pytest.raises(StoreFormatError, match="'toy': no commit in the store"):
            directory.sighting()


def test_all_jobs_of_a_store_are_found() -> None:
    backend = connect("memory:")
    assert JobDirectory.all(backend) == ()
    JobDirectory(backend, "toy").publish(toy_job())
    assert [each.job for each in JobDirectory.all(backend)] == ["toy"]


def test_version_is_zero_before_the_first_commit_and_nonsense_is_damage(
    directory: JobDirectory,
) -> None:
    assert directory.committed_version() == 0
    directory.backend.create(directory.commit_key, b"nonsense")
    with pytest.raises(DamagedStateError):
        directory.committed_version()


def test_mode_is_the_jobs_until_it_is_switched(directory: JobDirectory) -> None:
    job = toy_job(more='[mode]\nstart = "hybrid"')
    assert directory.mode(job) == ModeSetting(Mode.HYBRID)
    asked = directory.switch_mode(job, Mode.ASYNCHRONOUS, "ann: slow disks")
    assert directory.mode(job) == asked == ModeSetting(Mode.ASYNCHRONOUS, 1, "ann: slow disks")


def test_mode_that_stands_already_is_not_switched_again(directory: JobDirectory) -> None:
    job = toy_job()
    assert directory.switch_mode(job, Mode.SYNCHRONOUS, "ann").mode_epoch == 0
    directory.switch_mode(job, Mode.HYBRID, "ann")
    assert directory.switch_mode(job, Mode.HYBRID, "bob").reason == "ann"


def test_of_two_who_switch_at_once_one_is_told(
    directory: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = toy_job()
    directory.switch_mode(job, Mode.HYBRID, "ann")
    stale = directory.backend.get(directory.mode_key)
    directory.switch_mode(job, Mode.SYNCHRONOUS, "bob")
    monkeypatch.setattr(directory.backend, "get", lambda _key: stale)
    with pytest.raises(ConflictError):
        directory.switch_mode(job, Mode.ASYNCHRONOUS, "cay")


def test_mode_that_cannot_be_read_is_an_error_and_never_a_guess(directory: JobDirectory) -> None:
    directory.backend.create(directory.mode_key, b"?")
    with pytest.raises(DamagedStateError, match="pliska job mode"):
        directory.mode(toy_job())
