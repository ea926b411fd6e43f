"""How many files a coordinator may have open: each worker's connections are files too.

Most systems let a process open 1024 at first, and more where it asks: up to a hard
limit, which is the operator's. The decision is pure; `raise_file_limit` carries it
out when a coordinator starts.
"""

import logging
import resource
from dataclasses import dataclass

from pliska.coordinator.errors import FileLimitError
from pliska.coordinator.wire.limits import (
    CONNECTIONS_MAX,
    MEMBER_CONNECTIONS,
    OTHER_CONNECTIONS,
    SPARE_MEMBERS,
)

log = logging.getLogger(__name__)

FILES_RESERVED = 256
"""For store, disk, standbys, threads and the process itself."""
ADVICE = "raise it (`ulimit -Hn`, or `LimitNOFILE=` in its systemd unit)"


@dataclass(frozen=True, slots=True)
class FileLimit:
    """What a coordinator does about its limit.

    Attributes:
        soft: The soft limit that it takes.
        connections_max: Connections that it serves at once with that.
        warning: Why these are fewer than they should be; None where they are not.
    """

    soft: int
    connections_max: int
    warning: str | None


def file_limit(workers: int, soft: int, hard: int) -> FileLimit:
    """Decide how many files a coordinator may open.

    Args:
        workers: That the job asks for.
        soft: The limit in force.
        hard: The highest that the process may take itself.

    Raises:
        FileLimitError: Not even the workers' own connections fit.
    """
    members = 2 * workers + SPARE_MEMBERS
    wanted = MEMBER_CONNECTIONS * members + OTHER_CONNECTIONS + FILES_RESERVED
    needed = MEMBER_CONNECTIONS * workers + FILES_RESERVED
    if hard < needed:
        raise FileLimitError(
            f"a job with {workers} workers needs {needed} open files and should have {wanted}, "
            f"but the hard limit of this process is {hard}: {ADVICE}"
        )
    soft = max(soft, min(wanted, hard))
    warning = None
    if soft < wanted:
        warning = (
            f"at most {soft} files may be open, and a job with {workers} workers should have "
            f"{wanted}: {ADVICE}"
        )
    return FileLimit(soft, min(CONNECTIONS_MAX, soft - FILES_RESERVED), warning)


def raise_file_limit(workers: int) -> int:
    """Let this process open as many files as a job needs, where it may.

    Args:
        workers: That the job asks for.

    Returns:
        How many connections the coordinator may serve at once.

    Raises:
        FileLimitError: The hard limit is too low.
    """
    soft, hard = (_count(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
    limit = file_limit(workers, soft, hard)
    if limit.soft > soft:
        own_hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit.soft, own_hard))
    if limit.warning is not None:
        log.warning("reason=%s", limit.warning)
    return limit.connections_max


def _count(limit: int) -> int:
    """Return a limit as a number that others compare with."""
    return 2**31 if limit == resource.RLIM_INFINITY else limit
