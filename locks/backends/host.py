"""What the embedded store must know of the machine: is the disk local, which clock runs here.

SQLite's write-ahead log needs memory that all processes share, and record
locks that every file server implements differently: a network filesystem
offers neither. Leases compare boot time, which means nothing after a reboot or
in another time namespace.
"""

from dataclasses import dataclass
from pathlib import Path

from pliska.locks.errors import LockUsageError

NETWORK_FILESYSTEMS = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs"),
    *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"),
    *("fuse.cephfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone"),
    *("fuse.s3fs", "fuse.sshfs"),
)


@dataclass(frozen=True, slots=True)
class HostClock:
    """Which boot-time clock this process reads.

    Attributes:
        boot_id: The kernel's name for this boot.
        time_namespace: The namespace that may shift the clock.
    """

    boot_id: str
    time_namespace: str

    @classmethod
    def of_this_process(cls) -> "HostClock":
        """Ask the kernel."""
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/time")
        return cls(boot_id, namespace.readlink().name if namespace.is_symlink() else "")


def refuse_network_filesystem(directory: Path) -> None:
    """Raise `LockUsageError` when `directory` is on another machine's disk."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    filesystem = filesystem_of(directory.resolve(), mounts)
    if filesystem in NETWORK_FILESYSTEMS:
        raise LockUsageError(
            f"{directory} is on a network filesystem ({filesystem}), where the embedded store "
            "cannot keep its promises: use a local disk"
        )


def filesystem_of(path: Path, mountinfo: str) -> str | None:
    """The filesystem type that holds `path`, from the text of /proc/self/mountinfo.

    The longest mount point that contains the path wins, and of two on the same
    point the later one. None when nothing matches.
    """
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_unescape(fields[4]))
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), after.split(" ")[0])
    return None if best is None else best[1]


def _unescape(text: str) -> str:
    # The kernel writes space, tab, newline and backslash as three octal digits.
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
