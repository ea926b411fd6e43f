import threading
from datetime import UTC, datetime

from pliska.discovery.config_watch import ConfigWatch
from pliska.discovery.setting import ChangeKind, Setting
from pliska.locks import SystemClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def setting(key: str, revision: int) -> Setting:
    return Setting(
        key=key, revision=revision, is_set=True, value=0, change=ChangeKind.SET, written_at=NOON
    )


def watch_of(*current: Setting) -> tuple[ConfigWatch, list[ConfigWatch]]:
    forgotten: list[ConfigWatch] = []
    return ConfigWatch(current, SystemClock(), forgotten.append), forgotten


def test_a_slow_watcher_gets_the_newest_of_each_key_and_nothing_piles_up() -> None:
    watch, _ = watch_of(setting("a", 1))
    for revision in range(2, 1_000):
        watch.offer(setting("a", revision))
        watch.offer(setting("b", revision))
    assert len(watch._pending) == 2
    assert watch.next(0) == setting("a", 999)
    assert watch.next(0) == setting("b", 999)
    assert watch.next(0) is None


def test_the_key_that_changed_first_comes_first() -> None:
    watch, _ = watch_of()
    for key, revision in (("a", 1), ("b", 1), ("a", 2)):
        watch.offer(setting(key, revision))
    assert [watch.next(0), watch.next(0)] == [setting("b", 1), setting("a", 2)]


def test_closing_wakes_who_waits_and_is_told_to_the_view() -> None:
    watch, forgotten = watch_of()
    got: list[Setting | None] = []
    waiter = threading.Thread(target=lambda: got.append(watch.next()))
    waiter.start()
    watch.close()
    waiter.join(10)
    assert got == [None]
    assert forgotten == [watch]
    assert list(watch) == []
