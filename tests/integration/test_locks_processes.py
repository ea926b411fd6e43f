"""Locks among real processes that are killed, stopped and forked (S1 to S4, S10; E1, E2, E5)."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pliska.locks import (
    Backend,
    Election,
    FencedStore,
    Mutex,
    Session,
    StoreUnavailableError,
    connect,
    current_leader,
)
from services.lock_process import NewProcess


def test_a_killed_holder_frees_its_lock_at_once(backend: Backend, new_process: NewProcess) -> None:
    holder, waiter = new_process(lease_s=30), new_process(lease_s=30)
    first = holder.do("acquire", "m", 10)
    waiter.ask("acquire", "m", 20)
    while len(backend.list("locks/m/contenders").records) < 2:
        time.sleep(0.005)
    killed_s = time.monotonic()
    holder.signal(signal.SIGKILL)
    second = waiter.answer()
    assert second["at"] - killed_s < 0.5
    assert second["token"] > first["token"]


def test_a_try_right_after_a_kill_finds_the_lock_free(
    backend: Backend, new_process: NewProcess
) -> None:
    holder = new_process(lease_s=30)
    holder.do("acquire", "m", 10)
    with Session.open(backend) as session:
        assert Mutex(session, "m").try_acquire() is None
        holder.signal(signal.SIGKILL)
        holder.process.wait()
        grant = Mutex(session, "m").try_acquire()
        assert grant is not None
        assert grant.held


def test_a_killed_leader_is_replaced_at_once(backend: Backend, new_process: NewProcess) -> None:
    leader, standby = new_process(lease_s=30), new_process(lease_s=30)
    first = leader.do("campaign", "job", "c1")
    standby.ask("campaign", "job", "c2")
    while len(backend.list("elections/job/contenders").records) < 2:
        time.sleep(0.005)
    killed_s = time.monotonic()
    leader.signal(signal.SIGKILL)
    second = standby.answer()
    assert second["at"] - killed_s < 0.5
    assert second["epoch"] > first["epoch"]
    known = current_leader(backend, "job")
    assert known is not None
    assert (known.candidate_id, known.epoch) == ("c2", second["epoch"])


def test_a_holder_stopped_past_its_lease_knows_it_in_its_first_look(
    backend: Backend, new_process: NewProcess
) -> None:
    holder = new_process(lease_s=1.0)
    old = holder.do("acquire", "m", 10)
    assert holder.do("write", "x", "before") == {}
    holder.signal(signal.SIGSTOP)
    holder.ask("look")
    stopped_s = time.monotonic()
    with Session.open(backend) as session:
        new = Mutex(session, "m").acquire(timeout_s=20)
        assert 0.3 < time.monotonic() - stopped_s < 2.5
        assert new.token > old["token"]
        FencedStore(backend, "fenced").write("x", b"new holder", new.token)
        holder.signal(signal.SIGCONT)
        look = holder.answer()
        assert (look["held"], look["lost"]) == (False, True)
        assert holder.do("write", "x", "late") == {"error": "StaleTokenError"}
        assert holder.do("release") == {"released": False}
        assert new.held
    assert FencedStore(backend, "fenced").read("x") == (new.token, b"new holder")


def test_a_stopped_waiter_does_not_stop_the_others(
    backend: Backend, new_process: NewProcess
) -> None:
    holder, stopped = new_process(), new_process(lease_s=0.5)
    holder.do("acquire", "m", 10)
    stopped.ask("acquire", "m", 20)
    while len(backend.list("locks/m/contenders").records) < 2:
        time.sleep(0.005)
    stopped.signal(signal.SIGSTOP)
    with Session.open(backend) as session:
        holder.ask("release")
        assert Mutex(session, "m").acquire(timeout_s=10).held


def test_tokens_grow_across_processes_and_restarts(address: str, new_process: NewProcess) -> None:
    tokens = []
    for restart in range(3):
        process = new_process()
        tokens.append(process.do("acquire", "m", 10)["token"])
        process.signal(signal.SIGKILL if restart % 2 else signal.SIGTERM)
        process.process.wait()
    backend = connect(address)
    with Session.open(backend) as session:
        tokens.append(Mutex(session, "m").acquire(timeout_s=10).token)
    backend.close()
    assert tokens == sorted(set(tokens))


def test_four_processes_share_a_lock_fairly(new_process: NewProcess) -> None:
    processes = [new_process() for _ in range(4)]
    for process in processes:
        process.ask("churn", "m", 2)
    turns = [process.answer()["tokens"] for process in processes]
    counts = [len(tokens) for tokens in turns]
    assert min(counts) >= 20, counts
    assert max(counts) <= 2 * min(counts), counts
    everyone = sorted(token for tokens in turns for token in tokens)
    assert len(set(everyone)) == len(everyone)
    assert all(tokens == sorted(tokens) for tokens in turns)


def test_writers_in_tight_loops_do_not_starve_each_other(new_process: NewProcess) -> None:
    processes = [new_process() for _ in range(3)]
    for process in processes:
        process.ask("write_often", "often", 2)
    answers = [process.answer() for process in processes]
    counts = [answer["count"] for answer in answers]
    assert max(counts) <= 3 * min(counts), answers
    assert max(answer["slowest_s"] for answer in answers) < 1, answers


def test_a_forked_child_is_refused_at_once_and_the_parent_keeps_its_lock(
    new_process: NewProcess,
) -> None:
    process = new_process(lease_s=1.0)
    process.do("acquire", "m", 10)
    assert process.do("fork") == {"allowed": [], "held": True}
    time.sleep(1.2)  # the parent's renewals and record locks outlive the child
    assert process.do("look") == {"held": True, "lost": False}


def test_a_writer_stopped_in_its_turn_costs_others_their_time_and_nothing_else(
    backend: Backend, tmp_path: Path
) -> None:
    program = (
        "import fcntl, os, sys, time\n"
        f"fd = os.open({str(tmp_path / 'store' / 'coordination.lock')!r}, os.O_RDWR)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as stuck:
        assert stuck.stdout is not None
        stuck.stdout.readline()
        started_s = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="busy"):
            backend.create("a", b"", timeout_s=0.3)
        assert time.monotonic() - started_s < 1
        assert backend.get("a") is None
        stuck.kill()
    backend.create("a", b"", timeout_s=5)


def test_epochs_grow_while_two_processes_take_turns_to_lead(
    backend: Backend, new_process: NewProcess
) -> None:
    process = new_process()
    epochs = []
    with Session.open(backend) as session:
        mine = Election(session, "job", "mine")
        for _ in range(10):
            process.ask("campaign", "job", "theirs")
            epochs.append(process.answer()["epoch"])
            process.ask("release")
            process.answer()
            leadership = mine.campaign(timeout_s=10)
            epochs.append(leadership.epoch)
            leadership.resign()
    assert epochs == sorted(set(epochs))
