"""Moving the tip in the store: at most once, and only by the leader."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import new_private_key
from pliska.locks import (
    Backend,
    Change,
    Check,
    ConflictError,
    Election,
    GrantLostError,
    Leadership,
    OutcomeUnknownError,
    Revision,
    Session,
    StoreUnavailableError,
    connect,
)

SIGNER = Signer(new_private_key(), "ed25519:leader")


@dataclass
class Troubled:
    """A store that fails in a given way for each of the next transactions, then works."""

    inner: Backend
    troubles: list[Callable[[Callable[[], Revision]], Revision]] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def transact(
        self, checks: Sequence[Check], changes: Sequence[Change], timeout_s: float = 10.0
    ) -> Revision:
        def work() -> Revision:
            return self.inner.transact(checks, changes, timeout_s)

        return self.troubles.pop(0)(work) if self.troubles else work()


def answer_lost(work: Callable[[], Revision]) -> Revision:
    work()
    raise OutcomeUnknownError("the answer was lost")


def never_arrived(work: Callable[[], Revision]) -> Revision:
    raise StoreUnavailableError(f"no connection for {work}")


@dataclass
class Site:
    """Two commits of one job that follow each other, and a store with an election."""

    backend: Troubled
    directory: JobDirectory
    commits: list[Commit]

    def leadership(self, session: Session, name: str = "c1") -> Leadership:
        return Election(session, self.directory.election, name).campaign(timeout_s=5.0)

    @property
    def version(self) -> int:
        return self.directory.committed_version()


@pytest.fixture
def site(lead: Callable[..., object], tiny_job: Callable[[], Job], tmp_path: Path) -> Site:
    backend = Troubled(connect("memory:"))
    leader = lead(tiny_job(), LocalStorage(tmp_path))
    commits = [leader.run_round() for _ in range(2)]
    return Site(backend, JobDirectory(backend, tiny_job().name), commits)


@pytest.fixture
def session(site: Site) -> Iterator[Session]:
    with Session.open(site.backend, 5.0) as session:
        yield session


def test_commits_replace_each_other_in_order(site: Site, session: Session) -> None:
    committer = Committer(site.directory, site.leadership(session), None, SIGNER)
    assert site.version == 0
    for version in (1, 2):
        committer.commit(site.commits[version - 1])
        assert site.version == version


def test_next_leader_goes_on_from_the_record_that_it_read(site: Site, session: Session) -> None:
    Committer(site.directory, site.leadership(session), None, SIGNER).commit(site.commits[0])
    session.close()
    with Session.open(site.backend, 5.0) as another:
        leadership = site.leadership(another, "c2")
        Committer(site.directory, leadership, site.directory.commit(), SIGNER).commit(
            site.commits[1]
        )
    assert site.version == 2


def test_deposed_leader_cannot_commit(site: Site, session: Session) -> None:
    committer = Committer(site.directory, site.leadership(session), None, SIGNER)
    session.close()
    with pytest.raises(GrantLostError):
        committer.commit(site.commits[0])
    assert site.version == 0


def test_leader_that_does_not_know_it_was_deposed_is_refused_by_the_store(
    site: Site, session: Session
) -> None:
    leadership = site.leadership(session)
    committer = Committer(site.directory, leadership, None, SIGNER)
    guard = leadership.guard()
    site.backend.inner.delete(guard.key)  # as when the store ends its session
    assert leadership.held
    with pytest.raises(GrantLostError, match="version 1 was not committed"):
        committer.commit(site.commits[0])
    assert site.version == 0


def test_record_that_somebody_else_moved_is_left_alone(site: Site, session: Session) -> None:
    leadership = site.leadership(session)
    Committer(site.directory, leadership, None, SIGNER).commit(site.commits[1])
    with pytest.raises(GrantLostError):
        Committer(site.directory, leadership, None, SIGNER).commit(site.commits[0])
    assert site.version == 2


@pytest.mark.parametrize("trouble", [answer_lost, never_arrived])
def test_store_that_falls_silent_is_asked_again(
    site: Site, session: Session, trouble: Callable[[Callable[[], Revision]], Revision]
) -> None:
    committer = Committer(site.directory, site.leadership(session), None, SIGNER)
    site.backend.troubles = [trouble, never_arrived, trouble]
    committer.commit(site.commits[0])
    assert site.version == 1
    committer.commit(site.commits[1])
    assert site.version == 2


def test_silent_store_is_given_up_with_the_leadership(site: Site) -> None:
    session = Session.open(site.backend, 5.0)
    committer = Committer(site.directory, site.leadership(session), None, SIGNER)
    site.backend.troubles = [never_arrived] * 1000
    threading.Timer(0.2, session.close).start()
    with pytest.raises((GrantLostError, ConflictError)):
        committer.commit(site.commits[0])
    assert site.version == 0
