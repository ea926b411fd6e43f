"""How the rounds of each mode fill: what they take, when they are full, what they need.

The strategy behind a mode, as numbers: `round` follows them without knowing
which mode it is. Values and pure functions.

    synchronous    lag 0; closes with everybody, or with the quorum at the soft deadline
    hybrid         lag to a bound; closes with so many gradients (stale synchronous, FedBuff)
    asynchronous   lag to a bound; closes when each buffer has a gradient (BASGD), or, with
                   one buffer, with whatever passes the Lipschitz filter (Kardam)

The filter compares a worker's gradients with its earlier ones, so it has to be
primed: the first asynchronous round, and one after which nobody passed, is
closed by the rule over a quorum.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pliska.aggregation import Rule
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.training.floor import Floor
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Gathering:
    """How one kind of round fills. Its *rows* are what the rule will see.

    Attributes:
        rows_least: Rows that it needs, bad ones included, since each spends one of the rule's f.
        floor: Which numbers of rows the rule cannot work with.
        rows_full: Closes at once with so many; None: waits for everybody.
        lag_max: Versions that the model may have advanced since a gradient's base.
        damping: Exponent by which age takes weight off a gradient (see `staleness`).
        buffers: Rows are the means of so many buffers; None: each gradient is a row.
        is_filtered: Rows are what the Lipschitz filter will judge, and bad ones do not count.
        members: Which numbers of workers the filter cannot work with.
    """

    rows_least: int
    floor: Floor
    rows_full: int | None = None
    lag_max: int = 0
    damping: float = 0.0
    buffers: int | None = None
    is_filtered: bool = False
    members: Floor = field(default_factory=lambda: Floor({}))

    def places(self, workers: Collection[str]) -> dict[str, int]:
        """Deal workers to buffers, so that each has its one; empty where there are none."""
        if self.buffers is None:
            return {}
        return {worker: place % self.buffers for place, worker in enumerate(sorted(workers))}

    def rows(
        self, settled: Collection[str], filled: Collection[str], places: Mapping[str, int]
    ) -> int:
        """Count the rows.

        Args:
            settled: Workers whose gradient is in or spent.
            filled: Those among them whose gradient is in.
            places: From `places`.
        """
        if self.is_filtered:
            return len(filled)
        if self.buffers is None:
            return len(settled)
        return len({places[worker] for worker in settled})

    def is_full(self, rows: int) -> bool:
        """Whether so many rows close the round at once."""
        return self.rows_full is not None and rows >= self.rows_full

    def shortage(self, rows: int) -> str | None:
        """Say why so many rows are too few; None where they are enough."""
        if rows < self.rows_least:
            return f"{rows} of {self.rows_least} gradients"
        return self.floor.shortage(rows)

    @property
    def workers_least(self) -> int:
        """Workers without whom no round opens."""
        return max(self.rows_least, self.members.least())

    def shortage_of_workers(self, there: int) -> str | None:
        """Say why so many workers are too few to open; None where they are enough."""
        if there < self.rows_least:
            return f"{there} of {self.rows_least} are here"
        return self.members.shortage(there)


@dataclass(frozen=True, slots=True)
class Gatherings:
    """How the rounds of one job fill.

    Attributes:
        priming: Of an asynchronous round while the filter has nothing to compare with.
    """

    synchronous: Gathering
    hybrid: Gathering
    asynchronous: Gathering
    priming: Gathering

    def of(self, mode: Mode, is_primed: bool) -> Gathering:
        """Return how a round of this mode fills."""
        match mode:
            case Mode.SYNCHRONOUS:
                return self.synchronous
            case Mode.HYBRID:
                return self.hybrid
            case Mode.ASYNCHRONOUS:
                needs_priming = self.asynchronous.is_filtered and not is_primed
                return self.priming if needs_priming else self.asynchronous

    @classmethod
    def of_job(cls, job: Job, rule: Rule, workers_max: int) -> "Gatherings":
        """Read them off a job.

        Args:
            job: The job.
            rule: Its rule.
            workers_max: Workers that there is room for.
        """
        quorum, floor = job.rounds.quorum, Floor.of_rule(rule, workers_max)
        free = job.asynchronous
        return cls(
            synchronous=Gathering(quorum, floor),
            hybrid=Gathering(
                quorum,
                floor,
                rows_full=job.hybrid.buffer or quorum,
                lag_max=job.hybrid.staleness_max,
                damping=job.hybrid.damping,
            ),
            asynchronous=_asynchronous(job, rule, floor, workers_max),
            priming=Gathering(
                quorum,
                floor,
                rows_full=quorum,
                lag_max=free.staleness_max,
                damping=free.damping,
                members=Floor.of_filter(rule.f, workers_max),
            ),
        )


def _asynchronous(job: Job, rule: Rule, floor: Floor, workers_max: int) -> Gathering:
    free = job.asynchronous
    if free.buffers == 1:
        return Gathering(
            rows_least=1,
            floor=Floor({}),
            rows_full=1,
            lag_max=free.staleness_max,
            damping=free.damping,
            buffers=1,
            is_filtered=True,
            members=Floor.of_filter(rule.f, workers_max),
        )
    return Gathering(
        rows_least=floor.least(),
        floor=floor,
        rows_full=free.buffers or rule.rows_min,
        lag_max=free.staleness_max,
        damping=free.damping,
        buffers=free.buffers or rule.rows_min,
    )
