import os
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from pliska.aggregation.engine import reports, sharing
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.threads import SPAN_COLUMNS

D = 6 * SPAN_COLUMNS
ROWS = tuple(torch.randn(3, D, generator=torch.Generator().manual_seed(1)))


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def lengths(target: Host) -> Callable[[], bytes]:
    return lambda: reports.lengths(target, ROWS, slice(0, D)).tobytes()


@pytest.fixture
def expected(lengths: Callable[[], bytes]) -> bytes:
    torch.set_num_threads(1)
    alone = lengths()
    torch.set_num_threads(3)
    return alone


def test_helpers_come_again_after_they_went_to_sleep(
    target: Host, lengths: Callable[[], bytes], expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "LOOKS", 1)
    sharing._team.cache_clear()
    for _ in range(200):
        assert lengths() == expected
    sharing._team.cache_clear()


def test_helper_that_never_comes_holds_nobody_up(
    target: Host, lengths: Callable[[], bytes], expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoThreads:
        def submit(self, *_: object) -> None:
            pass

    team = sharing._Team(target, 2)
    monkeypatch.setattr(sharing, "_team", lambda *_: team)
    monkeypatch.setattr(team, "_pool", NoThreads())
    for _ in range(3):
        assert lengths() == expected


def test_several_callers_at_once_all_get_their_own(
    lengths: Callable[[], bytes], expected: bytes
) -> None:
    found: list[bytes] = []

    def ask() -> None:
        found.extend(lengths() for _ in range(20))

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert found == [expected] * 80


def test_forked_process_finds_helpers_of_its_own(
    lengths: Callable[[], bytes], expected: bytes
) -> None:
    assert lengths() == expected
    child = os.fork()
    if not child:
        os._exit(0 if lengths() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
