"""Counting replies."""

from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import ReplyCode


def test_replies_are_counted_in_all_and_by_worker_in_the_order_of_the_codes() -> None:
    tally = Tally()
    tally.count(ReplyCode.NONFINITE, "NaN at 3", "w1")
    tally.count(ReplyCode.ACCEPTED, worker="w1")
    tally.count(ReplyCode.ACCEPTED, worker="w2")
    tally.count(ReplyCode.NONFINITE, "NaN at 7", "w1")
    tally.count(ReplyCode.BAD_SIG, "forged")
    assert list(tally.totals().items()) == [("ACCEPTED", 2), ("BAD_SIG", 1), ("NONFINITE", 2)]
    assert tally.of_worker("w1") == {"ACCEPTED": 1, "NONFINITE": 2}
    assert tally.of_worker("w2") == {"ACCEPTED": 1}
    assert tally.of_worker("nobody") == {}


def test_the_last_reason_of_each_code_is_kept() -> None:
    tally = Tally()
    tally.count(ReplyCode.NONFINITE, "first")
    tally.count(ReplyCode.NONFINITE, "second")
    tally.count(ReplyCode.NONFINITE)
    assert tally.reasons() == {"NONFINITE": "second"}
