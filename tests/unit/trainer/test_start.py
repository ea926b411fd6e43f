"""From a key file and a job's name to a running worker."""

import asyncio
import socket
from pathlib import Path

import pytest
from training.toy_job import toy_job

from pliska.coordinator.client import JobDirectory
from pliska.coordinator.wire import ListenError
from pliska.discovery import (
    KeyFileError,
    Role,
    new_private_key,
    public_bytes,
    write_private_key,
)
from pliska.trainer.donation import Door
from pliska.trainer.errors import NoCoordinatorError, UnknownWorkerError
from pliska.trainer.start import start_worker


class Place:
    """A store on disk and a worker's key file."""

    def __init__(self, folder: Path) -> None:
        self.store = f"embedded:{folder / 'store'}"
        self.key = folder / "w1.pem"
        self.private_key = new_private_key()
        write_private_key(self.key, self.private_key)
        self.directory = JobDirectory.at(self.store, "toy")

    def enroll(self, name: str = "w1", role: Role = Role.WORKER) -> None:
        self.directory.keyring.enroll(name, role, public_bytes(self.private_key))

    def start(self, timeout_s: float = 0.3, door: Door | None = None) -> int:
        return asyncio.run(start_worker(self.store, "toy", self.key, timeout_s, None, door))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_key_that_nobody_enrolled_is_refused_with_the_command_that_helps(place: Place) -> None:
    with pytest.raises(UnknownWorkerError, match="`pliska key enroll NAME"):
        place.start()


def test_revoked_key_and_a_coordinators_key_are_refused(place: Place) -> None:
    place.enroll("c1", Role.COORDINATOR)
    with pytest.raises(UnknownWorkerError, match="enrolled as coordinator 'c1'"):
        place.start()
    place.directory.keyring.revoke("c1", "lost")
    with pytest.raises(UnknownWorkerError, match="revoked: lost"):
        place.start()


def test_missing_key_file_is_named(place: Place) -> None:
    place.key.unlink()
    with pytest.raises(KeyFileError, match=r"w1\.pem"):
        place.start()


def test_job_that_no_coordinator_started_is_waited_for_and_then_given_up(place: Place) -> None:
    place.enroll()
    with pytest.raises(NoCoordinatorError, match="start a coordinator with its job file"):
        place.start()


def test_job_without_a_leader_is_given_up_after_the_same_time(place: Place) -> None:
    place.enroll()
    place.directory.publish(toy_job())
    with pytest.raises(NoCoordinatorError, match="nobody has led"):
        place.start()


def test_a_door_that_is_taken_is_named_with_what_to_do(place: Place) -> None:
    place.enroll()
    place.directory.publish(toy_job())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port}.*name another address or port"):
            place.start(door=Door("127.0.0.1", "127.0.0.1", port))
