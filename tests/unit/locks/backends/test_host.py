from pathlib import Path

import pytest

from pliska.locks import LockUsageError
from pliska.locks.backends import host
from pliska.locks.backends.host import HostClock, filesystem_of, refuse_network_filesystem

MOUNTS = """\
22 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /home rw,relatime shared:1 - nfs4 server:/home rw,vers=4.2
31 22 0:31 / /mnt/with\\040space rw - cifs //server/share rw
32 30 0:32 / /home/me/local rw - xfs /dev/vdb rw
33 32 0:33 / /home/me/local rw - tmpfs tmpfs rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/", "ext4"),
        ("/var/lib", "ext4"),
        ("/homestead", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/mnt/with space/x", "cifs"),
        ("/home/me/local/x", "tmpfs"),
    ],
)
def test_the_longest_and_latest_mount_point_holds_the_path(path: str, filesystem: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == filesystem


def test_without_a_mount_there_is_no_filesystem() -> None:
    assert filesystem_of(Path("/x"), "") is None


def test_the_disk_of_this_machine_is_taken(tmp_path: Path) -> None:
    refuse_network_filesystem(tmp_path)


def local_filesystem(path: Path) -> str | None:
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return filesystem_of(path.resolve(), mounts)


def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "NETWORK_FILESYSTEMS", (local_filesystem(tmp_path),))
    with pytest.raises(LockUsageError, match="network filesystem"):
        refuse_network_filesystem(tmp_path)


def test_two_looks_in_one_boot_see_the_same_clock() -> None:
    clock = HostClock.of_this_process()
    assert clock == HostClock.of_this_process()
    assert len(clock.boot_id) == 36
