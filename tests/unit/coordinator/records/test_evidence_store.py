"""Evidence lies under the name of its own bytes."""

from pathlib import Path

import pytest
from training.signed import equivocation, fork

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.evidence import digest_of
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.storage.storage import LocalStorage


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore(LocalStorage(tmp_path), "toy")


def test_evidence_is_read_back_with_its_round_and_digest(store: EvidenceStore) -> None:
    name = store.write(equivocation(), 5)
    store.write(fork(7), 7)
    kept = store.read(name)
    assert (kept.evidence, kept.round, kept.digest) == (
        equivocation(),
        5,
        digest_of(equivocation()),
    )
    assert store.write(equivocation(), 5) == name
    assert len(store.names()) == 2
    assert store.names_since(6) == store.names()[1:]
    assert store.names_since(5) == store.names()


def test_altered_or_misnamed_evidence_is_refused(store: EvidenceStore, tmp_path: Path) -> None:
    name = store.write(equivocation(), 5)
    other = store.write(equivocation("w2"), 5)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes((tmp_path / other).read_bytes())
    with pytest.raises(DamagedStateError, match="not the one that it is named by"):
        store.read(name)
    (tmp_path / name).write_bytes(content[:-1])
    with pytest.raises(DamagedStateError, match="not evidence of equivocation"):
        store.read(name)
    with pytest.raises(DamagedStateError, match="no evidence has such a name"):
        store.read(name.replace("equivocation", "rumour"))
