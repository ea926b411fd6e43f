"""Kept receipts are found by their round, and are what their names say."""

from pathlib import Path

import pytest
from training.signed import kept_receipt

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records import receipts as receipts_module
from pliska.coordinator.records.receipts import KeptReceipt, ReceiptStore, about, that_fit
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.encoding import encode

LATE = kept_receipt("w2", ReplyCode.STALE_ROUND, "late")
CONFINED = kept_receipt("w1", ReplyCode.QUARANTINED, "lied")


@pytest.fixture
def store(tmp_path: Path) -> ReceiptStore:
    return ReceiptStore(LocalStorage(tmp_path), "toy")


def test_receipts_of_a_round_come_in_the_order_of_their_workers(store: ReceiptStore) -> None:
    store.write(5, LATE)
    store.write(5, CONFINED)
    store.write(5, CONFINED)
    store.write(6, kept_receipt("w3", ReplyCode.STALE_ROUND, "late", number=6))
    assert store.of_round(5) == (CONFINED, LATE)
    assert store.of_round(7) == ()
    assert len(store.names()) == 3


def test_those_about_one_round_are_picked_once_each() -> None:
    other = kept_receipt("w3", ReplyCode.STALE_ROUND, "late", number=6)
    assert about(5, [LATE, other, CONFINED, LATE]) == (CONFINED, LATE)
    broken = KeptReceipt(LATE.header, LATE.header)
    with pytest.raises(DamagedStateError, match="cannot be read"):
        about(5, [LATE, broken])


def test_one_annex_takes_so_many_receipts_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    three = [kept_receipt(f"w{n}", ReplyCode.STALE_ROUND, "late") for n in (1, 2, 3)]
    assert that_fit(three) == tuple(three)
    size = sum(len(encode(each)) for each in three)
    monkeypatch.setattr(receipts_module, "RECEIPTS_BYTES_MAX", size)
    assert that_fit(three) == tuple(three)
    monkeypatch.setattr(receipts_module, "RECEIPTS_BYTES_MAX", size - 1)
    assert that_fit(three) == tuple(three[:2])
    monkeypatch.setattr(receipts_module, "RECEIPTS_MAX", 1)
    assert that_fit(three) == tuple(three[:1])


def test_altered_misplaced_or_misnamed_receipt_is_refused(
    store: ReceiptStore, tmp_path: Path
) -> None:
    store.write(5, LATE)
    (name,) = store.names()
    path = tmp_path / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedStateError, match="not the one that it is named by"):
        store.read(name)
    path.write_bytes(content)
    elsewhere = name.replace("000000000005", "000000000006")
    (tmp_path / elsewhere).parent.mkdir()
    (tmp_path / elsewhere).write_bytes(content)
    with pytest.raises(DamagedStateError, match="it is about round 5"):
        store.read(elsewhere)
    with pytest.raises(DamagedStateError, match="no receipt has such a name"):
        store.read(name.replace(".receipt", ".txt"))
