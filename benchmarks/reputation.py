"""What robustness costs honest workers: how often rules cut them, and how reputation takes that.

    make bench BENCH=reputation ARGS="--seeds 3 --alpha 0.1 --outlier 4 --attack sign-flip"

Jobs of the simulator, one for each rule and seed: the production code on a virtual
clock, with liars, with workers whose data is like everybody's, and with honest ones
whose labels are drawn from a Dirichlet distribution of their own, so that few
classes make up most of what they see. Told from the committed records.
"""

import argparse
import asyncio
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.table import Table
from simulation.playing import play_in
from simulation.scenario import Scenario
from simulation.world import Run, World
from torch.utils.data import default_collate
from training.toy_job import toy_job

from pliska.aggregation import AttackName
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.standing import StandingState
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire.job import Job
from pliska.trainer.adversary import Adversary
from pliska.trainer.gradient_source import ByzantineSource, GradientSource, HonestSource

RULES = (
    "mean",
    "krum",
    "multi-krum",
    "trimmed-mean",
    "coordinate-median",
    "geometric-median",
    "centered-clipping",
)
WORKERS = tuple(f"w{number:02d}" for number in range(1, 13))
UNUSUAL = frozenset(WORKERS[-4:-2])
LIARS = frozenset(WORKERS[-2:])
QUORUM = 9
ROUNDS = 60
END_S = 600.0
"""Of virtual time; a job ends long before."""


class SkewedComputation(Computation):
    """The gradients of a worker that sees few of some classes."""

    def __init__(self, job: Job, alpha: float, lots: Random) -> None:
        super().__init__(job)
        by_class: dict[int, list[int]] = defaultdict(list)
        for index in range(self._examples):
            by_class[int(self._train[index][1])].append(index)
        self._by_class = [by_class[each] for each in sorted(by_class)]
        self._weights = [lots.gammavariate(alpha, 1.0) + 1e-12 for _ in self._by_class]

    def _batch(self, lease: int) -> tuple[torch.Tensor, torch.Tensor]:
        lots = Random(f"batch {lease}")  # noqa: S311 - it must come out the same again
        classes = lots.choices(self._by_class, self._weights, k=self.job.data.batch)
        inputs, targets = default_collate([self._train[lots.choice(each)] for each in classes])
        return inputs, targets


class SkewedWorld(World):
    """A world in which some honest workers have data of their own."""

    alpha = 0.1
    attack = AttackName.SIGN_FLIP

    def _source(self, name: str, computation: Computation) -> GradientSource:
        if name in UNUSUAL:
            lots = Random(f"data of {name}, {self.seed}")  # noqa: S311 - as above
            return HonestSource(SkewedComputation(self.job, self.alpha, lots))
        if name in LIARS:
            return ByzantineSource(computation, name, Adversary(self.attack), LIARS)
        return HonestSource(computation)


@dataclass(frozen=True)
class Price:
    """What became of one kind of worker under one rule.

    Attributes:
        gradients: That the rule judged.
        cut: Share of them that got no weight.
        offences: Share of them that counted against their worker.
        probation, quarantine: Share of the rounds that a worker spent there.
        weight: Mean share of the aggregate, as a multiple of an equal one.
    """

    rule: str
    kind: str
    gradients: int
    cut: float
    offences: float
    probation: float
    quarantine: float
    weight: float


def play_rule(rule: str, seed: int, given: argparse.Namespace) -> Run:
    """Train one job among liars and unusual workers, without other faults."""
    job = toy_job(
        count=ROUNDS,
        workers=len(WORKERS),
        quorum=QUORUM,
        rule=f'name = "{rule}", f = {len(LIARS)}',
        soft_deadline_s=5.0,
        more=f"[reputation]\noutlier = {given.outlier}\n",
    )

    def make() -> World:
        world = SkewedWorld(Scenario(job, LIARS), seed, coordinators=("c1",), workers=WORKERS)
        world.alpha, world.attack = given.alpha, given.attack
        return world

    run = play_in(make, until_finished)
    assert len(run.committed) == ROUNDS, f"{rule}, seed {seed}: {run.ended}"
    return run


async def until_finished(world: World) -> None:
    """Let the job come to its end."""
    while world.loop.time() < END_S and not world.is_finished():  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(1.0)


def kind_of(worker: str) -> str:
    """Say what sort of worker one is."""
    if worker in LIARS:
        return "liar"
    return "honest, unusual" if worker in UNUSUAL else "honest, usual"


def prices(rule: str, runs: Sequence[Run]) -> list[Price]:
    """Sum up the runs of one rule by kind of worker."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    weights: Counter[str] = Counter()
    for run in runs:
        states: dict[str, StandingState] = dict.fromkeys(WORKERS, StandingState.GOOD)
        for commit in map(Commit.unverified, run.committed):
            _count_round(commit, states, counts, weights, run.job.reputation.outlier)
    return [
        Price(
            rule=rule,
            kind=kind,
            gradients=count["gradients"],
            cut=count["cut"] / max(1, count["gradients"]),
            offences=count["offences"] / max(1, count["gradients"]),
            probation=count[StandingState.PROBATION] / count["rounds"],
            quarantine=count[StandingState.QUARANTINE] / count["rounds"],
            weight=weights[kind] / max(1, count["gradients"]),
        )
        for kind, count in sorted(counts.items())
    ]


def _count_round(
    commit: Commit,
    states: dict[str, StandingState],
    counts: Mapping[str, Counter[str]],
    weights: Counter[str],
    outlier: float,
) -> None:
    contributions = commit.record.contributions
    for each in contributions:
        kind = kind_of(each.worker)
        counts[kind]["gradients"] += 1
        counts[kind]["cut"] += each.weight == 0.0
        counts[kind]["offences"] += each.verdict == "refused" or each.score > outlier
        weights[kind] += each.weight * len(contributions)
    for worker, state in states.items():
        counts[kind_of(worker)]["rounds"] += 1
        counts[kind_of(worker)][state] += 1
    states.update({change.worker: change.after for change in commit.record.changes})


def show(found: Sequence[Price], path: Path) -> None:
    """Print the figures and write them to `path`."""
    table = Table(title="What robustness costs", title_justify="left")
    for column in ("rule", "workers", "gradients", "cut", "offences"):
        table.add_column(column)
    for column in ("on probation", "in quarantine", "weight"):
        table.add_column(column)
    for each in found:
        shares = (each.cut, each.offences, each.probation, each.quarantine)
        told = [f"{share:.1%}" for share in shares]
        table.add_row(each.rule, each.kind, str(each.gradients), *told, f"{each.weight:.2f}")
    Console(width=120).print(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(each) for each in found], indent=2))
    Console().print(f"written to {path}")


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="jobs for each rule")
    parser.add_argument("--alpha", type=float, default=0.1, help="of the Dirichlet distribution")
    parser.add_argument("--attack", type=AttackName, default=AttackName.SIGN_FLIP)
    parser.add_argument("--outlier", type=float, default=toy_job().reputation.outlier)
    parser.add_argument("--rules", nargs="*", default=RULES)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reputation.json"))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    found = []
    for rule in given.rules:
        runs = [play_rule(rule, seed, given) for seed in range(1, given.seeds + 1)]
        found += prices(rule, runs)
    show(found, given.out)


if __name__ == "__main__":
    main()
