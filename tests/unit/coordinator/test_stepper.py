"""The numerical work of a round, from rows to a commit, called by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training.leadership import LIFE, Lead
from training.toy_job import toy_job

from pliska.aggregation import AggregationError, rule_named
from pliska.coordinator.combiner import Combiner
from pliska.coordinator.docket import Docket
from pliska.coordinator.records.attendance import Attendance
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.records.commit import GENESIS, CommitRecord
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.records.mode import ModeSetting
from pliska.coordinator.records.recent_rounds import RecentRounds
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.ledger import Ledger, NoCopies, due
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.round_state import Offered, Sealed, Slot, SlotState
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.training.model import TrainingModel

WORKERS = ("w1", "w2", "w3")


@dataclass
class Bench:
    """A stepper, and what it writes to."""

    lead: Lead
    stepper: Stepper
    model: TrainingModel
    checkpoints: CheckpointWriter

    def aggregate(self, value: float = 1.0, refused: Mapping[str, str] | None = None) -> None:
        refused = refused or {}
        number = self.stepper.head.version + 1
        first = self.stepper.cursor.end
        offers = {
            worker: Offered(worker, LIFE, worker.encode() * 16, number, first + place)
            for place, worker in enumerate(WORKERS)
        }
        slots = {
            worker: Slot(offer, SlotState.REFUSED, refused[worker])
            if worker in refused
            else Slot(offer, SlotState.FILLED)
            for worker, offer in offers.items()
        }
        sealed = Sealed(number, 0.0, ModeSetting(), dict.fromkeys(WORKERS, LIFE), slots)
        rows = {w: torch.full((self.model.dimension,), value) for w in sealed.contributors}
        self.stepper.aggregate(sealed, rows, Attendance())

    def round(self, value: float = 1.0, refused: Mapping[str, str] | None = None) -> CommitRecord:
        self.aggregate(value, refused)
        self.stepper.commit()
        self.stepper.advance()
        assert self.stepper.last_commit is not None
        return self.stepper.last_commit.record


@pytest.fixture
def bench(lead_toy: Callable[..., Lead]) -> Bench:
    return bench_with('name = "trimmed-mean", f = 1', lead_toy)


def bench_with(rule: str, lead_toy: Callable[..., Lead]) -> Bench:
    lead = lead_toy(rule=rule)
    job, model = lead.job, TrainingModel.build(lead.job)
    checkpoints = CheckpointWriter(
        CheckpointStore(lead.storage, job.name), lambda: None, lambda _: None
    )
    ledger = Ledger(
        UpdateLog(lead.storage, job.name),
        NoCopies(),
        Committer(lead.directory, lead.campaign(), None, lead.identity.signer),
        None,
        due(job.durable.every, job.checkpoint.every, job.rounds.count),
    )
    rule_ = rule_named(job.rule.name, **job.rule.parameters)
    stepper = Stepper(
        job=job,
        epoch=9,
        combiner=Combiner(job, rule_, Gatherings.of_job(job, rule_, 8)),
        model=model,
        head=None,
        recent=RecentRounds(0, model.parameters_digest()),
        standings={},
        docket=Docket(),
        ledger=ledger,
        storage=lead.storage,
        checkpoints=checkpoints,
        signer=lead.identity.signer,
        wall_time=lambda: 123.0,
    )
    return Bench(lead, stepper, model, checkpoints)


def test_commit_record_says_what_made_the_version(bench: Bench) -> None:
    base = bench.stepper.head.parameters_digest
    record = bench.round()
    assert (record.epoch, record.round, record.version) == (9, 1, 1)
    assert (record.base_digest, record.previous) == (base, GENESIS)
    assert record.parameters_digest == bench.model.parameters_digest()
    assert record.state_digest == bench.model.state_digest()
    assert record.rule == "trimmed-mean"
    assert record.rule_parameters == (("f", "1"),)
    assert record.learning_rate == 0.1
    assert record.issued_at == 123.0
    assert [each.worker for each in record.contributions] == list(WORKERS)
    assert {each.incarnation for each in record.contributions} == {LIFE}
    assert record.contributions[1].payload_root == b"w2" * 16
    following = bench.round()
    assert bench.stepper.last_commit is not None
    assert following.base_digest == record.parameters_digest
    assert following.previous != record.previous


def test_refused_content_is_recorded_with_its_reason_and_counts_against_its_worker(
    bench: Bench,
) -> None:
    record = bench.round(refused={"w2": "the gradient holds nan"})
    verdicts = {each.worker: (each.verdict, each.reason) for each in record.contributions}
    assert verdicts["w2"] == ("refused", "the gradient holds nan")
    assert bench.stepper.standings["w2"].offences == 1
    assert bench.stepper.standings["w1"].offences == 0
    settled = {worker: bench.stepper.recent.settled(1, worker) for worker in WORKERS}
    assert {worker for worker, each in settled.items() if each and each.is_counted} == {"w1", "w3"}


def test_head_moves_only_when_the_step_is_committed(bench: Bench) -> None:
    before = bench.stepper.head
    bench.aggregate()
    assert bench.stepper.head is before
    bench.stepper.commit()
    assert bench.lead.directory.committed_version() == 1
    assert bench.stepper.head is before
    assert bench.stepper.recent.settled(1, "w1") is None
    bench.stepper.advance()
    assert bench.stepper.head.version == 1


def test_log_entry_is_written_before_the_commit(bench: Bench) -> None:
    bench.aggregate()
    bench.lead.session.close()  # deposed: the commit is refused
    with pytest.raises(Exception, match="no longer held"):
        bench.stepper.commit()
    (entry,) = bench.lead.storage.names("jobs/toy/log/")
    assert entry.startswith("jobs/toy/log/000000000001-")
    assert bench.lead.directory.committed_version() == 0


def test_rows_that_the_rule_refuses_leave_the_model_as_it_was(bench: Bench) -> None:
    before = bench.model.state_digest()
    with pytest.raises(AggregationError):
        bench.aggregate(refused={"w1": "NaN", "w2": "NaN"})
    assert bench.model.state_digest() == before


def test_a_rule_is_given_what_it_remembered(lead_toy: Callable[..., Lead]) -> None:
    bench = bench_with('name = "centered-clipping", f = 1, tau = 1.0, iterations = 1', lead_toy)
    bench.round(5.0)  # starts where the rows agree
    assert bench.model.memory is not None
    start = bench.model.memory["centre"].clone()
    bench.round(-5.0)  # far from there: one step of length tau
    moved = bench.model.memory["centre"] - start
    assert torch.equal(start, torch.full_like(start, 5.0))
    assert float(moved.norm()) == pytest.approx(1.0)


def test_published_version_is_the_committed_one(bench: Bench) -> None:
    bench.round()
    published = bench.stepper.publish(is_final=False)
    assert (published.version, published.is_final) == (1, False)
    assert published.digest == bench.stepper.head.parameters_digest
    assert published.parameters == bench.model.parameters().numpy().tobytes()


def test_checkpoints_are_written_at_every_third_version_and_at_the_last(bench: Bench) -> None:
    for version in range(1, 6):
        bench.round()
        bench.stepper.publish(is_final=version == 5)
    bench.checkpoints.flush()
    places = CheckpointStore(bench.lead.storage, "toy").places()
    assert sorted(int(place.rpartition("/")[2].partition("-")[0]) for place in places) == [3, 5]


def test_last_version_is_a_safetensors_file_of_the_modules_state_dict(bench: Bench) -> None:
    bench.round()
    assert bench.stepper.model_file is None
    bench.stepper.publish(is_final=True)
    assert bench.stepper.model_file == "jobs/toy/models/000000000001.safetensors"
    written = load_file(Path(bench.lead.folder) / "storage" / bench.stepper.model_file)
    expected = bench.model.named_parameters()
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], expected[name]) for name in expected)


def test_commit_in_the_store_is_signed_by_the_coordinator(bench: Bench) -> None:
    record = bench.round()
    stored = bench.lead.directory.commit()
    assert stored is not None
    key = bench.lead.directory.keyring.find(bench.lead.identity.key_id)
    assert key is not None
    tip = Tip.verified(stored.value, toy_job().name, {key.key_id: key.public_key}.get)
    assert bench.stepper.last_commit is not None
    assert tip == Tip.of(bench.stepper.last_commit)
    assert bench.stepper.last_commit.record == record
