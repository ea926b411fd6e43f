"""A sealed round is combined by the rule or by the filter, as it says itself."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from training.toy_job import toy_job

from pliska.aggregation import TooManyBadRowsError, Verdict, rule_named
from pliska.coordinator.combiner import Combined, Combiner
from pliska.coordinator.records.commit import FILTER
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.round_events import Filtered
from pliska.coordinator.rounds.round_state import Offered, Sealed, Slot, SlotState

D = 8
LIFE = b"1" * 16
WORKERS = ("w1", "w2", "w3", "w4")


def combiner_of(buffers: int = 1) -> Combiner:
    rule = 'name = "trimmed-mean", f = 1'
    more = f"[asynchronous]\nbuffers = {buffers}"
    job = toy_job(workers=4, quorum=3, rule=rule, more=more)
    made = rule_named(job.rule.name, **job.rule.parameters)
    return Combiner(job, made, Gatherings.of_job(job, made, 8))


def sealed_of(
    number: int,
    made_for: Mapping[str, int],
    mode: Mode = Mode.ASYNCHRONOUS,
    *,
    places: Mapping[str, int] | None = None,
    is_filtered: bool = False,
    states: Mapping[str, SlotState] | None = None,
) -> Sealed:
    slots = {
        worker: Slot(
            Offered(worker, LIFE, worker.encode() * 16, round_number, lease),
            (states or {}).get(worker, SlotState.FILLED),
            "its reason",
        )
        for lease, (worker, round_number) in enumerate(made_for.items())
    }
    members = dict.fromkeys(WORKERS, LIFE)
    return Sealed(
        number, 0.0, ModeSetting(mode), members, slots, places or {}, is_filtered=is_filtered
    )


def constant(**values: float) -> dict[str, Tensor]:
    return {worker: torch.full((D,), value) for worker, value in values.items()}


def combined(outcome: Combined | Filtered) -> Combined:
    assert isinstance(outcome, Combined)
    return outcome


def test_hybrid_round_damps_what_is_late_and_names_the_rule() -> None:
    sealed = sealed_of(5, {"w1": 5, "w2": 4, "w3": 2}, Mode.HYBRID)
    made = combined(combiner_of().combine(sealed, constant(w1=1.0, w2=1.0, w3=1.0), 1, None))
    assert made.dampings == {"w1": 1.0, "w2": 2**-0.5, "w3": 0.5}
    assert made.rule == "trimmed-mean"
    assert made.parameters == (("f", "1"),)
    assert torch.allclose(made.vector, torch.full((D,), 2**-0.5))  # the middle one of the three


def test_refused_gradients_spend_the_rules_f_in_every_mode() -> None:
    states = {"w1": SlotState.REFUSED, "w2": SlotState.FROZEN}
    for mode in Mode:
        sealed = sealed_of(5, dict.fromkeys(WORKERS, 5), mode, states=states)
        with pytest.raises(TooManyBadRowsError, match="its reason"):
            combiner_of().combine(sealed, constant(w3=1.0, w4=1.0), 1, None)


class Descent:
    """Rounds of single gradients after one that primed the filter."""

    def __init__(self) -> None:
        self.combiner = combiner_of()
        self.model = torch.ones(D)
        self.version = 0
        self.combiner.publish(0, self.model)
        priming = sealed_of(1, dict.fromkeys(WORKERS, 1))
        values = {worker: self.model.clone() for worker in WORKERS}
        self.step(combined(self.combiner.combine(priming, values, 1, None)).vector)

    def step(self, along: Tensor) -> None:
        self.version += 1
        self.model = self.model - 0.1 * along
        self.combiner.publish(self.version, self.model)

    def offer(self, values: Mapping[str, Tensor], **states: SlotState) -> Combined | Filtered:
        number = self.version + 1
        sealed = sealed_of(
            number,
            {**dict.fromkeys(values, number), **dict.fromkeys(states, number)},
            places=dict.fromkeys([*values, *states], 0),
            is_filtered=True,
            states=states,
        )
        outcome = self.combiner.combine(sealed, values, 1, None)
        if isinstance(outcome, Combined):
            self.step(outcome.vector)
        return outcome


def test_single_gradients_that_pass_the_filter_make_versions() -> None:
    descent = Descent()
    rules = []
    for turn in range(12):
        worker = WORKERS[turn % 4]
        outcome = descent.offer({worker: descent.model.clone()})
        if isinstance(outcome, Combined):
            rules.append(outcome.rule)
            assert outcome.parameters == (("f", "1"), ("n", "4"))
            assert [entry.worker for entry in outcome.report] == [worker]
    assert len(rules) >= 8
    assert set(rules) == {FILTER}


def test_gradient_that_does_not_pass_is_reported_with_the_next_one_that_does() -> None:
    descent = Descent()
    for turn in range(8):
        descent.offer({WORKERS[turn % 4]: descent.model.clone()})
    wild = descent.offer({"w1": 1e3 * descent.model})
    assert isinstance(wild, Filtered)
    assert "change too fast" in wild.reasons["w1"]
    for worker in ("w2", "w3", "w4"):
        outcome = descent.offer({worker: descent.model.clone()}, w1=SlotState.OUTVOTED)
        if isinstance(outcome, Combined):
            break
    report = {entry.worker: entry for entry in combined(outcome).report}
    assert report["w1"].verdict is Verdict.OUTVOTED
    assert report["w1"].score > 100
    assert report["w1"].weight == 0.0


def test_gradient_of_bad_content_is_refused_in_a_filtered_round_too() -> None:
    descent = Descent()
    for turn in range(8):
        descent.offer({WORKERS[turn % 4]: descent.model.clone()})
    for worker in ("w1", "w2", "w3"):
        outcome = descent.offer({worker: descent.model.clone()}, w4=SlotState.REFUSED)
        if isinstance(outcome, Combined):
            report = {entry.worker: entry.verdict for entry in outcome.report}
            assert report["w4"] is Verdict.REFUSED
            return
    raise AssertionError("nobody passed")


def test_buffered_rounds_have_no_use_for_the_filter() -> None:
    combiner = combiner_of(buffers=3)
    sealed = sealed_of(
        5, dict.fromkeys(WORKERS, 5), places=dict(zip(WORKERS, (0, 1, 2, 0), strict=True))
    )
    values = constant(w1=1.0, w2=2.0, w3=9.0, w4=3.0)
    made = combined(combiner.combine(sealed, values, 1, None))
    assert made.rule == "trimmed-mean"
    assert torch.allclose(made.vector, torch.full((D,), 2.0))
