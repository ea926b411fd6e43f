import threading

from pliska.locks import ManualClock, SystemClock
from pliska.locks.backends.pending_changes import KEYS_MAX, PendingChanges


def test_keys_add_up_until_they_are_taken() -> None:
    pending = PendingChanges(ManualClock())
    pending.put("d", "d/a")
    pending.put("d", "d/b")
    pending.put("e", "e/a")
    assert pending.take(0.0) == {"d": {"d/a", "d/b"}, "e": {"e/a"}}
    assert pending.take(0.0) == {}


def test_what_is_not_known_hides_what_is() -> None:
    pending = PendingChanges(ManualClock())
    for key in ("d/a", None, "d/b"):
        pending.put("d", key)
    assert pending.take(0.0) == {"d": None}


def test_a_reader_who_stays_away_costs_a_bounded_number_of_keys() -> None:
    pending = PendingChanges(ManualClock())
    for number in range(KEYS_MAX):
        pending.put("d", f"d/{number}")
    assert len(pending.take(0.0)["d"] or ()) == KEYS_MAX
    for number in range(KEYS_MAX + 1):
        pending.put("d", f"d/{number}")
    assert pending.take(0.0) == {"d": None}


def test_waking_ends_one_wait_even_before_it_begins() -> None:
    clock = SystemClock()
    pending = PendingChanges(clock)
    pending.wake()
    begun_s = clock.now_s()
    assert pending.take(begun_s + 30) == {}
    assert clock.now_s() - begun_s < 10
    assert pending.take(clock.now_s() + 0.01) == {}


def test_what_is_put_ends_a_wait() -> None:
    clock = SystemClock()
    pending, taken = PendingChanges(clock), []
    reader = threading.Thread(target=lambda: taken.append(pending.take(clock.now_s() + 30)))
    reader.start()
    pending.put("d", None)
    reader.join(10)
    assert taken == [{"d": None}]
