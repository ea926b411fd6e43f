"""How much memory processes take together.

Counts each page that several share once, in fractions (PSS): a sum of resident
sizes would count torch's libraries two dozen times. Read from /proc, so there
is an answer on Linux only.
"""

from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def proportional_bytes(pids: Iterable[int]) -> int:
    """Return the proportional set size of processes together; those that are gone count 0."""
    return sum(_one(pid) for pid in pids)


def _one(pid: int) -> int:
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(
        int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")
    )


class MemoryPeak:
    """The most that a changing set of processes took at the times it was looked at."""

    def __init__(self) -> None:
        self.bytes_max = 0

    def look(self, pids: Iterable[int]) -> None:
        """Take the memory of these processes into account."""
        self.bytes_max = max(self.bytes_max, proportional_bytes(pids))
