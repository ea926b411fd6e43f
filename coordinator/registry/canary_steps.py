"""When a canary goes on, goes back, or is given up: decisions on measurements, no clock, no I/O."""

from dataclasses import dataclass, replace
from enum import StrEnum

from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.registry.guard import Finding, Guard

STAGES_MAX = 20


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """How a version comes to all requests step by step.

    Attributes:
        percents: Its share at each stage, growing, the last one 100.
        guard: What has to hold at each.
        interval_s: Time from one measurement to the next.
        bake_s: How long the guard has to have held at each stage, without a failure.
        failures_max: So many failures in a row, and it goes back.
        inconclusive_max: So many measurements in a row that say nothing, and it is given up.
        measurements_max: So many at one stage that decide nothing, and it is given up.
        cool_down_s: How long after an automatic rollback no other canary begins.

    Raises:
        RegistryUsageError: A field is out of its bounds.
    """

    percents: tuple[int, ...]
    guard: Guard
    interval_s: int = 10
    bake_s: int = 60
    failures_max: int = 3
    inconclusive_max: int = 12
    measurements_max: int = 1000
    cool_down_s: int = 600

    def __post_init__(self) -> None:
        """Check the fields."""
        stages = list(self.percents)
        is_growing = stages == sorted(set(stages)) and 1 <= len(stages) <= STAGES_MAX
        if not is_growing or stages[0] < 1 or stages[-1] != 100:
            raise RegistryUsageError(
                f"stages of a canary grow from at least 1 to 100, such as 5,25,100; not {stages}"
            )
        counts = (
            self.interval_s,
            self.failures_max,
            self.inconclusive_max,
            self.measurements_max,
        )
        if min(counts) < 1 or min(self.bake_s, self.cool_down_s) < 0:
            raise RegistryUsageError("times and counts of a canary are not negative or zero")


@dataclass(frozen=True, slots=True)
class Measured:
    """What has been measured at one stage so far.

    Attributes:
        held_s: How long the guard has held since it failed last.
        failures: Failures in a row, up to now.
        inconclusive: Measurements in a row that said nothing, up to now.
        count: All measurements.
    """

    held_s: int = 0
    failures: int = 0
    inconclusive: int = 0
    count: int = 0

    def after(self, finding: Finding, interval_s: int) -> "Measured":
        """Return what has been measured once this was found too."""
        count = self.count + 1
        match finding:
            case Finding.PASS:
                return Measured(held_s=self.held_s + interval_s, count=count)
            case Finding.FAIL:
                return Measured(failures=self.failures + 1, count=count)
            case Finding.INCONCLUSIVE:
                return replace(self, failures=0, inconclusive=self.inconclusive + 1, count=count)


class StageVerdict(StrEnum):
    """What is to be done at a stage."""

    MEASURE = "measure"
    """Wait and measure again."""
    ADVANCE = "advance"
    """The guard held long enough: on to the next stage."""
    ROLL_BACK = "roll back"
    """The guard failed: back, and the version is quarantined."""
    GIVE_UP = "give up"
    """Nothing can be said: back, and nothing is said of the version."""


def decide_stage(
    measured: Measured, finding: Finding, plan: CanaryPlan
) -> tuple[StageVerdict, str]:
    """Say what is to be done after a measurement.

    Args:
        measured: With that measurement.
        finding: What it found.
        plan: The bounds.
    """
    if measured.failures >= plan.failures_max:
        return StageVerdict.ROLL_BACK, f"the guard failed {measured.failures} times in a row"
    if measured.inconclusive >= plan.inconclusive_max:
        times = measured.inconclusive
        return StageVerdict.GIVE_UP, f"nothing could be measured {times} times in a row"
    held = f"the guard has held for {measured.held_s} of {plan.bake_s} s"
    if finding is Finding.PASS and measured.held_s >= plan.bake_s:
        return StageVerdict.ADVANCE, held
    if measured.count >= plan.measurements_max:
        return StageVerdict.GIVE_UP, f"{measured.count} measurements have decided nothing"
    return StageVerdict.MEASURE, held
