"""The filter on single gradients, with the vectors that it compares."""

import pytest
import torch
from torch import Tensor

from pliska.aggregation import Verdict
from pliska.coordinator.rounds import lipschitz
from pliska.coordinator.rounds.lipschitz import Candidate, LipschitzFilter

D = 30
N, F = 7, 2


class Run:
    """Descends on |x|^2 / 2 with seven workers, of which two lie; each gradient makes a version."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.filter = LipschitzFilter()
        self.models = [torch.ones(D)]
        self.filter.publish(0, self.models[0], 8)
        self.filter.prime([self.candidate(f"w{number}", 0) for number in range(N)])
        self.step(self.models[0])

    def gradient(self, worker: str, version: int) -> Tensor:
        honest = self.models[version] + 0.05 * torch.randn(D, generator=self.generator)
        return 1e3 * (-1.0) ** version * honest if worker in ("w0", "w1") else honest

    def candidate(self, worker: str, version: int) -> Candidate:
        return Candidate(worker, self.gradient(worker, version), version)

    def step(self, along: Tensor) -> None:
        self.models.append(self.models[-1] - 0.1 * along)
        self.filter.publish(len(self.models) - 1, self.models[-1], 8)

    @property
    def head(self) -> int:
        return len(self.models) - 1

    def run_until(self, head: int) -> None:
        """Let the honest take turns."""
        for turn in range(1000):
            if self.head >= head:
                return
            self.offer(f"w{2 + turn % (N - 2)}")
        raise AssertionError(f"version {head} was never made; the last is {self.head}")

    def offer(self, worker: str, version: int | None = None) -> Verdict:
        candidate = self.candidate(worker, self.head if version is None else version)
        report = self.filter.judge([candidate], self.head, N, F)[worker]
        if report.verdict is Verdict.KEPT:
            self.step(candidate.values)
        return report.verdict


def test_training_converges_although_liars_send_ten_times_as_often() -> None:
    run = Run()
    kept = {f"w{number}": 0 for number in range(N)}
    for turn in range(900):
        honest = 2 + int(torch.randint(N - 2, (1,), generator=run.generator))
        worker = f"w{turn % 2}" if turn % 3 else f"w{honest}"
        kept[worker] += run.offer(worker) is Verdict.KEPT
    assert float(run.models[-1].norm()) < 0.5
    assert kept["w0"] + kept["w1"] <= 0.02 * sum(kept.values())


def test_workers_first_gradient_is_not_taken_and_the_second_is_compared_with_it() -> None:
    run = Run()
    run.run_until(8)
    first = run.filter.judge([run.candidate("new", run.head)], run.head, N, F)["new"]
    assert first.verdict is Verdict.OUTVOTED
    assert "nothing to compare" in first.reason
    verdicts = set()
    for head in range(9, 40):
        run.run_until(head)
        verdicts.add(run.offer("new"))
    assert Verdict.KEPT in verdicts


def test_gradient_on_a_model_that_is_forgotten_cannot_be_judged() -> None:
    run = Run()
    run.run_until(12)
    report = run.filter.judge([run.candidate("w2", 1)], run.head, N, F)["w2"]
    assert report.verdict is Verdict.OUTVOTED
    assert "nothing to compare" in report.reason


def test_several_at_once_are_judged_as_if_they_had_come_one_after_the_other() -> None:
    together, apart = Run(3), Run(3)
    candidates = [together.candidate(f"w{number}", 1) for number in range(N)]
    same = [apart.candidate(f"w{number}", 1) for number in range(N)]
    at_once = together.filter.judge(candidates[::-1], 1, N, F)
    in_turn = {
        each.worker: apart.filter.judge([each], 1, N, F)[each.worker].verdict for each in same
    }
    assert {worker: report.verdict for worker, report in at_once.items()} == in_turn


def test_a_worker_whose_gradient_the_rule_did_not_keep_begins_anew() -> None:
    run = Run()
    run.run_until(8)
    run.filter.keep({f"w{number}" for number in range(N)} - {"w4"})
    assert run.offer("w4") is Verdict.OUTVOTED
    report = run.filter.judge([run.candidate("w2", run.head)], run.head, N, F)["w2"]
    assert "nothing to compare" not in report.reason


def test_distance_is_the_same_however_it_is_cut_into_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = torch.randn(1001), torch.randn(1001)
    expected = float((a.double() - b.double()).norm())
    for block in (1, 7, 1000, 1001, 5000):
        monkeypatch.setattr(lipschitz, "BLOCK_ELEMENTS", block)
        assert lipschitz._distance(a, b) == pytest.approx(expected, rel=1e-12)


def test_inputs_are_not_changed_and_not_kept() -> None:
    run = Run()
    run.run_until(8)
    candidate = run.candidate("w2", run.head)
    before = candidate.values.clone()
    run.filter.judge([candidate], run.head, N, F)
    assert torch.equal(candidate.values, before)
    candidate.values.fill_(float("nan"))
    run.step(torch.zeros(D) + 0.01)
    report = run.filter.judge([run.candidate("w3", run.head)], run.head, N, F)["w3"]
    assert "not finite" not in report.reason
