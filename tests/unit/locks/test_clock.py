import threading
import time

from pliska.locks import ManualClock, SystemClock


def test_the_system_clock_is_the_time_since_boot() -> None:
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before_s <= SystemClock().now_s() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_system_clock_stops_waiting_at_the_time_given() -> None:
    clock, condition = SystemClock(), threading.Condition()
    until_s = clock.now_s() + 0.05
    with condition:
        clock.wait(condition, until_s)
        clock.wait(condition, until_s - 10)
    assert clock.now_s() >= until_s


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start_s=5)
    assert clock.now_s() == 5
    clock.advance(2.5)
    assert clock.now_s() == 7.5


def test_advancing_wakes_whoever_waits_by_the_clock() -> None:
    clock, condition, woken = ManualClock(), threading.Condition(), threading.Event()

    def wait() -> None:
        until_s = clock.now_s() + 10
        with condition:
            while clock.now_s() < until_s:
                clock.wait(condition, until_s)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    clock.advance(9)
    assert not woken.wait(0.05)
    clock.advance(1)
    assert woken.wait(10)
    thread.join()


def test_a_manual_clock_does_not_wait_for_a_time_that_has_come() -> None:
    clock, condition = ManualClock(), threading.Condition()
    with condition:
        clock.wait(condition, clock.now_s())
