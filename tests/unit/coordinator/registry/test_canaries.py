"""Canaries that pass, fail, cannot be judged, are overtaken, die and go on; real registry."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pliska.coordinator.registry import (
    AliasMovedError,
    CanaryPlan,
    CanaryResult,
    MoveKind,
    NotFoundError,
    RefusedError,
    ServedModel,
    StageVerdict,
    State,
    parse_guard,
)
from pliska.coordinator.registry.canaries import CanaryRun
from pliska.coordinator.storage.storage import LocalStorage

Serve = Callable[..., ServedModel[bytes]]
PLAN = CanaryPlan(
    (5, 25, 100), parse_guard("errors < 0.01"), interval_s=10, bake_s=20, cool_down_s=600,
    inconclusive_max=3,
)  # fmt: skip


class Weather:
    """What is measured, in time that passes only in pauses; things may happen in them."""

    def __init__(self) -> None:
        self.at = datetime(2031, 5, 4, tzinfo=UTC)
        self.errors: dict[int, float] = {1: 0.001, 2: 0.001}
        self.pauses = 0
        self.happens: dict[int, Callable[[], None]] = {}

    def now(self) -> datetime:
        return self.at

    def pause(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.pauses += 1
        self.happens.get(self.pauses, lambda: None)()

    def read(self, model: str, version: int, names: frozenset[str]) -> Mapping[str, float]:
        assert model == "digits"
        known = {"errors": self.errors[version]} if version in self.errors else {}
        return {name: value for name, value in known.items() if name in names}


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def desk(backend: Any, storage: LocalStorage, desk_on: Any, weather: Weather) -> Any:
    desk = desk_on(backend, storage, now=weather.now)
    desk.register(1, 2, 3)
    desk.promote(1)
    return desk


def try_out(
    desk: Any, weather: Weather, plan: CanaryPlan = PLAN, version: int = 2, **more: Any
) -> CanaryResult:
    said: list[str] = []
    request = desk.promotion(version, **more)
    return CanaryRun(
        desk.registry.namespace, request, plan, weather, said.append, pause=weather.pause
    ).run()


def stages(desk: Any) -> list[tuple[MoveKind, int, int | None]]:
    return [
        (entry.kind, entry.to_version, entry.canary and entry.canary.percent)
        for entry in desk.registry.log("digits", "prod")[1:]
    ]


def test_a_good_version_comes_to_all_requests_step_by_step(desk: Any, weather: Weather) -> None:
    result = try_out(desk, weather)
    assert (result.verdict, result.move.to_version) == (StageVerdict.ADVANCE, 2)
    assert stages(desk) == [
        (MoveKind.CANARY, 1, 5),
        (MoveKind.CANARY, 1, 25),
        (MoveKind.PROMOTE, 2, None),
    ]
    assert weather.pauses == 6
    assert desk.registry.rollback(desk.rollback()).to_version == 1


def test_a_bad_version_goes_back_by_itself_once_and_is_quarantined(
    desk: Any, weather: Weather
) -> None:
    weather.happens[3] = lambda: weather.errors.update({2: 0.5})
    result = try_out(desk, weather)
    assert result.verdict is StageVerdict.ROLL_BACK
    assert "errors=0.5" in result.reason
    assert stages(desk) == [
        (MoveKind.CANARY, 1, 5),
        (MoveKind.CANARY, 1, 25),
        (MoveKind.AUTO, 1, None),
    ]
    assert result.move.quarantined == (2,)
    assert desk.registry.versions("digits")[1].state is State.QUARANTINED
    assert desk.registry.versions("digits")[0].state is State.READY


def test_a_version_that_turns_bad_at_all_requests_goes_back_to_the_one_before(
    desk: Any, weather: Weather
) -> None:
    weather.happens[5] = lambda: weather.errors.update({2: 0.5})
    result = try_out(desk, weather)
    assert result.verdict is StageVerdict.ROLL_BACK
    assert stages(desk)[-2:] == [(MoveKind.PROMOTE, 2, None), (MoveKind.AUTO, 1, None)]
    assert desk.registry.versions("digits")[1].state is State.QUARANTINED


@pytest.mark.parametrize("errors", [{}, {2: float("nan")}, {2: float("inf")}])
def test_what_cannot_be_measured_goes_back_and_is_not_blamed(
    desk: Any, weather: Weather, errors: dict[int, float]
) -> None:
    weather.errors = errors
    result = try_out(desk, weather)
    assert result.verdict is StageVerdict.GIVE_UP
    assert stages(desk) == [(MoveKind.CANARY, 1, 5), (MoveKind.AUTO, 1, None)]
    assert desk.registry.versions("digits")[1].state is State.READY


def test_it_cools_down_after_it_went_back(desk: Any, weather: Weather) -> None:
    weather.errors[2] = 0.5
    try_out(desk, weather)
    with pytest.raises(RefusedError, match="went back by itself"):
        try_out(desk, weather, version=3)
    weather.at += timedelta(seconds=601)
    weather.errors[3] = 0.001
    assert try_out(desk, weather, version=3).verdict is StageVerdict.ADVANCE


def test_a_guard_can_compare_with_the_stable_version(desk: Any, weather: Weather) -> None:
    plan = CanaryPlan((50, 100), parse_guard("errors <= stable.errors * 2"), bake_s=10)
    assert try_out(desk, weather, plan).verdict is StageVerdict.ADVANCE
    weather.errors[3] = 0.01
    assert try_out(desk, weather, plan, version=3).verdict is StageVerdict.ROLL_BACK


def test_whoever_else_moves_the_alias_ends_the_canary_and_nothing_goes_back(
    desk: Any, weather: Weather
) -> None:
    weather.errors[2] = 0.5
    weather.happens[2] = lambda: desk.promote(3)
    with pytest.raises(AliasMovedError, match="the canary is over"):
        try_out(desk, weather)
    assert desk.pointed_at() == 3
    assert desk.registry.versions("digits")[1].state is State.READY


def test_a_run_that_died_is_continued_by_another_with_its_id(desk: Any, weather: Weather) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    weather.happens[3] = die
    with pytest.raises(Died):
        try_out(desk, weather, op_id="try")
    assert stages(desk) == [(MoveKind.CANARY, 1, 5), (MoveKind.CANARY, 1, 25)]
    assert try_out(desk, weather, op_id="try").verdict is StageVerdict.ADVANCE
    assert stages(desk)[2:] == [(MoveKind.PROMOTE, 2, None)]


def test_there_has_to_be_something_to_stand_beside(desk: Any, weather: Weather) -> None:
    with pytest.raises(NotFoundError):
        try_out(desk, weather, alias="fresh")
    with pytest.raises(RefusedError, match="already"):
        try_out(desk, weather, version=1)


def test_nodes_give_it_its_share(desk: Any, weather: Weather, serve: Serve) -> None:
    served = serve()
    shares: list[int] = []

    def count() -> None:
        drawn = [served.draw(point / 100).version for point in range(100)]
        shares.append(drawn.count(2))

    weather.happens = dict.fromkeys(range(1, 7), count)
    try_out(desk, weather)
    assert shares == [5, 5, 25, 25, 100, 100]
    assert served.current.version == 2


def test_pushed_metrics_are_judged(desk: Any, weather: Weather) -> None:
    metrics = desk.registry.metrics
    weather.happens = dict.fromkeys(
        range(1, 7),
        lambda: [metrics.push("digits", 2, node, {"errors": 0.002}) for node in ("n1", "n2")],
    )
    run = CanaryRun(
        desk.registry.namespace, desk.promotion(2), PLAN, metrics, pause=weather.pause
    ).run()
    assert run.verdict is StageVerdict.ADVANCE
