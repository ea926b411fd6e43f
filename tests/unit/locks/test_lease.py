import pytest

from pliska.locks.lease import MARGIN, Lease


def test_the_holder_stops_before_the_store_frees() -> None:
    lease = Lease.begun(10, sent_s=100)
    assert lease.deadline_s == pytest.approx(100 + 10 * (1 - MARGIN))
    assert lease.deadline_s < 110


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    assert Lease.begun(10, sent_s=100).renewed(sent_s=103) == Lease.begun(10, sent_s=103)


def test_a_renewal_is_due_after_a_third_of_the_lease() -> None:
    assert Lease.begun(9, sent_s=100).next_renewal_s == pytest.approx(103)


def test_after_a_failure_the_next_try_comes_sooner_and_the_deadline_stays() -> None:
    lease = Lease.begun(9, sent_s=100)
    failed = lease.failed(sent_s=103)
    assert failed.next_renewal_s == pytest.approx(103.9)
    assert failed.deadline_s == lease.deadline_s


def test_a_success_after_failures_returns_to_the_slow_pace() -> None:
    lease = Lease.begun(9, sent_s=100).failed(103).failed(104).renewed(105)
    assert lease.next_renewal_s == pytest.approx(108)
