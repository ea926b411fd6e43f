"""Running a canary: one promotion a stage, measurements in between, back by itself when it fails.

Each stage is an operation of its own, so nodes prepare before the first and the
history shows all. What is done after a measurement is decided in `canary_steps`.
The operations are named after the canary's id: a run that died is continued by
another with the same id, and the way back is taken once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from pliska.coordinator.registry.canary_steps import (
    CanaryPlan,
    Measured,
    StageVerdict,
    decide_stage,
)
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.driver import Tell, silent
from pliska.coordinator.registry.errors import AliasMovedError, NotFoundError, RefusedError
from pliska.coordinator.registry.guard import STABLE, Finding
from pliska.coordinator.registry.history import MoveKind
from pliska.coordinator.registry.metrics import MetricSource
from pliska.coordinator.registry.moves import Move
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.requests import PromoteRequest, Request, RollbackRequest
from pliska.coordinator.registry.rollout import Rollout
from pliska.coordinator.wire.signing import Signer

FULL = 100
OP_ID_CHARACTERS_MAX = 56
"""Of a canary: its operations have longer ones."""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """How a canary came out.

    Attributes:
        verdict: ADVANCE where all stages were passed.
        reason: Why.
        move: The last move that was made for it.
    """

    verdict: StageVerdict
    reason: str
    move: Move


class CanaryRun:
    """Carries one canary out.

    Args:
        namespace: Where the alias is.
        request: The promotion that is wanted in the end.
        plan: The stages, the guard and the bounds.
        source: Where metrics come from.
        tell: Gets every measurement.
        signer: Approves of every move.
        pause: Waits so many seconds.
    """

    def __init__(
        self,
        namespace: Namespace,
        request: PromoteRequest,
        plan: CanaryPlan,
        source: MetricSource,
        tell: Tell = silent,
        signer: Signer | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._parts = namespace
        self._request = request
        self._plan = plan
        self._source = source
        self._tell = tell
        self._signer = signer
        self._pause = pause
        self._expect_gen = request.expect_gen

    def run(self) -> CanaryResult:
        """Take the version through all stages, or back.

        Raises:
            RefusedError: The alias cools down after an automatic rollback; or as
                `Registry.promote`.
            AbortedError: A stage was called off.
            AliasMovedError: Somebody else moved the alias: the canary is over.
        """
        history = self._parts.aliases.read(self._request.model, self._request.alias).history
        if not history:
            raise NotFoundError(f"no alias {self._request.alias!r} to try a canary beside")
        began = [entry for entry in history if entry.op_id in self._stage_ids()]
        self._require_cool(began[0].gen if began else len(history) + 1)
        stable = began[0].from_version if began else history[-1].to_version
        move, verdict, reason = None, StageVerdict.ADVANCE, ""
        for percent in self._plan.percents[max(0, len(began) - 1) :]:
            move = self._enter(percent)
            verdict, reason = self._bake(move, percent, stable or move.to_version)
            if verdict is not StageVerdict.ADVANCE:
                move = self._go_back(move, verdict, reason)
                break
        if move is None:
            raise RefusedError(f"operation {self._request.op_id} is over; choose another id")
        return CanaryResult(verdict, reason, move)

    def _stage_ids(self) -> list[str]:
        return [self._stage_id(percent) for percent in self._plan.percents]

    def _stage_id(self, percent: int) -> str:
        return f"{self._request.op_id}-{percent}"

    def _require_cool(self, before_gen: int) -> None:
        request, now = self._request, self._parts.now()
        history = self._parts.aliases.read(request.model, request.alias).history
        for entry in history[: before_gen - 1]:
            warm_until = moment(entry.at) + timedelta(seconds=self._plan.cool_down_s)
            if entry.kind is MoveKind.AUTO and now < warm_until:
                raise RefusedError(
                    f"{request.alias!r} of {request.model!r} went back by itself at {entry.at} "
                    f"({entry.reason}); no canary before {warm_until:%Y-%m-%d %H:%M:%S} UTC"
                )

    def _enter(self, percent: int) -> Move:
        """Give the version its share; all requests at the last stage."""
        request = replace(
            self._request,
            op_id=self._stage_id(percent),
            canary_percent=None if percent == FULL else percent,
            expect_gen=self._expect_gen,
        )
        move = self._carry_out(request).check()
        self._expect_gen = move.gen
        return move

    def _bake(self, move: Move, percent: int, stable: int) -> tuple[StageVerdict, str]:
        """Measure until something is decided."""
        if percent == FULL and self._plan.guard.compares:
            return StageVerdict.ADVANCE, "there is nothing left to compare with"
        measured = Measured()
        while True:
            self._pause(self._plan.interval_s)
            self._require_ours(move)
            finding, said = self._plan.guard.judge(self._metrics(stable))
            measured = measured.after(finding, self._plan.interval_s)
            verdict, reason = decide_stage(measured, finding, self._plan)
            self._tell(f"{percent} %: {finding} ({said}); {reason}")
            if verdict is not StageVerdict.MEASURE:
                why = f"{reason} at {percent} %: {self._plan.guard.text}"
                return verdict, f"{why} ({said})" if finding is not Finding.PASS else why

    def _metrics(self, stable: int) -> dict[str, float]:
        names, model = self._plan.guard.names, self._request.model
        own = frozenset(name for name in names if not name.startswith(STABLE))
        compared = frozenset(name.removeprefix(STABLE) for name in names if name not in own)
        found = dict(self._source.read(model, self._request.version, own))
        if compared:
            stably = self._source.read(model, stable, compared)
            found |= {f"{STABLE}{name}": value for name, value in stably.items()}
        return found

    def _require_ours(self, move: Move) -> None:
        alias = self._parts.aliases.stands(self._request.model, self._request.alias)
        if alias is None or alias.gen != move.gen:
            gen = 0 if alias is None else alias.gen
            raise AliasMovedError(
                f"{self._request.alias!r} of {self._request.model!r} is at generation {gen}, not "
                f"at the canary's {move.gen}: somebody else moved it, and the canary is over",
                gen=gen,
            )

    def _go_back(self, move: Move, verdict: StageVerdict, reason: str) -> Move:
        request = self._request
        back = RollbackRequest(
            model=request.model,
            alias=request.alias,
            actor=request.actor,
            reason=reason[:1000],
            expect_gen=move.gen,
            op_id=f"{request.op_id}-back",
            quarantine=verdict is StageVerdict.ROLL_BACK,
            is_automatic=True,
            timeout_s=request.timeout_s,
        )
        return self._carry_out(back)

    def _carry_out(self, request: Request) -> Move:
        return Rollout(self._parts, request, self._signer, self._tell).carry_out()
