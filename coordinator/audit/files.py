"""Whether the files beside a job's log are what they are named by, and fit the chain of records.

Each kind of file has one function; what is of no known kind is told and not
judged. Called by `audit`.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch

from pliska.coordinator.audit.proof import require_answer
from pliska.coordinator.audit.report import AuditReport
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.checkpoint import MANIFEST_BYTES_MAX
from pliska.coordinator.records.checkpoint_store import FILE_BYTES_MAX, CheckpointStore, StoredState
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import charge
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.records.payloads import PayloadStore
from pliska.coordinator.records.receipts import ReceiptStore
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.tensor_file import decode_tensors, encode_tensors
from pliska.coordinator.training.training_state import tensor_bytes
from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.errors import WireError

_STATE_OF_MODEL = ("parameters/", "constants/")
"""What of a training state the file of a finished model holds."""


class FileAudit:
    """The checks of one job's files.

    Args:
        storage: Where they lie.
        job: The job's name.
        keys: Whose signatures count.
        commits: The chain, oldest first.
        report: Takes what is found.
    """

    def __init__(
        self,
        storage: Storage,
        job: str,
        keys: KeyBook,
        commits: Sequence[Commit],
        report: AuditReport,
    ) -> None:
        self._storage = storage
        self._job = job
        self._keys = keys
        self._by_version = {commit.record.version: commit for commit in commits}
        self._report = report
        self._seen: set[str] = set()

    def run(self) -> None:
        """Check everything that lies below `jobs/JOB/` but the log."""
        self._definition()
        self._payloads()
        self._receipts()
        self._evidence()
        self._checkpoints()
        self._models()
        self._rest()

    def _definition(self) -> None:
        kept = KeptJob(self._storage, self._job)
        for name in kept.names():
            with self._looking_at("job files", name):
                kept.text(name)

    def _payloads(self) -> None:
        payloads = PayloadStore(self._storage, self._job)
        for name in payloads.names():
            with self._looking_at("kept gradients", name):
                payloads.check(name)

    def _receipts(self) -> None:
        receipts = ReceiptStore(self._storage, self._job)
        for name in receipts.names():
            with self._looking_at("receipts", name):
                require_answer(receipts.read(name), self._keys)

    def _evidence(self) -> None:
        store = EvidenceStore(self._storage, self._job)
        for name in store.names():
            with self._looking_at("evidence", name):
                kept = store.read(name)
                charged = charge(kept.evidence, self._keys)
                if (charged.job, charged.round) != (self._job, kept.round):
                    raise DamagedStateError(
                        f"{name}: it is about round {charged.round} of {charged.job}"
                    )

    def _checkpoints(self) -> None:
        store = CheckpointStore(self._storage, self._job)
        for place in store.places():
            files = self._storage.names(f"{place}/")
            self._seen.update(files)
            with self._report.checking("checkpoints"):
                checkpoint, state = store.read(place)
                _require_leaves(place, store.stored(place))
                for file in files:
                    self._require_canonical(file)
                commit = self._by_version.get(checkpoint.version)
                if checkpoint.version > 0 and (
                    commit is None
                    or commit.digest != checkpoint.record_digest
                    or commit.record.state_digest != state.digest()
                ):
                    raise DamagedStateError(f"{place}: it is not of a committed version")

    def _models(self) -> None:
        """Compare exported models with the checkpoints of their versions."""
        store = CheckpointStore(self._storage, self._job)
        places = {store.version_of(place): place for place in store.places()}
        folder = f"jobs/{self._job}/models/"
        for name in self._storage.names(folder):
            version = name.removeprefix(folder).partition(".")[0]
            place = places.get(int(version)) if version.isdigit() else None
            if place is None:
                self._report.notes.append(f"{name} is not checked: no checkpoint of its version")
                self._seen.add(name)
                continue
            with self._looking_at("models", name):
                self._require_canonical(name)
                tensors = decode_tensors(self._storage.read(name, FILE_BYTES_MAX))
                _require_same(name, tensors, store.read(place)[1].tensors)

    def _rest(self) -> None:
        """Tell what nobody looked at; the marks of leaders say nothing about rounds."""
        known = tuple(f"jobs/{self._job}/{part}/" for part in ("log", "records", "leaders"))
        rest = [
            name
            for name in self._storage.names(f"jobs/{self._job}/")
            if name not in self._seen and not name.startswith(known)
        ]
        if rest:
            self._report.notes.append(
                f"{len(rest)} files are of no kind that is checked here, such as {rest[0]}"
            )

    def _looking_at(self, what: str, name: str) -> AbstractContextManager[None]:
        self._seen.add(name)
        return self._report.checking(what)

    def _require_canonical(self, name: str) -> None:
        """Refuse a file that says the right thing in other bytes than we write."""
        if name.endswith(".json"):
            content = self._storage.read(name, MANIFEST_BYTES_MAX)
            written = json.dumps(json.loads(content), indent=1, sort_keys=True).encode()
        elif name.endswith(".safetensors"):
            content = self._storage.read(name, FILE_BYTES_MAX)
            written = b"".join(encode_tensors(decode_tensors(content)))
        else:
            return
        if content != written:
            raise DamagedStateError(f"{name}: its bytes are not those that were written")


def _require_leaves(place: str, stored: StoredState) -> None:
    try:
        hash_tree.ChunkVerifier(stored.leaves, stored.manifest.root, stored.manifest.payload_len)
    except WireError as error:
        raise DamagedStateError(f"{place}: {error}") from error


def _require_same(
    name: str, tensors: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]
) -> None:
    """Compare a model with the training state of its version; tied tensors have one name there."""
    of_model = {
        key.partition("/")[2]: value
        for key, value in state.items()
        if key.startswith(_STATE_OF_MODEL)
    }
    for key, value in of_model.items():
        tensor = tensors.get(key)
        is_same = (
            tensor is not None
            and (tensor.dtype, tensor.shape) == (value.dtype, value.shape)
            and tensor_bytes(tensor) == tensor_bytes(value)
        )
        if not is_same:
            raise DamagedStateError(f"{name}: {key} is not that of its version's checkpoint")
