import threading
from dataclasses import dataclass
from random import Random

from pliska.discovery.follower import BACKWARD_PATIENCE_S, Follower, Progress, admit
from pliska.discovery.retry import RETRY_S_MAX, RETRY_S_MIN, retry_pause_s
from pliska.locks import Revision, StoreUnavailableError, SystemClock


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


def test_a_follower_goes_on_after_an_outage_and_takes_nothing_once_closed() -> None:
    script = iter([1, None, None, 2, 3])
    taken: list[int] = []
    missed: list[str] = []
    done, ended = threading.Event(), threading.Event()

    def read() -> Answer:
        revision = next(script, -1)
        if revision is None:
            raise StoreUnavailableError("away")
        if revision == -1:
            done.set()
            ended.wait(10)
        return Answer(Revision(9 if revision == -1 else revision))

    follower: Follower[Answer] = Follower(
        "test",
        read,
        wait=lambda _after, _timeout_s: True,
        take=lambda answer: taken.append(answer.revision),
        miss=missed.append,
        clock=SystemClock(),
        random=Random(1),
    )
    follower.start()
    assert done.wait(10)
    follower.close()
    ended.set()
    follower._thread.join(10)
    assert taken == [1, 2, 3]
    assert missed == ["away", "away"]
