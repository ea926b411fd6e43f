"""What every rule in the catalogue promises, whatever its formula."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

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

N = 12
"""Rows in most tests: enough for every rule with f = 2, Bulyan's 4f + 3 included."""

NAMES = rule_names()
ROBUST = [name for name in NAMES if name not in ("mean", "foolsgold", "dnc")]
"""Bear f arbitrary rows. FoolsGold finds sybils, and lets one liar alone pass; in DnC a huge
lie sets the direction and hides a smaller one."""
TRANSLATED = [name for name in NAMES if name not in ("cge", "fltrust", "foolsgold", "sign-vote")]
"""Follow a common shift of all rows. The others measure from zero."""
SCALED = [name for name in NAMES if name != "sign-vote"]
"""Follow a common factor. A vote has no length."""
REPRODUCING = [name for name in NAMES if name not in ("fltrust", "foolsgold", "sign-vote")]
"""Return equal rows as they are. FLTrust brings them to the reference's length, and
FoolsGold takes them for sybils."""
BEFORE: list[list[Any]] = [
    ["nnm"],
    ["arc"],
    [{"name": "bucketing", "s": 2}],
    [{"name": "clipping", "tau": 10.0}],
    ["arc", "nnm"],
]
WORKERS = [f"w{i}" for i in range(1, 20)]

ordinary = st.floats(-1e3, 1e3, width=32)
matrices = hnp.arrays(
    np.float32, st.tuples(st.integers(11, 13), st.integers(1, 9)), elements=ordinary
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors: threads cost more than they give, and much more beside other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def given_to(rule: Rule, trusted: Tensor) -> dict[str, Any]:
    """What the rule must be told beside the rows."""
    return {"reference": trusted} if "reference" in rule.uses else {}


def aggregate(rule: Rule, rows: Any, *arguments: Any, **more: Any) -> Aggregation[Any]:
    """Call a rule, with the last row as the trusted one where it needs one."""
    last = rows[-1] if len(rows) else torch.zeros(5)
    trusted = (
        torch.cat([part.reshape(-1) for part in last.values()]) if isinstance(last, dict) else last
    )
    return rule(rows, *arguments, **more, **given_to(rule, trusted))


@pytest.fixture(params=NAMES)
def rule(request: pytest.FixtureRequest) -> Rule:
    return rule_named(request.param, f=2)


@pytest.fixture(params=ROBUST)
def robust(request: pytest.FixtureRequest) -> Rule:
    return rule_named(request.param, f=2)


def weighted(result: Aggregation[Tensor]) -> set[str]:
    return {entry.worker for entry in result.report if entry.weight > 0}


@given(matrix=matrices, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_any_arrival_order_gives_the_same_bytes(name: str, matrix: np.ndarray, seed: int) -> None:
    rows, workers = torch.from_numpy(matrix), WORKERS[: len(matrix)]
    order = np.random.default_rng(seed).permutation(len(matrix))
    rule = rule_named(name, f=2)
    given = given_to(rule, rows[-1])
    first = rule(rows, workers, **given)
    second = rule(rows[order], [workers[i] for i in order], **given)
    assert first.vector.numpy().tobytes() == second.vector.numpy().tobytes()
    assert first.report == second.report


@pytest.mark.parametrize("pre", BEFORE)
@pytest.mark.parametrize("name", ["trimmed-mean", "krum", "geometric-median", "bulyan"])
def test_any_arrival_order_gives_the_same_bytes_after_pre_aggregation(
    name: str, pre: list[Any]
) -> None:
    rows, workers = 1 + rows_of(19, 40, seed=3), WORKERS
    order = np.random.default_rng(4).permutation(19)
    rule = rule_named(name, f=1, pre=pre)
    first = rule(rows, workers, seed=5)
    second = rule(rows[order], [workers[i] for i in order], seed=5)
    assert torch.equal(first.vector, second.vector)
    assert first.report == second.report


@given(matrix=matrices, shift=ordinary, power=st.integers(-6, 6), negate=st.booleans())
@settings(max_examples=8, deadline=None)
@pytest.mark.parametrize("name", SCALED)
def test_shifting_and_scaling_all_rows_shifts_and_scales_the_aggregate(
    name: str, matrix: np.ndarray, shift: float, power: int, negate: bool
) -> None:
    # In float64 and with a power of two, so that no rounding changes which row wins.
    rows = torch.from_numpy(matrix).double().round()
    scale = 2.0**power * (-1 if negate else 1)
    offset = round(shift) if name in TRANSLATED else 0
    expected = aggregate(rule_named(name, f=2), rows).vector * scale + offset
    found = aggregate(rule_named(name, f=2), rows * scale + offset).vector
    # Values reach 65000, whose last bit is 1.5e-11: a thousand of these for all sums together.
    assert torch.allclose(found, expected, atol=1.5e-8, rtol=0)


lies_of_any_kind = hnp.arrays(
    np.float32,
    (2, 5),
    elements=st.one_of(
        st.floats(width=32),
        st.sampled_from([math.nan, math.inf, -math.inf, 1e38, -1e38, 3.4e38, -3.4e38]),
    ),
)


@given(
    honest=hnp.arrays(np.float32, (10, 5), elements=st.floats(-1, 1, width=32)),
    lies=lies_of_any_kind,
)
@settings(max_examples=12, deadline=None)
@pytest.mark.parametrize("name", ROBUST)
def test_f_arbitrary_rows_cannot_move_the_aggregate_far(
    name: str, honest: np.ndarray, lies: np.ndarray
) -> None:
    result = aggregate(rule_named(name, f=2), torch.from_numpy(np.vstack([lies, honest])))
    assert torch.isfinite(result.vector).all()
    # Krum may choose a lie, but only one that sits within reach of honest rows.
    reach = np.sqrt(5) * (1 + 2 * math.sqrt(12 - 2 - 2))
    assert float(result.vector.norm()) <= reach
    assert all(math.isfinite(entry.score) for entry in result.report)


@given(
    honest=hnp.arrays(np.float32, (13, 5), elements=st.floats(-1, 1, width=32)),
    lies=lies_of_any_kind,
)
@settings(max_examples=4, deadline=None)
@pytest.mark.parametrize("pre", BEFORE)
@pytest.mark.parametrize("name", ["trimmed-mean", "krum", "geometric-median", "centered-clipping"])
def test_f_arbitrary_rows_cannot_move_the_aggregate_far_after_pre_aggregation(
    name: str, pre: list[Any], honest: np.ndarray, lies: np.ndarray
) -> None:
    result = rule_named(name, f=2, pre=pre)(torch.from_numpy(np.vstack([lies, honest])))
    assert torch.isfinite(result.vector).all()
    assert float(result.vector.norm()) <= np.sqrt(5) * (1 + 2 * math.sqrt(15 - 2 - 2))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_row_that_is_not_finite_costs_its_sender_and_not_the_round(
    rule: Rule, value: float
) -> None:
    rows = rows_of(N, 30)
    rows[3, 7] = value
    result = aggregate(rule, rows)
    without = aggregate(replace(rule, f=1), rows[[i for i in range(N) if i != 3]])
    assert torch.equal(result.vector, without.vector)
    entry = result.report[3]
    assert (entry.weight, entry.score, entry.verdict) == (0.0, SCORE_MAX, Verdict.REFUSED)
    assert "column 7" in entry.reason
    assert result.faults.count == 2


def test_more_than_f_bad_rows_are_an_error_that_names_everything(rule: Rule) -> None:
    rows = rows_of(N, 4)
    rows[0, 0] = rows[5, 1] = math.nan
    with pytest.raises(TooManyBadRowsError) as caught:
        aggregate(rule, rows, rejected={"w9": "forged signature"})
    error = caught.value
    assert (error.rule, error.n, error.f, error.bound) == (rule.name, N + 1, 2, rule.bound)
    assert error.refused.keys() == {"0", "5", "w9"}
    for part in (rule.name, f"n={N + 1}", "f=2", rule.bound):
        assert part in str(error)


def test_rows_rejected_on_arrival_spend_f_too(rule: Rule) -> None:
    rows = rows_of(N, 20)
    workers = WORKERS[:N]
    result = aggregate(rule, rows, workers, rejected={"w2": "two messages", "w99": "too late"})
    without = aggregate(replace(rule, f=0), rows[[i for i in range(N) if i != 1]])
    assert torch.equal(result.vector, without.vector)
    by_worker = {entry.worker: entry for entry in result.report}
    assert len(by_worker) == N + 1
    assert by_worker["w2"].reason == "two messages"
    assert by_worker["w99"].verdict is Verdict.REFUSED


def test_one_worker_too_few_is_an_error_and_never_a_fallback(rule: Rule) -> None:
    rule.check(rule.rows_min)
    aggregate(rule, rows_of(rule.rows_min, 3))
    with pytest.raises(BoundError) as caught:
        aggregate(rule, rows_of(rule.rows_min - 1, 3))
    assert (caught.value.n, caught.value.rows_min) == (rule.rows_min - 1, rule.rows_min)


def test_no_rows_at_all_are_too_few(rule: Rule) -> None:
    for nothing in ([], torch.empty(0, 5), GradientBuffer(8, 5)):
        with pytest.raises(BoundError, match="n=0"):
            rule(nothing)  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_come_back_as_they_went_in(rule: Rule, dtype: torch.dtype) -> None:
    rows = [rows_of(1, 6, seed=i).reshape(1, 2, 3).to(dtype) for i in range(N)]
    vector = aggregate(rule, rows).vector
    assert vector.dtype == dtype
    assert vector.shape == (1, 2, 3)


def test_half_precision_rows_do_not_overflow_distances(robust: Rule) -> None:
    # 80k ones have squared length 8e4, above the largest float16.
    rows = torch.ones(N, 80_000, dtype=torch.float16)
    rows[0] = 300
    result = aggregate(robust, rows)
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
    rows = rows_of(N, 10)
    before = rows.clone()
    result = aggregate(rule, face(rows))
    result.vector[...] = 7
    assert torch.equal(rows, before)


def test_the_callers_list_stays_as_long_as_it_was(rule: Rule) -> None:
    # Flower's Bulyan takes what it has chosen out of the list that it was given.
    given = list(rows_of(N, 10))
    before = [id(row) for row in given]
    aggregate(rule, given)
    assert [id(row) for row in given] == before


@pytest.mark.parametrize("face", FACES)
def test_every_face_gives_the_same_aggregate(rule: Rule, face: Callable[[Tensor], object]) -> None:
    rows = rows_of(N, 10)
    vector = aggregate(rule, face(rows)).vector
    assert np.array_equal(np.asarray(vector), aggregate(rule, rows).vector.numpy())


def test_no_rule_touches_the_global_generator(rule: Rule) -> None:
    before = torch.get_rng_state()
    aggregate(rule, rows_of(N, 10))
    assert torch.equal(torch.get_rng_state(), before)


def test_shares_sum_to_one_and_reports_come_in_canonical_order(rule: Rule) -> None:
    workers = ["w10", "w2", "w1", "w11", "w3", "w7", "w5", "w6", "w4", "w8", "w9", "w12"]
    report = aggregate(rule, rows_of(N, 50), worker_ids=workers).report
    assert [entry.worker for entry in report] == sorted(workers, key=lambda w: int(w[1:]))
    assert sum(entry.weight for entry in report) == pytest.approx(1)


def test_blatant_liars_have_the_highest_scores(rule: Rule) -> None:
    honest = 1 + rows_of(N - 2, 1000)
    lies = -10 * honest.mean(dim=0).expand(2, -1)
    report = aggregate(rule, torch.vstack([lies, honest])).report
    scores = [entry.score for entry in report]
    assert min(scores[:2]) > 3 * max(scores[2:])


def test_equal_rows_are_not_suspicious_for_rounding(rule: Rule) -> None:
    rows = rows_of(1, 1000).expand(N, -1) * 1e20
    assert max(entry.score for entry in aggregate(rule, rows).report) <= 1


@pytest.mark.parametrize("n", [11, 12, 13, 16])
@pytest.mark.parametrize("name", REPRODUCING)
def test_identical_rows_come_back(name: str, n: int) -> None:
    # Shares of 1/7 and 1/9 do not sum to 1 exactly: rows must be mixed about one of them.
    for seed in range(10):
        rows = rows_of(1, 100, seed).expand(n, -1)
        assert torch.equal(aggregate(rule_named(name, f=2), rows).vector, rows[0]), f"{seed=}"


def test_gradients_that_require_grad_are_only_read(rule: Rule) -> None:
    vector = aggregate(rule, [row.clone().requires_grad_() for row in rows_of(N, 4)]).vector
    assert not vector.requires_grad


def test_blocks_do_not_show_in_the_result(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(N, 103).double()
    whole = aggregate(rule, rows)
    monkeypatch.setattr("pliska.aggregation.rows.BLOCK_ELEMENTS", 90)
    blocked = aggregate(rule, rows)
    assert torch.allclose(whole.vector, blocked.vector, rtol=1e-12, atol=1e-12)
    assert weighted(whole) == weighted(blocked)
