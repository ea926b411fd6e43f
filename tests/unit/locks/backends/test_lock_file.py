import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliska.locks import StoreUnavailableError, SystemClock
from pliska.locks.backends.lock_file import NEXT_BYTE, TURN_BYTE, LockFile

BYTE = 1 << 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def lock_file(path: Path) -> Iterator[LockFile]:
    lock_file = LockFile.shared(path)
    yield lock_file
    lock_file.close()


class Holder:
    """Another process that holds a byte of the file."""

    def __init__(self, path: Path, byte: int) -> None:
        program = (
            "import fcntl, os, sys\n"
            f"fd = os.open({str(path)!r}, os.O_RDWR | os.O_CREAT)\n"
            f"fcntl.lockf(fd, fcntl.LOCK_EX, 1, {byte})\n"
            "print(flush=True)\n"
            "sys.stdin.read()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def soon(seconds: float) -> float:
    return SystemClock().now_s() + seconds


def test_the_byte_of_a_living_process_is_not_abandoned_until_it_is_killed(
    lock_file: LockFile, path: Path
) -> None:
    assert lock_file.is_abandoned(BYTE)
    holder = Holder(path, BYTE)
    assert not lock_file.is_abandoned(BYTE)
    holder.kill()
    assert lock_file.is_abandoned(BYTE)


def test_looking_at_a_byte_does_not_take_it(lock_file: LockFile, path: Path) -> None:
    assert lock_file.is_abandoned(BYTE)
    Holder(path, BYTE).kill()


def test_our_own_byte_is_not_abandoned_and_looking_does_not_lose_it(
    lock_file: LockFile, path: Path
) -> None:
    lock_file.hold_session(BYTE)
    assert not lock_file.is_abandoned(BYTE)
    program = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(path)!r}, os.O_RDWR)\n"
        f"fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, {BYTE})\n"
    )
    take = [sys.executable, "-c", program]
    assert subprocess.run(take, stderr=subprocess.DEVNULL, check=False).returncode != 0
    lock_file.release_session(BYTE)
    lock_file.release_session(BYTE)
    assert subprocess.run(take, check=False).returncode == 0


def test_two_users_in_one_process_share_the_file_and_closing_one_loses_no_lock(
    lock_file: LockFile, path: Path
) -> None:
    other = LockFile.shared(path)
    assert other is lock_file
    lock_file.hold_session(BYTE)
    other.close()
    program = (
        "import fcntl, os\n"
        f"fd = os.open({str(path)!r}, os.O_RDWR)\n"
        f"fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, {BYTE})\n"
    )
    take = [sys.executable, "-c", program]
    assert subprocess.run(take, stderr=subprocess.DEVNULL, check=False).returncode != 0
    lock_file.release_session(BYTE)


def test_a_file_made_anew_is_another_file(path: Path) -> None:
    old = LockFile.shared(path)
    path.unlink()
    new = LockFile.shared(path)
    assert new is not old
    old.close()
    new.close()


def test_one_thread_writes_at_a_time(lock_file: LockFile) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(50):
            with lock_file.turn(soon(20)):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_the_wait_for_the_turn_ends_in_time(lock_file: LockFile, path: Path) -> None:
    holder = Holder(path, TURN_BYTE)
    started_s = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="busy"), lock_file.turn(soon(0.2)):
        pass
    assert time.monotonic() - started_s < 1
    holder.kill()
    with lock_file.turn(soon(5)):
        pass


def test_the_wait_for_a_thread_of_this_process_ends_in_time(lock_file: LockFile) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with lock_file.turn(soon(5)):
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(10)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError), lock_file.turn(soon(0.05)):
            pass
    leave.set()
    thread.join()


def test_a_waiting_writer_that_was_stopped_costs_patience_only(
    lock_file: LockFile, path: Path
) -> None:
    holder = Holder(path, NEXT_BYTE)
    started_s = time.monotonic()
    with lock_file.turn(soon(5)):
        assert time.monotonic() - started_s < 1
    holder.kill()
