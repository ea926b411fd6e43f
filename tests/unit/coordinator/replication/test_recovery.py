from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pliska.coordinator.errors import ForkedChainError, MissingObjectError, RecoveryError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.log_entry import LogEntry, LogHead
from pliska.coordinator.replication.following import COPY_AFTER, Place, place_of
from pliska.coordinator.replication.recovery import ORIGIN, Warm, recover
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire.job import Job


class Another:
    """Another coordinator's storage, as a source; notes what it was asked for."""

    def __init__(self, leader: Any) -> None:
        self.archive = Archive(leader.storage, leader.job)
        self.asked: list[str] = []

    def head(self, place: Place) -> LogHead:
        self.asked.append(f"head {place.version}")
        return self.archive.log.head(place.version, place.digest)

    def entry(self, head: LogHead, dimension: int) -> LogEntry:
        commit = head.commit
        assert dimension > 0
        self.asked.append(f"entry {commit.record.version}")
        return self.archive.log.read(commit.record.version, commit.digest)

    def checkpoints(self) -> list[Place]:
        places = self.archive.checkpoints.places()
        found = [self.archive.checkpoints.read(place)[0] for place in places]
        return [Place(each.version, each.record_digest) for each in found]

    def state(self, commit: Commit) -> TrainingState:
        record = commit.record
        self.asked.append(f"state {record.version}")
        return self.archive.checkpoints.read(
            self.archive.checkpoints.place(record.version, commit.digest)
        )[1]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def leader(lead: Any, tiny_job: Any, directory: Path) -> Any:
    return lead(tiny_job(), LocalStorage(directory))


def entry_path(leader: Any, directory: Path, commit: Commit) -> Path:
    return directory / leader.log.name(commit.record.version, commit.digest)


def forget(leader: Any, before: int) -> None:
    """Remove the log entries of all versions below `before`."""
    for name in leader.storage.names("jobs/tiny/log/"):
        if int(name.rpartition("/")[2].partition("-")[0]) < before:
            leader.storage.delete(name)


def run(leader: Any, rounds: int, checkpoint_at: tuple[int, ...] = ()) -> list[Commit]:
    commits = []
    for _ in range(rounds):
        commits.append(leader.run_round())
        if leader.model.step in checkpoint_at:
            leader.checkpoint()
    return commits


def test_without_a_commit_the_job_begins_at_its_seed(tiny_job: Any, leader: Any) -> None:
    recovered = recover(tiny_job(), None, leader.storage)

    assert recovered.version == recovered.start == 0
    assert recovered.model.state_digest() == leader.model.state_digest()


def test_without_a_checkpoint_the_whole_log_is_replayed(tiny_job: Any, leader: Any) -> None:
    run(leader, 5)
    recovered = recover(tiny_job(), leader.head, leader.storage)

    assert (recovered.version, recovered.start, recovered.skipped) == (5, 0, ())
    assert recovered.model.state_digest() == leader.model.state_digest()
    assert recovered.model.step == 5


def test_recovery_begins_at_the_newest_checkpoint(tiny_job: Any, leader: Any) -> None:
    run(leader, 7, checkpoint_at=(2, 5))
    recovered = recover(tiny_job(), leader.head, leader.storage)

    assert (recovered.version, recovered.start) == (7, 5)
    assert recovered.model.state_digest() == leader.model.state_digest()


def test_a_checkpoint_of_the_head_needs_no_log(tiny_job: Any, leader: Any, directory: Path) -> None:
    run(leader, 3, checkpoint_at=(3,))
    forget(leader, before=9)

    assert recover(tiny_job(), leader.head, leader.storage).start == 3


def test_a_recovered_model_goes_on_as_if_nothing_had_happened(
    tiny_job: Any, leader: Any, lead: Any, tmp_path: Path
) -> None:
    undisturbed = lead(tiny_job(), LocalStorage(tmp_path / "other"))
    run(undisturbed, 8)
    run(leader, 5, checkpoint_at=(3,))
    successor = lead(tiny_job(), leader.storage, epoch=2)
    successor.model, successor.head = (
        recover(tiny_job(), leader.head, leader.storage).model,
        leader.head,
    )
    run(successor, 3)

    assert successor.model.state_digest() == undisturbed.model.state_digest()
    recovered = recover(tiny_job(), successor.head, leader.storage)
    assert recovered.model.state_digest() == undisturbed.model.state_digest()


def test_a_changed_learning_rate_is_replayed(tiny_job: Any, leader: Any) -> None:
    run(leader, 2)
    leader.model.learning_rate = 0.003
    run(leader, 2)

    recovered = recover(tiny_job(), leader.head, leader.storage)
    assert recovered.model.state_digest() == leader.model.state_digest()


@pytest.mark.parametrize("checkpoint_at", [(), (3,), (5,)])
def test_what_the_rule_remembers_is_rebuilt(
    tiny_job: Any, lead: Any, directory: Path, checkpoint_at: tuple[int, ...]
) -> None:
    job = tiny_job(rule='name = "centered-clipping", f = 1')
    leader = lead(job, LocalStorage(directory))
    run(leader, 5, checkpoint_at)
    memory = recover(job, leader.head, leader.storage).model.memory

    assert memory is not None
    assert torch.equal(memory["centre"], leader.model.memory["centre"])


@pytest.mark.parametrize("damage", ["flip", "truncate", "no manifest", "no file"])
def test_a_damaged_checkpoint_is_skipped_for_an_older_one(
    tiny_job: Any, leader: Any, directory: Path, damage: str
) -> None:
    run(leader, 6, checkpoint_at=(2, 5))
    place = directory / leader.checkpoints.places()[0]
    data = place / "state-00000.safetensors"
    content = bytearray(data.read_bytes())
    match damage:
        case "flip":
            content[-3] ^= 1
            data.write_bytes(content)
        case "truncate":
            data.write_bytes(content[:-1])
        case "no manifest":
            (place / "manifest.json").unlink()
        case "no file":
            data.unlink()
    recovered = recover(tiny_job(), leader.head, leader.storage)

    assert recovered.start == 2
    assert recovered.model.state_digest() == leader.model.state_digest()
    if damage == "no manifest":
        assert recovered.skipped == ()
    else:
        (reason,) = recovered.skipped
        assert reason.startswith("from version 5: jobs/tiny/checkpoints/000000000005-")


def test_a_checkpoint_off_the_chain_is_not_used(tiny_job: Any, leader: Any, lead: Any) -> None:
    run(leader, 3, checkpoint_at=(1,))
    stale = lead(tiny_job(), leader.storage, epoch=1)
    for _ in range(2):
        stale.run_round(salt="never committed")
    stale.checkpoint()

    recovered = recover(tiny_job(), leader.head, leader.storage)
    assert recovered.start == 1
    assert recovered.model.state_digest() == leader.model.state_digest()


def test_a_checkpoint_with_a_wrong_state_under_the_right_name_is_skipped(
    tiny_job: Any, leader: Any, lead: Any
) -> None:
    run(leader, 4, checkpoint_at=(2,))
    other = lead(tiny_job(), leader.storage)
    run(other, 1)
    other.run_round(salt="other")
    other.head, other.model.step = leader.head, 4
    other.checkpoint()

    recovered = recover(tiny_job(), leader.head, leader.storage)
    assert recovered.start == 2
    assert recovered.skipped == (
        "from version 4: the state of version 4 is not the one that was committed",
    )


def test_a_missing_log_entry_is_named_with_what_to_do(
    tiny_job: Any, leader: Any, directory: Path
) -> None:
    commits = run(leader, 6, checkpoint_at=(2,))
    entry_path(leader, directory, commits[4]).unlink()

    with pytest.raises(RecoveryError) as caught:
        recover(tiny_job(), leader.head, leader.storage)
    assert str(caught.value) == (
        "job tiny: cannot rebuild version 6: the log entry of version 5 is missing; no checkpoint "
        "was found on the way; start a coordinator whose storage has what is missing"
    )


def test_the_entry_of_the_head_must_be_there_too(
    tiny_job: Any, leader: Any, directory: Path
) -> None:
    commits = run(leader, 3, checkpoint_at=(2,))
    entry_path(leader, directory, commits[2]).unlink()

    with pytest.raises(RecoveryError, match="the log entry of version 3 is missing"):
        recover(tiny_job(), leader.head, leader.storage)


def test_a_missing_entry_before_the_checkpoint_does_no_harm(
    tiny_job: Any, leader: Any, directory: Path
) -> None:
    run(leader, 6, checkpoint_at=(4,))
    forget(leader, before=5)

    assert recover(tiny_job(), leader.head, leader.storage).start == 4


@pytest.mark.parametrize("position", [-1, 400])
def test_a_flipped_byte_in_a_needed_entry_is_refused(
    tiny_job: Any, leader: Any, directory: Path, position: int
) -> None:
    commits = run(leader, 4, checkpoint_at=(2,))
    path = entry_path(leader, directory, commits[3])
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)

    with pytest.raises(RecoveryError, match=r"jobs/tiny/log/000000000004-"):
        recover(tiny_job(), leader.head, leader.storage)


def test_an_entry_of_a_stale_leader_is_ignored_and_cannot_take_a_committed_ones_place(
    tiny_job: Any, leader: Any, lead: Any, directory: Path
) -> None:
    commits = run(leader, 2)
    stale = lead(tiny_job(), leader.storage, epoch=1)
    stale.run_round()
    forked = stale.run_round(salt="never committed")
    recovered = recover(tiny_job(), leader.head, leader.storage)
    assert recovered.model.state_digest() == leader.model.state_digest()

    committed = entry_path(leader, directory, commits[1])
    committed.write_bytes(entry_path(leader, directory, forked).read_bytes())
    with pytest.raises(RecoveryError, match="holds another commit record than the committed one"):
        recover(tiny_job(), leader.head, leader.storage)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": 9}, "version 3 is of epoch 1, after epoch 9"),
        ({"round": 3}, "version 3 of round 3 follows version 2 of round 3"),
        ({"parameters_digest": bytes(32)}, "version 3 starts from other parameters than version 2"),
    ],
)
def test_a_log_that_is_not_one_chain_is_refused(
    tiny_job: Any, leader: Any, changes: dict[str, Any], reason: str
) -> None:
    commits = run(leader, 3)
    second = leader.rewrite(commits[1], **changes)
    third = leader.rewrite(commits[2], previous=second.digest)

    with pytest.raises(ForkedChainError, match=f"the log of tiny is not one chain: {reason}"):
        recover(tiny_job(), third, leader.storage)


def test_a_chain_that_does_not_begin_at_genesis_is_refused(tiny_job: Any, leader: Any) -> None:
    (first,) = run(leader, 1)

    with pytest.raises(ForkedChainError, match="version 1 is not the first of its chain"):
        recover(tiny_job(), leader.rewrite(first, previous=b"\1" * 32), leader.storage)


def test_a_state_digest_that_replay_does_not_reach_is_refused(tiny_job: Any, leader: Any) -> None:
    commits = run(leader, 2)
    wrong = leader.rewrite(commits[1], state_digest=bytes(32))

    with pytest.raises(RecoveryError, match="state of version 2 is not the one that was committed"):
        recover(tiny_job(), wrong, leader.storage)


def test_other_first_parameters_say_what_may_have_changed(
    tiny_job: Callable[..., Job], leader: Any
) -> None:
    run(leader, 2)
    job = tiny_job()

    with pytest.raises(RecoveryError, match="has the model's code, its seed or torch changed"):
        recover(replace(job, seed=job.seed + 1), leader.head, leader.storage)


CRASH = """
import shutil

import torch
from conftest import USER_CODE, Leader, job_with, key_lookup
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.pruner import Pruner
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.records.retention import RetentionOptions
from pliska.coordinator.storage.storage import LocalStorage

torch.set_num_threads(1)
user_code = Path(sys.argv[1], "user")
user_code.mkdir()
(user_code / "tiny_task.py").write_text(USER_CODE)
sys.path.insert(0, str(user_code))

def commit_rounds(leader, rounds):
    for _ in range(rounds):
        # As in the store, the commit record comes after its entry and in one step.
        leader.storage.write("head", [leader.run_round().to_bytes()])
        if leader.model.step % 2 == 0:
            leader.checkpoint()
            pruner = Pruner(leader.log, leader.checkpoints, RetentionOptions(1, 0))
            pruner.prune(leader.head, leader.model.step)

template = Path(sys.argv[1], "template")
commit_rounds(Leader(job_with(), LocalStorage(template)), 3)

def prepare(directory):
    shutil.copytree(template, directory, dirs_exist_ok=True)

def act(directory):
    storage = LocalStorage(directory)
    leader = Leader(job_with(), storage, epoch=2)
    leader.head = Commit.verified(storage.read("head", 2**20), "tiny", key_lookup)
    leader.model = recover(job_with(), leader.head, storage).model
    commit_rounds(leader, 1)
"""


def test_a_kill_at_any_step_loses_no_committed_round(
    crash_at_every_step: Callable[[str], list[Path]],
    tiny_job: Any,
    lead: Any,
    leader_key: Callable[[str], bytes | None],
    tmp_path: Path,
) -> None:
    runs = [each for each in crash_at_every_step(CRASH) if each.name.startswith("step-")]
    undisturbed = lead(tiny_job(), LocalStorage(tmp_path / "undisturbed"))
    states = [undisturbed.model.state_digest()]
    for _ in range(4):
        undisturbed.run_round()
        states.append(undisturbed.model.state_digest())

    assert len(runs) > 40
    versions = []
    for each in runs:
        storage = LocalStorage(each)
        head = Commit.verified(storage.read("head", 2**20), "tiny", leader_key)
        recovered = recover(tiny_job(), head, storage)
        versions.append(recovered.version)
        assert recovered.model.state_digest() == states[recovered.version], each.name
        assert recovered.skipped == (), each.name
    assert set(versions) == {3, 4}
    assert versions == sorted(versions), "once committed, a round stays committed"


@pytest.fixture
def empty(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "empty")


def test_what_is_missing_is_fetched_and_kept(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    run(leader, COPY_AFTER)
    another = Another(leader)
    recovered = recover(tiny_job(), leader.head, empty, another)
    assert recovered.model.state_digest() == leader.model.state_digest()
    assert recovered.start == 0
    entries = [each for each in another.asked if each.startswith("entry")]
    assert entries == [f"entry {version}" for version in range(1, COPY_AFTER + 1)]
    # From now on it needs nobody.
    again = recover(tiny_job(), leader.head, empty)
    assert again.model.state_digest() == leader.model.state_digest()


def test_one_checkpoint_is_fetched_rather_than_many_entries(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    run(leader, 9, checkpoint_at=(3, 7))
    another = Another(leader)
    recovered = recover(tiny_job(), leader.head, empty, another)
    assert recovered.model.state_digest() == leader.model.state_digest()
    assert [each for each in another.asked if not each.startswith("head")] == [
        "state 7",
        "entry 8",
        "entry 9",
    ]
    assert recover(tiny_job(), leader.head, empty).start == 7


def test_one_who_fell_behind_a_little_fetches_only_what_it_missed(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    run(leader, 5, checkpoint_at=(5,))
    recover(tiny_job(), leader.head, empty, Another(leader))
    run(leader, 2, checkpoint_at=(6,))
    another = Another(leader)
    recover(tiny_job(), leader.head, empty, another)
    assert [each for each in another.asked if not each.startswith("head")] == ["entry 6", "entry 7"]


def test_a_checkpoint_is_fetched_where_aggregates_are_gone_everywhere(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    commits = run(leader, 4, checkpoint_at=(3,))
    for commit in commits[:3]:
        leader.log.shrink(commit.record.version, commit.digest)
    recovered = recover(tiny_job(), leader.head, empty, Another(leader))
    assert (recovered.version, recovered.start) == (4, 3)


def test_a_model_in_memory_goes_on_from_where_it_is(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    run(leader, 2)
    first = recover(tiny_job(), leader.head, leader.storage)
    assert first.head is not None
    warm = Warm(first.model, place_of(first.head))
    run(leader, 3)
    recovered = recover(tiny_job(), leader.head, leader.storage, warm=warm)
    assert recovered.model is first.model
    assert recovered.start == 2
    assert recovered.model.state_digest() == leader.model.state_digest()
    fresh = TrainingModel.build(tiny_job())
    assert recover(tiny_job(), None, empty, warm=Warm(fresh, ORIGIN)).model is fresh


def test_a_model_in_memory_that_is_not_on_the_chain_is_left_aside(
    tiny_job: Any, leader: Any, lead: Any
) -> None:
    run(leader, 3)
    stray = lead(tiny_job(), leader.storage)
    strayed = [stray.run_round("other"), stray.run_round("other")]
    recovered = recover(
        tiny_job(), leader.head, leader.storage, warm=Warm(stray.model, place_of(strayed[-1]))
    )
    assert recovered.model is not stray.model
    assert recovered.model.state_digest() == leader.model.state_digest()


def test_a_model_in_memory_that_went_astray_is_replaced(tiny_job: Any, leader: Any) -> None:
    run(leader, 2)
    first = recover(tiny_job(), leader.head, leader.storage)
    assert first.head is not None
    first.model.apply(torch.ones(first.model.dimension))
    warm = Warm(first.model, place_of(first.head))
    run(leader, 1)
    recovered = recover(tiny_job(), leader.head, leader.storage, warm=warm)
    assert recovered.model is not first.model
    assert recovered.skipped[0].startswith("from version 2: ")
    assert recovered.model.state_digest() == leader.model.state_digest()


def test_when_nobody_has_what_is_missing_both_are_told(
    tiny_job: Any, leader: Any, empty: LocalStorage
) -> None:
    commits = run(leader, 3)
    leader.log.shrink(2, commits[1].digest)
    with pytest.raises(RecoveryError, match=r"nothing is stored under this name"):
        recover(tiny_job(), leader.head, empty, Another(leader))

    class Nobody(Another):
        def head(self, place: Place) -> LogHead:
            raise MissingObjectError(f"c2: cannot connect; c3: has no version {place.version}")

    with pytest.raises(
        RecoveryError, match=r"is missing; c2: cannot connect; c3: has no version 3"
    ):
        recover(tiny_job(), leader.head, LocalStorage(empty._root / "other"), Nobody(leader))
