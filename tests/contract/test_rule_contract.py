"""What every rule in the catalogue promises, whatever its formula."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from pliska.aggregation import (
    SCORE_MAX,
    Aggregation,
    BoundError,
    GradientBuffer,
    Rule,
    TooManyBadRowsError,
    Verdict,
    rule_named,
    rule_names,
)

ROBUST = [name for name in rule_names() if name != "mean"]
WORKERS = [f"w{i}" for i in range(1, 12)]

ordinary = st.floats(-1e3, 1e3, width=32)
matrices = hnp.arrays(
    np.float32, st.tuples(st.integers(7, 11), st.integers(1, 9)), elements=ordinary
)


def rows_of(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=rule_names())
def rule(request: pytest.FixtureRequest) -> Rule:
    return rule_named(request.param, f=2)


@pytest.fixture(params=ROBUST)
def robust(request: pytest.FixtureRequest) -> Rule:
    return rule_named(request.param, f=2)


def weighted(result: Aggregation[Tensor]) -> set[str]:
    return {entry.worker for entry in result.report if entry.weight > 0}


@given(matrix=matrices, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", rule_names())
def test_any_arrival_order_gives_the_same_bytes(name: str, matrix: np.ndarray, seed: int) -> None:
    rows, workers = torch.from_numpy(matrix), WORKERS[: len(matrix)]
    order = np.random.default_rng(seed).permutation(len(matrix))
    first = rule_named(name, f=2)(rows, worker_ids=workers)
    second = rule_named(name, f=2)(rows[order], worker_ids=[workers[i] for i in order])
    assert first.vector.numpy().tobytes() == second.vector.numpy().tobytes()
    assert first.report == second.report


@given(matrix=matrices, shift=ordinary, power=st.integers(-6, 6), negate=st.booleans())
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", rule_names())
def test_shifting_and_scaling_all_rows_shifts_and_scales_the_aggregate(
    name: str, matrix: np.ndarray, shift: float, power: int, negate: bool
) -> None:
    # In float64 and with a power of two, so that no rounding changes which row wins.
    rows = torch.from_numpy(matrix).double().round()
    scale = 2.0**power * (-1 if negate else 1)
    moved = rows * scale + round(shift)
    expected = rule_named(name, f=2)(rows).vector * scale + round(shift)
    assert torch.allclose(rule_named(name, f=2)(moved).vector, expected, atol=1e-9, rtol=1e-12)


@given(
    honest=hnp.arrays(np.float32, (7, 5), elements=st.floats(-1, 1, width=32)),
    lies=hnp.arrays(
        np.float32,
        (2, 5),
        elements=st.one_of(
            st.floats(width=32),
            st.sampled_from([math.nan, math.inf, -math.inf, 1e38, -1e38, 3.4e38, -3.4e38]),
        ),
    ),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ROBUST)
def test_f_arbitrary_rows_cannot_move_the_aggregate_far(
    name: str, honest: np.ndarray, lies: np.ndarray
) -> None:
    result = rule_named(name, f=2)(torch.from_numpy(np.vstack([lies, honest])))
    assert torch.isfinite(result.vector).all()
    # Krum may choose a lie, but only one that sits within reach of honest rows.
    reach = np.sqrt(5) * (1 + 2 * math.sqrt(9 - 2 - 2))
    assert float(result.vector.norm()) <= reach
    assert all(math.isfinite(entry.score) for entry in result.report)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_row_that_is_not_finite_costs_its_sender_and_not_the_round(
    rule: Rule, value: float
) -> None:
    rows = rows_of(8, 30)
    rows[3, 7] = value
    result = rule(rows)
    without = type(rule)(f=1)(rows[[0, 1, 2, 4, 5, 6, 7]])
    assert torch.equal(result.vector, without.vector)
    entry = result.report[3]
    assert (entry.weight, entry.score, entry.verdict) == (0.0, SCORE_MAX, Verdict.REFUSED)
    assert "column 7" in entry.reason


def test_more_than_f_bad_rows_are_an_error_that_names_everything(rule: Rule) -> None:
    rows = rows_of(9, 4)
    rows[0, 0] = rows[5, 1] = math.nan
    with pytest.raises(TooManyBadRowsError) as caught:
        rule(rows, rejected={"w9": "forged signature"})
    error = caught.value
    assert (error.rule, error.n, error.f, error.bound) == (rule.name, 10, 2, rule.bound)
    assert error.refused.keys() == {"0", "5", "w9"}
    for part in (rule.name, "n=10", "f=2", rule.bound):
        assert part in str(error)


def test_rows_rejected_on_arrival_spend_f_too(rule: Rule) -> None:
    rows = rows_of(8, 20)
    workers = WORKERS[:8]
    result = rule(rows, workers, rejected={"w2": "two messages", "w99": "too late"})
    without = type(rule)(f=0)(rows[[0, 2, 3, 4, 5, 6, 7]])
    assert torch.equal(result.vector, without.vector)
    by_worker = {entry.worker: entry for entry in result.report}
    assert len(by_worker) == 9
    assert by_worker["w2"].reason == "two messages"
    assert by_worker["w99"].verdict is Verdict.REFUSED


def test_one_worker_too_few_is_an_error_and_never_a_fallback(rule: Rule) -> None:
    rule.check(rule.rows_min)
    rule(rows_of(rule.rows_min, 3))
    with pytest.raises(BoundError) as caught:
        rule(rows_of(rule.rows_min - 1, 3))
    assert (caught.value.n, caught.value.rows_min) == (rule.rows_min - 1, rule.rows_min)


def test_no_rows_at_all_are_too_few(rule: Rule) -> None:
    for nothing in ([], torch.empty(0, 5), GradientBuffer(8, 5)):
        with pytest.raises(BoundError, match="n=0"):
            rule(nothing)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_come_back_as_they_went_in(rule: Rule, dtype: torch.dtype) -> None:
    rows = [rows_of(1, 6, seed=i).reshape(1, 2, 3).to(dtype) for i in range(8)]
    vector = rule(rows).vector
    assert vector.dtype == dtype
    assert vector.shape == (1, 2, 3)


def test_half_precision_rows_do_not_overflow_distances(robust: Rule) -> None:
    # 100k ones have squared length 1e5, above the largest float16.
    rows = torch.ones(8, 100_000, dtype=torch.float16)
    rows[0] = 300
    result = robust(rows)
    assert torch.equal(result.vector, rows[1])
    assert result.report[0].score == SCORE_MAX


FACES: list[Callable[[Tensor], object]] = [
    lambda rows: rows,
    lambda rows: rows.numpy(),
    list,
    lambda rows: [row.numpy() for row in rows],
    lambda rows: [{"a": row[:4].view(2, 2), "b": row[4:]} for row in rows],
]


@pytest.mark.parametrize("face", FACES)
def test_inputs_are_never_mutated_nor_aliased(rule: Rule, face: Callable[[Tensor], object]) -> None:
    rows = rows_of(8, 10)
    before = rows.clone()
    result = rule(face(rows))  # type: ignore[call-overload]
    result.vector[...] = 7
    assert torch.equal(rows, before)


@pytest.mark.parametrize("face", FACES)
def test_every_face_gives_the_same_aggregate(rule: Rule, face: Callable[[Tensor], object]) -> None:
    rows = rows_of(8, 10)
    vector = rule(face(rows)).vector  # type: ignore[call-overload]
    assert np.array_equal(np.asarray(vector), rule(rows).vector.numpy())


def test_no_rule_touches_the_global_generator(rule: Rule) -> None:
    before = torch.get_rng_state()
    rule(rows_of(8, 10))
    assert torch.equal(torch.get_rng_state(), before)


def test_shares_sum_to_one_and_reports_come_in_canonical_order(rule: Rule) -> None:
    workers = ["w10", "w2", "w1", "w11", "w3", "w7", "w5", "w6"]
    report = rule(rows_of(8, 50), worker_ids=workers).report
    assert [entry.worker for entry in report] == sorted(workers, key=lambda w: int(w[1:]))
    assert sum(entry.weight for entry in report) == pytest.approx(1)


def test_blatant_liars_have_the_highest_scores(rule: Rule) -> None:
    honest = 1 + rows_of(6, 1000)
    lies = -10 * honest.mean(dim=0).expand(2, -1)
    report = rule(torch.vstack([lies, honest])).report
    scores = [entry.score for entry in report]
    assert min(scores[:2]) > 3 * max(scores[2:])


def test_equal_rows_are_not_suspicious_for_rounding(rule: Rule) -> None:
    rows = rows_of(1, 1000).expand(9, -1) * 1e20
    assert max(entry.score for entry in rule(rows).report) <= 1


def test_identical_rows_come_back(rule: Rule) -> None:
    rows = rows_of(1, 100).expand(8, -1)
    assert torch.equal(rule(rows).vector, rows[0])


def test_gradients_that_require_grad_are_only_read(rule: Rule) -> None:
    vector = rule([row.clone().requires_grad_() for row in rows_of(8, 4)]).vector
    assert not vector.requires_grad


def test_blocks_do_not_show_in_the_result(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(9, 103).double()
    whole = rule(rows)
    monkeypatch.setattr("pliska.aggregation.rows.BLOCK_ELEMENTS", 90)
    blocked = rule(rows)
    assert torch.equal(whole.vector, blocked.vector)
    assert weighted(whole) == weighted(blocked)
