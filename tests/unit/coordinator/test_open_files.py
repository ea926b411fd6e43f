"""A coordinator may open as many files as its workers' connections need, or says why not."""

import resource
import subprocess
import sys

import pytest

from pliska.coordinator.errors import FileLimitError
from pliska.coordinator.open_files import FILES_RESERVED, FileLimit, file_limit, raise_file_limit
from pliska.coordinator.wire.limits import CONNECTIONS_MAX, WORKERS_MAX

NO_LIMIT = 2**31


def test_a_small_job_leaves_the_usual_limit_alone() -> None:
    assert file_limit(3, 1024, 4096) == FileLimit(1024, 1024 - FILES_RESERVED, None)


@pytest.mark.parametrize("workers", [1000, WORKERS_MAX])
def test_a_large_job_raises_the_soft_limit_to_what_it_needs(workers: int) -> None:
    limit = file_limit(workers, 1024, NO_LIMIT)
    assert limit.soft == limit.connections_max + FILES_RESERVED
    assert limit.connections_max >= 4 * workers
    assert limit.connections_max <= CONNECTIONS_MAX
    assert limit.warning is None


def test_a_limit_that_is_higher_already_stays() -> None:
    assert file_limit(1000, 20_000, 20_000) == FileLimit(20_000, CONNECTIONS_MAX, None)


def test_a_hard_limit_that_is_short_is_told_and_serves_fewer_connections() -> None:
    limit = file_limit(1000, 1024, 2300)
    assert (limit.soft, limit.connections_max) == (2300, 2300 - FILES_RESERVED)
    assert limit.warning is not None
    assert "2300 files" in limit.warning
    assert "LimitNOFILE=" in limit.warning


def test_where_the_workers_themselves_do_not_fit_it_does_not_begin() -> None:
    least = 2 * 1000 + FILES_RESERVED
    assert file_limit(1000, 1024, least).soft == least
    with pytest.raises(FileLimitError, match=f"1000 workers needs {least} .*`ulimit -Hn`"):
        file_limit(1000, 1024, least - 1)


def test_the_process_gets_the_limit() -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (600, 8000))\n"
        "from pliska.coordinator.open_files import raise_file_limit\n"
        "print(raise_file_limit(1000), *resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    connections, soft, hard = map(int, done.stdout.split())
    assert (soft, hard) == (connections + FILES_RESERVED, 8000)
    assert connections >= 4000


def test_nothing_is_changed_where_the_limit_suffices() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_file_limit(1) >= 2
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
