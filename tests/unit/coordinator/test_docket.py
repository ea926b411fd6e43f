"""What waits for a commit record: taken in as there is room, and struck once it is committed."""

from training.records import record

from pliska.coordinator.docket import RECEIPTS_WAITING_MAX, Docket
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.commit import CONVICTIONS_MAX
from pliska.coordinator.records.receipts import RECEIPTS_MAX, KeptReceipt
from pliska.coordinator.records.standing import Conviction
from pliska.coordinator.wire import Signed


def conviction(number: int) -> Conviction:
    return Conviction(
        worker="w1", offence="equivocation", evidence=number.to_bytes(32), reason="two gradients"
    )


def receipt(number: int) -> KeptReceipt:
    signed = Signed("pliska/receipt/1", number.to_bytes(8), "key", bytes(64))
    return KeptReceipt(header=signed, receipt=signed)


def test_record_takes_in_the_oldest_convictions_and_the_next_one_the_others() -> None:
    docket = Docket()
    for number in range(CONVICTIONS_MAX + 1):
        docket.convict(conviction(number), b"evidence")
    first = docket.convictions()
    assert first == tuple((conviction(number), b"evidence") for number in range(CONVICTIONS_MAX))
    docket.strike(record(1, convictions=tuple(each for each, _ in first)), Annex())
    assert docket.convictions() == ((conviction(CONVICTIONS_MAX), b"evidence"),)


def test_what_is_not_committed_stays() -> None:
    docket = Docket()
    docket.convict(conviction(1), b"evidence")
    docket.note(receipt(1))
    docket.strike(record(1), Annex())
    assert docket.convictions() == ((conviction(1), b"evidence"),)
    assert docket.receipts() == (receipt(1),)


def test_same_evidence_convicts_once() -> None:
    docket = Docket()
    docket.convict(conviction(1), b"evidence")
    docket.convict(conviction(1), b"evidence")
    assert len(docket.convictions()) == 1


def test_receipts_wait_up_to_a_bound_and_those_after_it_are_left_out() -> None:
    docket = Docket()
    for number in range(RECEIPTS_WAITING_MAX + 1):
        docket.note(receipt(number))
    taken: list[KeptReceipt] = []
    while docket.receipts():
        assert len(docket.receipts()) <= RECEIPTS_MAX
        taken += docket.receipts()
        docket.strike(record(1), Annex(receipts=docket.receipts()))
    assert taken == [receipt(number) for number in range(RECEIPTS_WAITING_MAX)]
