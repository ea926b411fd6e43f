"""A small job with its user's code, a leader that commits rounds, and processes that crash.

The crashing process kills itself at its k-th system call, for every k there is.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.commit import GENESIS, Commit, CommitRecord, Contribution
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rounds.restoring import Now, Restorable, rollback_entry
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import vector_digest
from pliska.coordinator.wire.job import Job, parse_job
from pliska.coordinator.wire.signing import Signer

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY_ID = "ed25519:leader"

USER_CODE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(width=5):
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))

def data(examples=40):
    inputs = torch.randn(examples, 3)
    targets = (inputs.sum(dim=1) > 0).long()
    return TensorDataset(inputs, targets), TensorDataset(inputs[:10], targets[:10])
"""

JOB = """
name = "tiny"
seed = 7
model = {{ factory = "tiny_task:model" }}
data = {{ factory = "tiny_task:data" }}
rule = {{ {rule} }}
optimizer = {{ {optimizer} }}
rounds = {{ count = 9, workers = 6, quorum = 5 }}
"""


def job_with(
    optimizer: str = 'name = "adam", lr = 0.01', rule: str = 'name = "multi-krum", f = 1'
) -> Job:
    return parse_job(JOB.format(optimizer=optimizer, rule=rule), "tiny.toml")


def key_lookup(key_id: str) -> bytes | None:
    return KEY.public_key().public_bytes_raw() if key_id == KEY_ID else None


def aggregate_of(version: int, d: int, salt: str = "") -> torch.Tensor:
    """Return the same pseudo-random aggregate for a version on every call."""
    seed = int.from_bytes(sha256(f"{version}{salt}".encode()).digest()[:8]) >> 1
    return torch.randn(d, generator=torch.Generator().manual_seed(seed))


class Leader:
    """Commits rounds as a coordinator does: log entry first, then the commit record."""

    def __init__(
        self, job: Job, storage: Storage, epoch: int = 1, signer: Signer | None = None
    ) -> None:
        self.job = job
        self.signer = signer or Signer(KEY, KEY_ID)
        self.storage = storage
        self.epoch = epoch
        self.model = TrainingModel.build(job)
        self.head: Commit | None = None
        self.log = UpdateLog(storage, job.name)
        self.checkpoints = CheckpointStore(storage, job.name)

    def run_round(self, salt: str = "") -> Commit:
        base_digest = self.model.parameters_digest()
        learning_rate = self.model.learning_rate
        before = self.head.record if self.head else None
        version = before.version + 1 if before else 1
        lease = before.cursor.end if before else 0
        aggregate = aggregate_of(version, self.model.dimension, salt)
        self.model.apply(aggregate)
        record = CommitRecord(
            job=self.job.name,
            epoch=self.epoch,
            round=version,
            version=version,
            mode="sync",
            mode_epoch=0,
            base_digest=base_digest,
            parameters_digest=self.model.parameters_digest(),
            state_digest=self.model.state_digest(),
            rule="multi-krum",
            rule_parameters=(("f", "1"),),
            contributions=(
                Contribution(
                    worker="w1",
                    incarnation=bytes(16),
                    lease=lease,
                    payload_root=bytes(32),
                    verdict="kept",
                    weight=1.0,
                    score=0.5,
                    reason="",
                ),
            ),
            cursor=DataCursor(lease + 1),
            learning_rate=learning_rate,
            seed=version,
            aggregate_digest=vector_digest(aggregate),
            undone=before.undone if before else (),
            previous=self.head.digest if self.head else GENESIS,
            issued_at=0.0,
        )
        commit = Commit.sign(record, self.signer)
        self.log.write(commit, aggregate)
        self.head = commit
        return commit

    def roll_back(self, target: Commit, *excluded: str) -> Commit:
        assert self.head is not None
        rollback = Rollback(
            target=target.record.version,
            record_digest=target.digest,
            actor="ann",
            reason="poison",
            excluded=excluded,
        )
        self.model = recover(self.job, target, self.storage).model
        now = Now(self.head, {}, self.epoch, seed=0, issued_at=0.0)
        entry = rollback_entry(now, Restorable(rollback, target, self.model), self.signer)
        self.log.write(entry.commit, entry.aggregate, entry.annex)
        self.head = entry.commit
        return entry.commit

    def rewrite(self, commit: Commit, **changes: Any) -> Commit:
        """Log a commit again with a changed record, as a leader with a bug would."""
        entry = self.log.read(commit.record.version, commit.digest)
        changed = Commit.sign(replace(commit.record, **changes), self.signer)
        self.log.write(changed, entry.aggregate)
        return changed

    def checkpoint(self) -> str:
        digest = self.head.digest if self.head else GENESIS
        state = self.model.export_state()
        version = self.head.record.version if self.head else 0
        self.checkpoints.write(Checkpoint(version, digest, state.digest()), state)
        return self.checkpoints.place(version, digest)


@pytest.fixture
def user_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the small job's module where it can be imported; return its folder."""
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "tiny_task.py").write_text(USER_CODE)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


@pytest.fixture
def tiny_job(user_code: Path) -> Callable[..., Job]:
    """Return the small job, with another optimizer or rule where one is given as TOML."""
    return job_with


@pytest.fixture
def aggregate_at() -> Callable[[int, int], torch.Tensor]:
    """Make the pseudo-random aggregate of a version and dimension."""
    return aggregate_of


@pytest.fixture
def lead(user_code: Path) -> type[Leader]:
    return Leader


@pytest.fixture
def leader_key() -> Callable[[str], bytes | None]:
    """Look up the leader's public key."""
    return key_lookup


CRASHER = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, {here!r})

{source}

STEPS_MAX = 200
# A process that is killed loses nothing that it has written: only a power cut needs the sync.
os.fsync = lambda descriptor: None
CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir", "close")

def die_at(step):
    seen = 0
    def counted(call):
        def run(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == step:
                if call is os_write and len(arguments[1]) > 1:
                    os_write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)
        return run
    os_write = os.write
    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))

for step in range(1, STEPS_MAX):
    directory = Path(sys.argv[1], f"step-{{step:03d}}")
    directory.mkdir()
    prepare(directory)
    child = os.fork()
    if child == 0:
        die_at(step)
        act(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    assert os.WTERMSIG(status) == signal.SIGKILL, status
sys.exit("more steps than the test allows for")
"""


@pytest.fixture
def crash_at_every_step(tmp_path: Path) -> Callable[[str], list[Path]]:
    """Run `act(directory)` of the source in one process per step, killed with SIGKILL there.

    The source also defines `prepare(directory)`, which runs unharmed. Steps are
    calls to the file system; a write is cut in half before the kill. Returns
    the directory of each run, in order; only the last one ran to its end.
    """

    def run(source: str) -> list[Path]:
        top = tmp_path / "crashes"
        top.mkdir()
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                CRASHER.format(source=source, here=str(Path(__file__).parent)),
                str(top),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return sorted(top.iterdir())

    return run
