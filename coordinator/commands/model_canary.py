"""What `pliska model promote --canary` does, and `pliska model metric`, which feeds its guard."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from pliska.coordinator.commands.model_move_rows import move_row
from pliska.coordinator.commands.model_options import (
    Place,
    ReferenceArgument,
    duration_s,
    named_numbers,
    with_place,
)
from pliska.coordinator.registry import (
    CanaryPlan,
    CanaryResult,
    MetricSource,
    PrometheusMetrics,
    PromoteRequest,
    Reference,
    RefusedError,
    RegistryUsageError,
    StageVerdict,
    parse_guard,
)
from pliska.coordinator.registry.canaries import FULL
from pliska.coordinator.wire.signing import Signer
from pliska.locks.presentation import show_json


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOptions:
    """The options of a canary as they were given; there is none without `percents`."""

    percents: Annotated[
        str | None,
        typer.Option(
            "--canary",
            metavar="PERCENTS",
            help="Step by step, such as 5,25,100, as long as --guard holds.",
        ),
    ] = None
    guard: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Such as 'error_rate < 0.01 and p99 < stable.p99 * 1.2'."
        ),
    ] = None
    bake: Annotated[
        str, typer.Option(metavar="TIME", help="How long the guard has to hold at each step.")
    ] = "60s"
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="From one measurement to the next.")
    ] = "10s"
    failures: Annotated[
        int, typer.Option(min=1, help="So many failures in a row, and it goes back.")
    ] = 3
    cool_down: Annotated[
        str, typer.Option(metavar="TIME", help="No canary so soon after one that went back.")
    ] = "10m"
    prometheus: Annotated[
        str | None,
        typer.Option(
            envvar="PLISKA_PROMETHEUS",
            metavar="URL",
            help="Where --query asks; else what was pushed counts.",
        ),
    ] = None
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PROMQL",
            help="A metric's query, with $model and $version. May be repeated.",
        ),
    ] = None

    def plan(self) -> CanaryPlan | None:
        """Read them; None where no canary was asked for.

        Raises:
            RegistryUsageError: One is malformed.
        """
        if self.percents is None:
            return None
        if self.guard is None:
            raise RegistryUsageError("--canary needs a --guard, which says when it is going well")
        try:
            percents = tuple(int(percent) for percent in self.percents.split(","))
        except ValueError as error:
            raise RegistryUsageError(f"--canary {self.percents!r}: write 5,25,100") from error
        return CanaryPlan(
            percents=percents,
            guard=parse_guard(self.guard),
            interval_s=duration_s(self.interval),
            bake_s=duration_s(self.bake),
            failures_max=self.failures,
            cool_down_s=duration_s(self.cool_down),
        )

    def source(self) -> MetricSource | None:
        """Return where its metrics come from; None for what was pushed."""
        queries = dict(_named_query(text) for text in self.query or ())
        if self.prometheus is None:
            if queries:
                raise RegistryUsageError("--query needs --prometheus, the server to ask")
            return None
        return PrometheusMetrics(self.prometheus, queries)


def first_stage(plan: CanaryPlan, request: PromoteRequest) -> PromoteRequest:
    """Return the request of the first stage of a canary, for a dry run."""
    percent = plan.percents[0]
    return replace(request, canary_percent=None if percent == FULL else percent)


def try_out(
    place: Place,
    request: PromoteRequest,
    plan: CanaryPlan,
    source: MetricSource | None,
    signer: Signer | None,
) -> None:
    """Take a version through the stages of a canary, and say how it came out."""
    with place.open() as registry:
        result = registry.canary(request, plan, source, signer, tell=_say)
    _show(place, result)


@with_place
def metric(
    place: Place,
    reference: ReferenceArgument,
    values: Annotated[list[str], typer.Argument(metavar="NAME=NUMBER...", help="What it is.")],
    source: Annotated[str, typer.Option(help="Who measured it, such as a node.")],
) -> None:
    """Say what was measured of a version while it serves, for the guards of canaries."""
    numbers = named_numbers("metric", values)
    with place.open() as registry:
        version = registry.resolve(Reference.parse(reference))
        registry.metrics.push(version.model, version.version, source, numbers)
    _say(f"{version.name}: {', '.join(values)}, said {source}")


def _show(place: Place, result: CanaryResult) -> None:
    if place.is_json:
        document = {"verdict": result.verdict, "canary_reason": result.reason}
        show_json({**document, **move_row(result.move)})
    alias = f"{result.move.model}@{result.move.alias}"
    if result.verdict is StageVerdict.ADVANCE:
        _say(f"{alias} points at version {result.move.to_version}: {result.reason}")
        return
    raise RefusedError(f"{alias} went back to version {result.move.to_version}: {result.reason}")


def _named_query(text: str) -> tuple[str, str]:
    name, equals, query = text.partition("=")
    if not equals or not name or not query:
        raise RegistryUsageError(f"--query {text!r}: write NAME=PROMQL")
    return name, query


def _say(message: str) -> None:
    typer.echo(message, err=True)
