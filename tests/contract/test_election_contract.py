"""The safety rules of an election, on every store."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireCancelledError,
    AcquireTimeoutError,
    Backend,
    Candidate,
    ConflictError,
    Create,
    Election,
    GrantLostError,
    LeaderRecord,
    Leadership,
    LockUsageError,
    Revision,
    Session,
    StoreFormatError,
    TransferFailedError,
    candidates,
    current_leader,
    observe_leaders,
    wait_for_leader_change,
)
from pliska.locks.election import CANDIDATE_ID_CHARACTERS_MAX, VALUE_BYTES_MAX

OpenSession = Callable[..., Session]
ANY = Revision(0)


@pytest.fixture
def stand(open_session: OpenSession) -> Callable[[str], Election]:
    """Makes a candidate with a session of its own."""
    return lambda who: Election(open_session(), "job/a", who, f"at {who}".encode())


def wait_for_candidates(backend: Backend, count: int) -> None:
    deadline_s = time.monotonic() + 10
    while len(candidates(backend, "job/a")) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def test_nobody_leads_before_an_election(backend: Backend) -> None:
    assert current_leader(backend, "job/a") is None
    assert candidates(backend, "job/a") == ()
    assert wait_for_leader_change(backend, "job/a", ANY, 0.05) is None


def test_the_leader_is_known_to_observers(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    leadership = stand("c1").campaign()
    leader = current_leader(backend, "job/a")
    assert leader is not None
    assert leader == LeaderRecord(leadership.epoch, "c1", b"at c1", leader.revision)
    assert leadership.token == leadership.epoch
    assert leadership.held
    assert wait_for_leader_change(backend, "job/a", ANY, 5) == leader
    assert wait_for_leader_change(backend, "job/a", leader.revision, 0.05) is None


@pytest.mark.replicated
def test_resigning_gives_the_next_in_order_the_lead_at_once(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    first = stand("c1").campaign()
    with ThreadPoolExecutor(2) as pool:
        second = pool.submit(stand("c2").campaign)
        wait_for_candidates(backend, 2)
        third = pool.submit(stand("c3").campaign)
        wait_for_candidates(backend, 3)
        assert candidates(backend, "job/a") == tuple(
            Candidate(who, f"at {who}".encode()) for who in ("c1", "c2", "c3")
        )
        started_s = time.monotonic()
        assert first.resign()
        assert second.result(timeout=5).held
        assert time.monotonic() - started_s < 1
        assert not third.done()
        second.result().resign()
        assert third.result(timeout=5).held
    epochs = [first.epoch, second.result().epoch, third.result().epoch]
    assert epochs == sorted(set(epochs))
    assert not first.resign()


def test_after_the_last_leader_nobody_leads_but_the_epoch_is_remembered(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    first = stand("c1").campaign()
    first.resign()
    assert current_leader(backend, "job/a") is None
    remembered = wait_for_leader_change(backend, "job/a", ANY, 5)
    assert remembered is not None
    assert remembered.epoch == first.epoch
    assert stand("c2").campaign().epoch > first.epoch


@pytest.mark.replicated
def test_observers_see_epochs_in_order(backend: Backend, stand: Callable[[str], Election]) -> None:
    seen: list[int] = []

    def observe() -> None:
        after = ANY
        while len(seen) < 5:
            leader = wait_for_leader_change(backend, "job/a", after, 20)
            assert leader is not None
            after = leader.revision
            seen.append(leader.epoch)
            observed.set()

    observed = threading.Event()
    thread = threading.Thread(target=observe)
    thread.start()
    candidate, epochs = stand("c1"), []
    for _ in range(5):
        observed.clear()
        leadership = candidate.campaign(timeout_s=10)
        epochs.append(leadership.epoch)
        assert observed.wait(10)
        leadership.resign()
    thread.join(10)
    assert seen == epochs == sorted(set(epochs))


def test_a_leader_whose_session_ends_is_replaced(
    backend: Backend, open_session: OpenSession, stand: Callable[[str], Election]
) -> None:
    session = open_session(0.5)
    old = Election(session, "job/a", "old", b"").campaign()
    told = threading.Event()
    old.on_lost(told.set)
    with ThreadPoolExecutor(1) as pool:
        new = pool.submit(stand("new").campaign)
        wait_for_candidates(backend, 2)
        session.backend_session.close(5)
        assert new.result(timeout=5).epoch > old.epoch
    assert told.wait(5)
    assert not old.held
    with pytest.raises(GrantLostError):
        old.check()


@pytest.mark.replicated
def test_the_old_leader_cannot_write_after_the_new_one_leads(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    old = stand("old").campaign()
    backend.transact([old.guard()], [Create("rounds/1", b"")])
    backend.delete(old.guard().key)
    new = stand("new").campaign(timeout_s=5)
    with pytest.raises(ConflictError):
        backend.transact([old.guard()], [Create("rounds/2", b"")])
    backend.transact([new.guard()], [Create("rounds/3", b"")])


def test_a_campaign_ends_in_time_or_when_called_off(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    stand("c1").campaign()
    with pytest.raises(AcquireTimeoutError):
        stand("c2").campaign(timeout_s=0.1)
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        campaign = pool.submit(stand("c3").campaign, None, cancelled)
        wait_for_candidates(backend, 2)
        cancelled.set()
        with pytest.raises(AcquireCancelledError):
            campaign.result(timeout=5)
    assert [c.candidate_id for c in candidates(backend, "job/a")] == ["c1"]


def test_a_candidacy_removed_while_waiting_does_not_lead(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    first = stand("c1").campaign()
    with ThreadPoolExecutor(1) as pool:
        campaign = pool.submit(stand("c2").campaign)
        wait_for_candidates(backend, 2)
        backend.delete(backend.list("elections/job/a/contenders").records[1].key)
        first.resign()
        with pytest.raises(GrantLostError):
            campaign.result(timeout=5)
    assert current_leader(backend, "job/a") is None


def test_an_epoch_behind_the_recorded_one_does_not_lead(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    leadership = stand("c1").campaign()
    leadership.resign()
    record = backend.get("elections/job/a/leader")
    assert record is not None
    future = record.value.replace(b"%d" % leadership.epoch, b"%d" % 10**12)
    backend.update(record.key, future, record.modified)
    with pytest.raises(StoreFormatError, match="old copy"):
        stand("c2").campaign(timeout_s=5)
    assert candidates(backend, "job/a") == ()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"epoch": 1}',
        b'{"epoch": "1", "candidate_id": "a"}',
        b"[" * 9999,
    ],
)
def test_a_strange_leader_record_is_an_error_that_names_it(backend: Backend, value: bytes) -> None:
    backend.create("elections/job/a/leader", value)
    with pytest.raises(StoreFormatError, match="elections/job/a/leader"):
        current_leader(backend, "job/a")


def test_ids_and_values_at_the_limit_are_taken_and_beyond_it_refused(
    open_session: OpenSession, backend: Backend
) -> None:
    session, who = open_session(), "c" * CANDIDATE_ID_CHARACTERS_MAX
    Election(session, "job/a", who, bytes(VALUE_BYTES_MAX)).campaign()
    leader = current_leader(backend, "job/a")
    assert leader is not None
    assert (leader.candidate_id, len(leader.value)) == (who, VALUE_BYTES_MAX)
    for bad_id, value in ((who + "c", b""), ("", b""), ("c", bytes(VALUE_BYTES_MAX + 1))):
        with pytest.raises(LockUsageError):
            Election(session, "job/a", bad_id, value)


def test_an_observer_is_told_of_each_leader_until_it_is_called_off(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    cancelled, seen, news = threading.Event(), [], threading.Semaphore(0)

    def observe() -> None:
        for leader in observe_leaders(backend, "job/a", cancelled):
            seen.append(leader.candidate_id)
            news.release()

    with ThreadPoolExecutor(1) as pool:
        observing = pool.submit(observe)
        for who in ("c1", "c2", "c3"):
            leadership = stand(who).campaign(timeout_s=20)
            assert news.acquire(timeout=20)
            leadership.resign()
        cancelled.set()
        observing.result(timeout=10)
    assert seen == ["c1", "c2", "c3"]


def test_leadership_goes_to_the_named_successor_past_those_who_came_before(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    first = stand("c1").campaign()
    with ThreadPoolExecutor(3) as pool:
        futures = {}
        for count, who in enumerate(("c2", "c3", "c4"), start=2):
            futures[who] = pool.submit(stand(who).campaign, 60)
            wait_for_candidates(backend, count)
        leader = first.transfer("c4", timeout_s=20)
        assert leader.candidate_id == "c4"
        assert not first.held
        fourth = futures["c4"].result(timeout=20)
        assert fourth.epoch == leader.epoch > first.epoch
        wait_for_candidates(backend, 3)
        assert not futures["c2"].done()
        assert not futures["c3"].done()
        next_one = candidates(backend, "job/a")[1].candidate_id
        last_one = ({"c2", "c3"} - {next_one}).pop()
        fourth.resign()
        second = futures[next_one].result(timeout=20)
        assert second.epoch > fourth.epoch
        second.transfer(last_one, timeout_s=20)
        assert futures[last_one].result(timeout=20).epoch > second.epoch


def test_a_transfer_to_somebody_who_does_not_stand_changes_nothing(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    leadership = stand("c1").campaign()
    for who in ("c9", "c1"):
        with pytest.raises(TransferFailedError, match="nothing has changed"):
            leadership.transfer(who, timeout_s=1)
        assert leadership.held
    leader = current_leader(backend, "job/a")
    assert leader is not None
    assert leader.candidate_id == "c1"


def test_a_transfer_to_a_candidate_that_never_leads_reports_failure(
    backend: Backend, open_session: OpenSession, stand: Callable[[str], Election]
) -> None:
    leadership = stand("c1").campaign()
    frozen = open_session()
    directory = leadership.guard().key.rpartition("/")[0]
    value = backend.list(directory).records[0].value.replace(b"c1", b"c2")
    backend.create(f"{directory}/frozen", value, frozen.backend_session)
    with pytest.raises(TransferFailedError, match="we have resigned"):
        leadership.transfer("c2", timeout_s=0.3)
    assert not leadership.held
    assert current_leader(backend, "job/a") is None


def test_who_lost_leadership_cannot_transfer_it(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    leadership = stand("c1").campaign()
    backend.delete(leadership.guard().key)
    assert leadership.lost.wait(10)
    with pytest.raises(GrantLostError):
        leadership.transfer("c2", timeout_s=1)


def test_a_candidate_stands_again_only_when_its_work_and_its_callbacks_have_ended(
    backend: Backend, stand: Callable[[str], Election]
) -> None:
    log: list[str] = []
    cancelled, has_led_twice = threading.Event(), threading.Event()

    def clean_up() -> None:
        time.sleep(0.2)
        log.append("cleaned up")

    def work(leadership: Leadership) -> None:
        log.append("leads")
        if log.count("leads") == 2:
            has_led_twice.set()
            return
        leadership.on_lost(clean_up)
        backend.delete(leadership.guard().key)
        assert leadership.lost.wait(10)
        log.append("stopped")

    with ThreadPoolExecutor(1) as pool:
        leading = pool.submit(stand("c1").lead, work, cancelled)
        assert has_led_twice.wait(20)
        cancelled.set()
        leading.result(timeout=10)
    assert log[:4] == ["leads", "stopped", "cleaned up", "leads"]
    assert candidates(backend, "job/a") == ()
