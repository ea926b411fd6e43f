"""The same question as `rounds_stragglers`, put to the round machine alone, in virtual time.

The production machine decides; workers, network and commits are durations. So
the answer depends on no load of the machine that it is computed on.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count

from report import Figure, figure
from rounds_stragglers import QUORUM, SLOWER, WORKERS
from training.toy_job import toy_job

from pliska.aggregation import rule_named
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.rounds.collecting import next_tick
from pliska.coordinator.rounds.round import advance
from pliska.coordinator.rounds.round_events import (
    Aggregate,
    Aggregated,
    Answer,
    Asked,
    Commit,
    Committed,
    Event,
    MembersChanged,
    Opened,
    Publish,
    Received,
    Tick,
)
from pliska.coordinator.rounds.round_state import Offered, RoundOptions, RoundState
from pliska.coordinator.wire import ReplyCode

TURN_S = 1.0
JITTER = 0.1
"""A worker's turns differ by so much, uniformly."""
STEP_S = 0.02
"""Aggregation; the commit takes as long again."""
MEASURED_S = 600.0
LIFE = b"1" * 16


def figures(repeats: int) -> list[Figure]:
    """Compare rounds with and without a straggler, by mode."""
    found = []
    for mode, quorum in ((Mode.HYBRID, QUORUM), (Mode.SYNCHRONOUS, QUORUM)):
        pairs = [
            (rate(mode, quorum, 1, seed), rate(mode, quorum, SLOWER, seed))
            for seed in range(repeats)
        ]
        name = f"{mode}, quorum {quorum} of {WORKERS}, virtual time"
        ratios = [slowed / even for even, slowed in pairs]
        is_promised = mode is Mode.HYBRID
        found += [
            figure(f"{name}: rounds without a straggler", [even for even, _ in pairs], "a turn"),
            figure(
                f"{name}: with one {SLOWER} times slower, as a share of that",
                ratios,
                "",
                "at least 0.9" if is_promised else "",
                (lambda ratio: ratio >= 0.9) if is_promised else None,
            ),
        ]
    return found


def rate(mode: Mode, quorum: int, slower: float, seed: int) -> float:
    """Return committed rounds a turn with one worker that is so many times slower."""
    job = toy_job(
        count=10**6,
        workers=WORKERS,
        quorum=quorum,
        rule='name = "trimmed-mean", f = 3',
        soft_deadline_s=0.05,
        deadline_s=30.0,
        more="[hybrid]\nstaleness_max = 16",
    )
    rule = rule_named(job.rule.name, **job.rule.parameters)
    world = _World(mode, RoundOptions.of_job(job, rule, WORKERS), slower, random.Random(seed))  # noqa: S311 - a model, no secret
    return world.run(MEASURED_S) * TURN_S / MEASURED_S


class _World:
    """A job in virtual time."""

    def __init__(
        self, mode: Mode, options: RoundOptions, slower: float, rng: random.Random
    ) -> None:
        self.options, self.slower, self.rng = options, slower, rng
        setting = ModeSetting(mode)
        self.state = RoundState(1, WORKERS, 0.0, setting=setting, requested=setting)
        self.now, self.version = 0.0, 0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.bases: dict[str, int] = {}
        self.idle: set[str] = set()
        self.at_the_door: list[Offered] = []
        self.settled: set[tuple[str, int]] = set()

    def run(self, until_s: float) -> int:
        """Return how many rounds were committed by then."""
        workers = [f"w{number:02d}" for number in range(WORKERS)]
        self.feed(MembersChanged(dict.fromkeys(workers, LIFE)))
        for worker in workers:
            self.begin(worker)
        while self.now < until_s:
            tick = next_tick(self.state, self.options)
            if tick is not None and (not self.agenda or tick <= self.agenda[0][0]):
                self.now = max(self.now, tick)
                self.feed(Tick())
                continue
            self.now, _, act = heapq.heappop(self.agenda)
            act()
        return self.version

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.now + seconds, next(self.order), act))

    def begin(self, worker: str) -> None:
        """Compute a gradient on the newest version."""
        self.idle.discard(worker)
        self.bases[worker] = self.version
        self.feed(Asked(worker))
        lease = self.state.leases.of(worker)
        assert lease is not None
        offer = Offered(worker, LIFE, f"{worker} {self.version}".encode(), self.version + 1, lease)
        turn_s = TURN_S * (self.slower if worker == "w00" else 1)
        self.after(turn_s * self.rng.uniform(1, 1 + JITTER), lambda: self.send(offer))

    def send(self, offer: Offered) -> None:
        gathering = self.options.gatherings.of(self.state.setting.mode, is_primed=True)
        joined = self.state.joined if gathering.lag_max else self.state.round
        code = ReplyCode.STALE_ROUND
        if joined - offer.round <= gathering.lag_max:
            code = self.feed(offer)
        if code is ReplyCode.BUSY:
            self.at_the_door.append(offer)
            return
        if code is ReplyCode.ACCEPTED:
            self.feed(Received(offer))
        self.go_on(offer.worker)

    def go_on(self, worker: str) -> None:
        """Take the next version, or wait for it."""
        if self.version > self.bases[worker]:
            self.begin(worker)
        else:
            self.idle.add(worker)

    def feed(self, event: Event) -> ReplyCode:
        step = advance(self.state, event, self.now, self.options)
        self.state = step.state
        code = ReplyCode.ACCEPTED
        for effect in step.effects:
            match effect:
                case Answer(code=answered):
                    code = answered
                case Opened():
                    waiting, self.at_the_door = self.at_the_door, []
                    for offer in waiting:
                        self.after(0.0, lambda offer=offer: self.send(offer))  # type: ignore[misc]
                case Aggregate():
                    self.after(STEP_S, lambda: self.happens(Aggregated()))
                case Commit():
                    self.after(STEP_S, lambda: self.happens(self.committed()))
                case Publish():
                    self.version += 1
                    for worker in sorted(self.idle):
                        self.begin(worker)
        return code

    def committed(self) -> Committed:
        sealed, cursor = self.state.sealed, self.state.leases.cursor
        assert sealed is not None
        return Committed(cursor.settle(slot.offer.lease for slot in sealed.slots.values()))

    def happens(self, event: Event) -> None:
        self.feed(event)
