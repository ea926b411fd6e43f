"""From rows to one vector, in the round and in its replay."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from training.records import contribution, record

from pliska.aggregation import BoundError, TooManyBadRowsError, Verdict, rule_named
from pliska.coordinator.records.commit import FILTER, Contribution
from pliska.coordinator.rounds.combination import (
    Outcast,
    Row,
    combine,
    combine_filtered,
    recombine,
)

D = 6
TRIMMED = rule_named("trimmed-mean", f=1)


def gradients(count: int, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"w{number}": torch.randn(D, generator=generator) for number in range(count)}


def rows_of(values: Mapping[str, Tensor], **changed: Row) -> list[Row]:
    return [changed.get(worker, Row(worker, vector)) for worker, vector in values.items()]


def test_rows_without_age_or_buffer_are_what_the_rule_sees() -> None:
    values = gradients(5)
    combined = combine(rows_of(values)[::-1], [], TRIMMED, seed=3)
    assert torch.equal(combined.vector, TRIMMED(list(values.values()), list(values)).vector)
    assert [entry.worker for entry in combined.report] == sorted(values)


def test_late_gradient_is_damped_and_stays_what_it_was() -> None:
    values = gradients(3)
    before = values["w1"].clone()
    late = Row("w1", values["w1"], damping=0.5)
    combined = combine(rows_of(values, w1=late), [], rule_named("mean"), seed=0)
    expected = (values["w0"] + values["w1"] * 0.5 + values["w2"]) / 3
    assert torch.allclose(combined.vector, expected)
    assert torch.equal(values["w1"], before)


def test_refused_gradient_spends_one_of_f() -> None:
    values = gradients(4)
    combined = combine(rows_of(values), [Outcast("w9", "NaN")], TRIMMED, seed=0)
    verdicts = {entry.worker: entry.verdict for entry in combined.report}
    assert verdicts["w9"] is Verdict.REFUSED
    with pytest.raises(TooManyBadRowsError):
        combine(rows_of(values), [Outcast("w8", "NaN"), Outcast("w9", "NaN")], TRIMMED, seed=0)


def test_rule_sees_the_means_of_buffers() -> None:
    values = gradients(5)
    rows = [
        Row(worker, vector, 1.0, place % 3) for place, (worker, vector) in enumerate(values.items())
    ]
    combined = combine(rows, [], TRIMMED, seed=0)
    means = [
        (values["w0"] + values["w3"]) / 2,
        (values["w1"] + values["w4"]) / 2,
        values["w2"],
    ]
    assert torch.allclose(combined.vector, TRIMMED(means).vector)
    assert [entry.worker for entry in combined.report] == sorted(values)
    assert sum(entry.weight for entry in combined.report) == pytest.approx(1.0)
    by_worker = {entry.worker: entry for entry in combined.report}
    assert by_worker["w0"].weight == by_worker["w3"].weight
    assert by_worker["w0"].reason.startswith("buffer-0: ")


def test_liar_spoils_its_own_buffer_only() -> None:
    values = gradients(6)
    values["w0"] = torch.full((D,), 1e6)
    rows = [
        Row(worker, vector, 1.0, place % 3) for place, (worker, vector) in enumerate(values.items())
    ]
    combined = combine(rows, [], TRIMMED, seed=0)
    assert float(combined.vector.abs().max()) < 10
    # What shares the buffer with it is lost with it.
    outvoted = {e.worker for e in combined.report if e.weight == 0 or e.score > 100}
    assert outvoted == {"w0", "w3"}


def test_buffer_of_which_nothing_is_left_spends_one_of_f() -> None:
    values = gradients(3)
    rows = [
        Row(worker, vector, 1.0, place) for place, (worker, vector) in enumerate(values.items())
    ]
    combined = combine(rows, [Outcast("w8", "NaN", 3)], TRIMMED, seed=0)
    assert {entry.worker for entry in combined.report} == {"w0", "w1", "w2", "w8"}
    # A buffer that still has a gradient is not lost with its bad one.
    shared = combine(rows, [Outcast("w8", "NaN", 0), Outcast("w9", "NaN", 1)], TRIMMED, seed=0)
    assert torch.equal(shared.vector, combine(rows, [], TRIMMED, seed=0).vector)
    with pytest.raises(TooManyBadRowsError):
        combine(rows, [Outcast("w8", "NaN", 3), Outcast("w9", "NaN", 4)], TRIMMED, seed=0)


def test_too_few_buffers_are_an_error_and_never_the_mean() -> None:
    values = gradients(4)
    rows = [
        Row(worker, vector, 1.0, place % 2) for place, (worker, vector) in enumerate(values.items())
    ]
    with pytest.raises(BoundError):
        combine(rows, [], TRIMMED, seed=0)


def test_what_passed_the_filter_is_averaged() -> None:
    values = gradients(2)
    rows = [Row("w1", values["w1"], 0.5), Row("w0", values["w0"])]
    assert torch.allclose(combine_filtered(rows), (values["w0"] + 0.5 * values["w1"]) / 2)
    one = combine_filtered(rows[1:])
    assert torch.equal(one, values["w0"])
    one.add_(1)
    assert not torch.equal(one, values["w0"])


def recorded(rule: str, parameters: tuple[tuple[str, str], ...], *made: Contribution) -> Tensor:
    """Combine again what a record says, from the same gradients."""
    entry = record(5, made, rule=rule, rule_parameters=parameters, seed=5)
    return recombine(entry, gradients(5)).vector


@pytest.mark.parametrize("buffers", [None, 3])
@pytest.mark.parametrize("rule", ["trimmed-mean", "multi-krum", "geometric-median"])
def test_record_and_gradients_give_the_same_bytes_again(rule: str, buffers: int | None) -> None:
    f, values = (1 if buffers is None and rule != "multi-krum" else 0), gradients(5)
    rows = [
        Row(worker, vector, (1 + place) ** -0.5, None if buffers is None else place % buffers)
        for place, (worker, vector) in enumerate(values.items())
    ]
    combined = combine(
        rows, [Outcast("w9", "NaN", buffers and 0)] if f else [], rule_named(rule, f=f), 5
    )
    made = [
        contribution(
            row.worker, 5, lag=place, damping=row.damping, buffer=row.buffer, verdict="outvoted"
        )
        for place, row in enumerate(rows)
    ]
    if f:
        made.append(contribution("w9", 5, verdict="refused", reason="NaN", buffer=buffers and 0))
    again = recorded(rule, (("f", str(f)),), *made)
    assert torch.equal(again, combined.vector)


def test_filtered_round_is_recombined_from_what_the_record_says_passed() -> None:
    values = gradients(5)
    passed = [contribution("w1", 5, weight=0.5), contribution("w3", 5, lag=3, damping=0.5)]
    outvoted = contribution("w0", 5, verdict="outvoted", weight=0.0)
    entry = record(5, [outvoted, *passed], rule=FILTER, rule_parameters=(("f", "1"), ("n", "5")))
    again = recombine(entry, gradients(5))
    expected = combine_filtered([Row("w1", values["w1"]), Row("w3", values["w3"], 0.5)])
    assert torch.equal(again.vector, expected)
    assert [entry.verdict for entry in again.report] == [
        Verdict.OUTVOTED,
        Verdict.KEPT,
        Verdict.KEPT,
    ]
    assert replace(passed[0]).weight == again.report[1].weight
