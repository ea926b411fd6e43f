import pytest

from pliska.coordinator.registry import (
    CanaryPlan,
    Finding,
    RegistryUsageError,
    StageVerdict,
    parse_guard,
)
from pliska.coordinator.registry.canary_steps import STAGES_MAX, Measured, decide_stage

GUARD = parse_guard("error_rate < 0.01")
PLAN = CanaryPlan(
    (5, 100), GUARD, interval_s=10, bake_s=30, failures_max=3, inconclusive_max=4,
    measurements_max=20,
)  # fmt: skip


def verdicts(findings: str) -> list[StageVerdict]:
    """Decide after each of these: p passes, f fails, i is inconclusive; stop when decided."""
    kinds = {"p": Finding.PASS, "f": Finding.FAIL, "i": Finding.INCONCLUSIVE}
    measured, decided = Measured(), []
    for letter in findings:
        measured = measured.after(kinds[letter], PLAN.interval_s)
        decided.append(decide_stage(measured, kinds[letter], PLAN)[0])
        if decided[-1] is not StageVerdict.MEASURE:
            break
    return decided


@pytest.mark.parametrize(
    ("findings", "last", "count"),
    [
        ("ppp", StageVerdict.ADVANCE, 3),
        ("fff", StageVerdict.ROLL_BACK, 3),
        ("ffpffpp", StageVerdict.MEASURE, 7),
        ("ffpffppp", StageVerdict.ADVANCE, 8),
        ("iiii", StageVerdict.GIVE_UP, 4),
        ("iiipiiipp", StageVerdict.ADVANCE, 9),
        ("ffiff", StageVerdict.MEASURE, 5),
        ("piiippp", StageVerdict.ADVANCE, 6),
        ("pppp", StageVerdict.ADVANCE, 3),
        ("ifififif", StageVerdict.MEASURE, 8),
        ("ffp" * 7, StageVerdict.GIVE_UP, 20),
    ],
)
def test_what_is_measured_decides(findings: str, last: StageVerdict, count: int) -> None:
    decided = verdicts(findings)
    assert (decided[-1], len(decided)) == (last, count)


def test_a_stage_with_nothing_measured_never_passes() -> None:
    assert StageVerdict.ADVANCE not in verdicts("i" * 100)


def test_without_bake_time_one_pass_is_enough_and_needed() -> None:
    plan = CanaryPlan((5, 100), GUARD, bake_s=0)
    for finding, expected in (
        (Finding.PASS, StageVerdict.ADVANCE),
        (Finding.FAIL, StageVerdict.MEASURE),
        (Finding.INCONCLUSIVE, StageVerdict.MEASURE),
    ):
        measured = Measured().after(finding, plan.interval_s)
        assert decide_stage(measured, finding, plan)[0] is expected


@pytest.mark.parametrize(
    "percents", [(), (5,), (0, 100), (5, 5, 100), (25, 5, 100), (5, 101), (100, 100), (-5, 100)]
)
def test_stages_grow_to_all_requests(percents: tuple[int, ...]) -> None:
    with pytest.raises(RegistryUsageError, match="grow"):
        CanaryPlan(percents, GUARD)


def test_bounds_are_checked() -> None:
    CanaryPlan((*range(1, STAGES_MAX), 100), GUARD)
    with pytest.raises(RegistryUsageError):
        CanaryPlan((*range(1, STAGES_MAX + 1), 100), GUARD)
    for field in ({"interval_s": 0}, {"bake_s": -1}, {"failures_max": 0}, {"cool_down_s": -1}):
        with pytest.raises(RegistryUsageError):
            CanaryPlan((5, 100), GUARD, **field)
