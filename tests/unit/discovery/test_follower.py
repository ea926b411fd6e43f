import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from pliska.discovery.follower import (
    BACKWARD_PATIENCE_S,
    Copy,
    Follower,
    Keys,
    Progress,
    admit,
)
from pliska.discovery.retry import RETRY_S_MAX, RETRY_S_MIN, retry_pause_s
from pliska.locks import (
    AccessDeniedError,
    LockError,
    Revision,
    StoreUnavailableError,
    SystemClock,
)
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore
from services.waiting import wait_until


def test_an_answer_that_is_not_older_is_taken() -> None:
    for revision in (7, 8):
        is_taken, _, progress = admit(1.0, Progress(Revision(7)), Revision(revision))
        assert (is_taken, progress) == (True, Progress(Revision(revision)))


def test_an_older_answer_is_not_taken_until_it_lasts() -> None:
    progress = Progress(Revision(7))
    is_taken, reason, progress = admit(10.0, progress, Revision(6))
    assert (is_taken, reason) == (False, "revision 6 is older than 7, which was seen before")
    is_taken, _, progress = admit(10.0 + BACKWARD_PATIENCE_S - 0.1, progress, Revision(6))
    assert not is_taken
    is_taken, reason, progress = admit(10.0 + BACKWARD_PATIENCE_S, progress, Revision(6))
    assert (is_taken, progress) == (True, Progress(Revision(6)))
    assert reason == "the store has gone back to revision 6"


def test_a_newer_answer_ends_the_patience_with_older_ones() -> None:
    _, _, progress = admit(10.0, Progress(Revision(7)), Revision(6))
    _, _, progress = admit(11.0, progress, Revision(8))
    is_taken, _, _ = admit(10.0 + BACKWARD_PATIENCE_S, progress, Revision(6))
    assert not is_taken


def test_pauses_double_up_to_a_limit_and_differ_by_chance() -> None:
    random = Random(1)
    for failures in (1, 2, 3, 5, 10, 1_000_000):
        longest_s = min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(failures - 1, 30))
        pauses = [retry_pause_s(failures, random) for _ in range(100)]
        assert longest_s / 2 <= min(pauses) < max(pauses) <= longest_s


@dataclass(frozen=True)
class Answer:
    revision: Revision


class Diary:
    """A copy that writes down what happens to it, and reads what a script says."""

    def __init__(self, path: str, script: "Iterable[int | LockError]") -> None:
        self._script = iter(script)
        self.read_keys: list[Keys | None] = []
        self.taken: list[int] = []
        self.missed: list[str] = []
        self.is_over = threading.Event()
        self.has_read_twice = threading.Event()
        self.copy = Copy(path, self._read, lambda a: self.taken.append(a.revision), self._miss)

    def _read(self, keys: Keys | None) -> Answer:
        step = next(self._script, None)
        if step is None:
            self.is_over.set()
            return Answer(Revision(10**9))
        self.read_keys.append(keys)
        if len(self.read_keys) == 2:
            self.has_read_twice.set()
        if isinstance(step, LockError):
            raise step
        return Answer(Revision(step))

    def _miss(self, reason: str) -> None:
        self.missed.append(reason)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend(MemoryStore())


@pytest.fixture
def follower(backend: MemoryBackend) -> Iterator[Follower]:
    follower = Follower("test-follower", backend.open_feed(), SystemClock(), Random(1))
    yield follower
    follower.close()


def test_a_copy_is_read_at_once_and_then_for_what_changed(
    follower: Follower, backend: MemoryBackend
) -> None:
    diary = Diary("d", range(1, 100))
    follower.keep(diary.copy)
    wait_until(lambda: diary.taken == [1])
    backend.create("d/a", b"")
    wait_until(lambda: diary.taken == [1, 2])
    backend.create("other/a", b"")
    backend.create("d/b", b"")
    wait_until(lambda: diary.taken == [1, 2, 3])
    assert diary.read_keys == [None, frozenset({"d/a"}), frozenset({"d/b"})]


@pytest.mark.parametrize(("confirm_s", "is_confirmed"), [(0.1, True), (math.inf, False)])
def test_a_copy_is_read_again_without_a_change_only_if_that_is_wanted(
    backend: MemoryBackend, confirm_s: float, is_confirmed: bool
) -> None:
    diary = Diary("d", range(1, 100))
    follower = Follower("test-follower", backend.open_feed(), SystemClock(), Random(1), confirm_s)
    follower.keep(diary.copy)
    wait_until(lambda: diary.taken == [1])
    # Copies are read four times a second at the most while nothing changes.
    assert diary.has_read_twice.wait(5.0 if is_confirmed else 0.5) is is_confirmed
    follower.close()
    follower.join(5.0)
    assert not any(each.name == "test-follower" for each in threading.enumerate())


def test_an_outage_is_told_to_all_and_made_up_for_by_reading_everything(
    follower: Follower, backend: MemoryBackend
) -> None:
    away = StoreUnavailableError("away")
    script: list[int | LockError] = [1, away, away, 2, 3]
    one, other = Diary("d", script), Diary("e", range(1, 100))
    follower.keep(one.copy)
    follower.keep(other.copy)
    wait_until(lambda: one.taken == [1] and other.taken == [1])
    backend.create("d/a", b"")
    wait_until(lambda: one.taken[-1] >= 2 and other.taken[-1] >= 2)
    assert one.missed == other.missed == ["away"] * len(one.missed)
    assert one.read_keys[:2] == [None, frozenset({"d/a"})]
    assert one.read_keys[2:4] == [None, None]


def test_what_is_wrong_with_one_copy_is_no_outage(
    follower: Follower, backend: MemoryBackend
) -> None:
    refused, other = Diary("d", [AccessDeniedError("not yours"), 5]), Diary("e", range(1, 100))
    follower.keep(refused.copy)
    follower.keep(other.copy)
    wait_until(lambda: refused.taken == [5])
    assert (refused.missed, other.missed) == (["not yours"], [])
    assert refused.read_keys == [None, None]


def test_an_older_answer_is_not_handed_over(follower: Follower, backend: MemoryBackend) -> None:
    diary = Diary("d", [7, 6, 8])
    follower.keep(diary.copy)
    wait_until(lambda: diary.taken == [7])
    backend.create("d/a", b"")
    wait_until(lambda: diary.taken == [7, 8])
    assert diary.missed == ["revision 6 is older than 7, which was seen before"]


def test_a_copy_is_read_again_when_its_patience_is_over(follower: Follower) -> None:
    diary = Diary("d", range(1, 4))
    follower.keep(replace(diary.copy, patience_s=lambda: 0.01))
    assert diary.is_over.wait(10)
    assert diary.read_keys == [None, None, None]


def test_nothing_is_handed_over_once_forgotten_or_closed(
    follower: Follower, backend: MemoryBackend
) -> None:
    gone, kept = Diary("d", range(1, 100)), Diary("e", range(1, 100))
    follower.keep(gone.copy)
    follower.keep(kept.copy)
    wait_until(lambda: gone.taken == [1] and kept.taken == [1])
    follower.forget(gone.copy)
    backend.create("d/a", b"")
    backend.create("e/a", b"")
    wait_until(lambda: kept.taken == [1, 2])
    assert gone.taken == [1]
    follower.close()
    backend.create("e/b", b"")
    wait_until(lambda: "test-follower" not in {t.name for t in threading.enumerate()})
    assert kept.taken == [1, 2]


def test_a_thousand_copies_take_one_thread(follower: Follower, backend: MemoryBackend) -> None:
    diaries = [Diary(f"d{number}", range(1, 100)) for number in range(1000)]
    threads = threading.active_count()
    for diary in diaries:
        follower.keep(diary.copy)
    wait_until(lambda: all(diary.taken == [1] for diary in diaries))
    for number in range(1000):
        backend.create(f"d{number}/a", b"")
    wait_until(lambda: all(diary.taken == [1, 2] for diary in diaries))
    assert threading.active_count() == threads + 1
