import logging
import threading

import pytest

from pliska.locks import LossSignal


def test_it_is_set_as_soon_as_the_loss_is_true_whatever_was_announced() -> None:
    is_lost = [False]
    signal = LossSignal(lambda: is_lost[0])
    assert not signal.is_set()
    assert not signal.wait(0.01)
    is_lost[0] = True
    assert signal.is_set()
    assert signal.wait(60)


def test_an_announcement_wakes_and_calls_once() -> None:
    is_lost, calls = [False], threading.Semaphore(0)
    signal = LossSignal(lambda: is_lost[0])
    signal.on_lost(calls.release)
    woken = threading.Thread(target=signal.wait)
    woken.start()
    is_lost[0] = True
    signal.announce()
    signal.announce()
    woken.join(10)
    assert not woken.is_alive()
    assert calls.acquire(timeout=10)
    assert not calls.acquire(timeout=0.05)


def test_a_callback_that_comes_too_late_is_called_at_once() -> None:
    called = threading.Event()
    signal = LossSignal(lambda: True)
    signal.announce()
    signal.on_lost(called.set)
    assert called.wait(10)


def test_a_blocking_callback_does_not_hold_up_the_announcement() -> None:
    release = threading.Event()
    signal = LossSignal(lambda: True)
    signal.on_lost(lambda: release.wait(10) and None)
    signal.announce()
    release.set()


def test_a_failing_callback_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called = threading.Event()
    signal = LossSignal(lambda: True)

    def fail() -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        signal.on_lost(fail)
        signal.on_lost(called.set)
        signal.announce()
        assert called.wait(10)
    assert "on_lost callback failed" in caplog.text


def test_giving_up_wakes_but_calls_nobody() -> None:
    called = threading.Event()
    signal = LossSignal(lambda: False)
    signal.on_lost(called.set)
    signal.retire()
    assert signal.is_set()
    assert not called.wait(0.05)


def test_joining_waits_for_the_callbacks_of_a_loss_and_for_no_others() -> None:
    is_lost, may_end = [False], threading.Event()
    signal = LossSignal(lambda: is_lost[0])
    signal.join_callbacks()
    signal.on_lost(lambda: may_end.wait(10))
    signal.on_lost(signal.join_callbacks)  # from within one it would wait for itself
    is_lost[0] = True
    signal.announce()
    joining = threading.Thread(target=signal.join_callbacks)
    joining.start()
    joining.join(0.1)
    assert joining.is_alive()
    may_end.set()
    joining.join(10)
    assert not joining.is_alive()
