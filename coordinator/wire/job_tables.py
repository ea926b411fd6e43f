"""The tables of a job file and what their keys may hold.

A field whose annotation carries an expectation is a key of its table, and its
docstring and default are the reference. What must hold between two tables, and
the file as a whole, is `job.py`'s matter; nobody else makes one of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pliska.coordinator.wire.expectations import (
    Arguments,
    Choice,
    OtherKeys,
    Real,
    Seconds,
    Text,
    Whole,
    WholeOrAuto,
)
from pliska.coordinator.wire.limits import WORKERS_MAX

ROUNDS_MAX = 10**9
BATCH_MAX = 2**20
DEADLINE_MAX_S = 86_400.0
STALENESS_MAX = 63
"""Versions that the model may have advanced since the base of a gradient that is still taken."""
REPLICAS_MAX = 8
DURABLE_EVERY_MAX = 1000

NAME = Text(
    r"[a-z0-9][a-z0-9_-]{0,62}",
    "1 to 63 lower-case letters, digits, '-' and '_', beginning with a letter or digit",
)
_FUNCTION = Text(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
    'a function as "package.module:function"',
)


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained.

    Attributes:
        factory: The user's function that returns the `torch.nn.Module`.
        arguments: Its keyword arguments.
    """

    factory: Annotated[str, _FUNCTION]
    arguments: Annotated[Mapping[str, Any], Arguments()] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Data:
    """What it is trained on.

    Attributes:
        factory: The user's function that returns the training and the test
            dataset; each item is a pair of input and target tensors.
        arguments: Its keyword arguments.
        batch: Examples in one gradient of one worker.
        loss: The function of (output, target) that a worker differentiates.
    """

    factory: Annotated[str, _FUNCTION]
    arguments: Annotated[Mapping[str, Any], Arguments()] = field(default_factory=dict)
    batch: Annotated[int, Whole(1, BATCH_MAX)] = 32
    loss: Annotated[str, _FUNCTION] = "torch.nn.functional:cross_entropy"


@dataclass(frozen=True, slots=True)
class Rule:
    """How the workers' gradients become one.

    Attributes:
        name: A rule of `pliska.aggregation`.
        parameters: The other keys of the table, such as `f`.
    """

    name: Annotated[str, NAME]
    parameters: Annotated[Mapping[str, Any], OtherKeys()] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """How the model takes a step along the aggregate.

    Attributes:
        name: Which of torch's optimizers.
        parameters: The other keys of the table: `lr`, `momentum`, `weight_decay`, ….
    """

    name: Annotated[str, Choice(("sgd", "adam", "adamw"))]
    parameters: Annotated[Mapping[str, Any], OtherKeys()] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds there are, and when one opens and closes.

    Attributes:
        count: Rounds after which the job is done.
        workers: The first round opens at once when so many have joined, and
            with the quorum after it has waited `soft_deadline_s` for more.
        quorum: Gradients without which no round closes, those of refused
            content included, since each spends one of the rule's f; at most
            `workers`. The rule's own bound on n may ask for more.
        soft_deadline_s: So long after it opened, a round closes with the
            quorum; before, it closes when every worker has answered.
        deadline_s: So long after it opened, a round without its quorum starts
            again with the workers that are there, and says why; at least
            `soft_deadline_s`.
        soft_deadline_spread: Once it is known how long gradients take, the soft
            deadline is their median and so many median absolute deviations,
            but never below `soft_deadline_s` or above `deadline_s`.
    """

    count: Annotated[int, Whole(1, ROUNDS_MAX)]
    workers: Annotated[int, Whole(1, WORKERS_MAX)]
    quorum: Annotated[int, Whole(1, WORKERS_MAX)]
    soft_deadline_s: Annotated[float, Seconds(0.01, DEADLINE_MAX_S)] = 2.0
    deadline_s: Annotated[float, Seconds(0.01, DEADLINE_MAX_S)] = 10.0
    soft_deadline_spread: Annotated[float, Real(0.0, 1000.0)] = 5.0


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How gradients meet a version, until `pliska job mode` says otherwise.

    Attributes:
        start: The mode of the first round.
        policy: `manual`, or `auto`: the leader goes to and fro between the modes by
            the share of workers that are stragglers.
        patience: Rounds in a row that must speak for another mode before `auto`
            goes there.
    """

    start: Annotated[str, Choice(("synchronous", "asynchronous", "hybrid"))] = "synchronous"
    policy: Annotated[str, Choice(("manual", "auto"))] = "manual"
    patience: Annotated[int, Whole(1, ROUNDS_MAX)] = 5


@dataclass(frozen=True, slots=True)
class Hybrid:
    """The hybrid mode: a round closes with so many gradients, none of them too old.

    Attributes:
        buffer: Gradients, each of another worker, that close a round at once;
            0: as many as `rounds.quorum`.
        staleness_max: Versions that the model may have advanced since a
            gradient's base.
        damping: A gradient that is `lag` versions old counts
            `(1 + lag) ** -damping`.
    """

    buffer: Annotated[int, Whole(0, WORKERS_MAX)] = 0
    staleness_max: Annotated[int, Whole(1, STALENESS_MAX)] = 8
    damping: Annotated[float, Real(0.0, 10.0)] = 0.5


@dataclass(frozen=True, slots=True)
class Asynchronous:
    """The asynchronous mode: a gradient counts as soon as it comes.

    Attributes:
        buffers: Buffers that workers are dealt to; a round closes when each has
            a gradient, and the rule combines their means. 0: as many as the
            rule needs. 1: each gradient that passes the Lipschitz filter makes
            a version.
        staleness_max: Versions that the model may have advanced since a
            gradient's base.
        damping: A gradient that is `lag` versions old counts
            `(1 + lag) ** -damping`.
    """

    buffers: Annotated[int, Whole(0, WORKERS_MAX)] = 0
    staleness_max: Annotated[int, Whole(1, STALENESS_MAX)] = 16
    damping: Annotated[float, Real(0.0, 10.0)] = 0.5


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """When the whole state is written; between two, recovery replays the update log.

    Attributes:
        every: Rounds from one checkpoint to the next.
        keep: How many of the newest stay on disk.
    """

    every: Annotated[int, Whole(1, ROUNDS_MAX)] = 10
    keep: Annotated[int, Whole(1, 1000)] = 3


@dataclass(frozen=True, slots=True)
class Durable:
    """What must have happened before a round is committed, and how long its update is kept.

    Attributes:
        replicas: Standbys that have a round's log entry on a disk of their own
            before the round is committed. A number is strict: with fewer standbys
            the round waits, and status says so. "auto": one where a standby
            follows, none else. 0 for coordinators that share a storage that is
            safe by itself.
        every: Rounds from one that is committed to the next. With n above 1 a
            failover takes back at most n - 1 rounds; the last round, those with a
            checkpoint, and the last one of a leader that is told to go are
            committed too.
        keep_rounds: So many of the newest rounds keep their aggregates in the
            log; what recovery, a standby that follows or `audit.keep_rounds` needs
            stays in any case. Commit records and their annexes are never removed.
    """

    replicas: Annotated[int | Literal["auto"], WholeOrAuto(0, REPLICAS_MAX)] = "auto"
    every: Annotated[int, Whole(1, DURABLE_EVERY_MAX)] = 1
    keep_rounds: Annotated[int, Whole(0, ROUNDS_MAX)] = 100


@dataclass(frozen=True, slots=True)
class Evaluate:
    """When the model is measured on the test data.

    Attributes:
        every: Rounds from one evaluation to the next; the last round has one too.
    """

    every: Annotated[int, Whole(1, ROUNDS_MAX)] = 5


@dataclass(frozen=True, slots=True)
class Audit:
    """What is kept and repeated so that rounds can be checked later.

    Attributes:
        keep_rounds: So many of the newest rounds keep their gradients as they
            came, for `pliska audit replay`; 0 keeps none. Signed headers, verdicts
            and evidence are always kept.
        recompute: Share of the gradients that the leader computes again from
            the worker's batch, drawn after the round is committed.
        tolerance: Distance from the recomputed gradient, as a share of its
            length, from which the worker is convicted. Equal software on equal
            machines gives equal bits; others differ by rounding.
    """

    keep_rounds: Annotated[int, Whole(0, ROUNDS_MAX)] = 0
    recompute: Annotated[float, Real(0.0, 1.0)] = 0.0
    tolerance: Annotated[float, Real(0.0, 1.0)] = 0.01


@dataclass(frozen=True, slots=True)
class Reputation:
    """What a worker's conduct means for its next gradients.

    Attributes:
        memory_rounds: One gradient moves suspicion by 1 / memory_rounds.
        outlier: Squared distance to the aggregate, as a multiple of the median
            worker's, from which a gradient counts against its worker. Honest
            gradients differ by sampling noise, which stays within a small factor.
        probation_above: Suspicion, 0 to 1, from which a worker is on probation.
        clear_below: Suspicion under which it is in good standing again.
        quarantine_above: Suspicion from which its gradients are refused.
        quarantine_rounds: How long its first quarantine lasts; each further one
            lasts twice as long as the one before. 0: nobody is ever kept out.
    """

    memory_rounds: Annotated[float, Real(1.0, 10_000.0)] = 8.0
    outlier: Annotated[float, Real(1.0, 1e6)] = 4.0
    probation_above: Annotated[float, Real(0.0, 1.0)] = 0.5
    clear_below: Annotated[float, Real(0.0, 1.0)] = 0.2
    quarantine_above: Annotated[float, Real(0.0, 1.0)] = 0.8
    quarantine_rounds: Annotated[int, Whole(0, ROUNDS_MAX)] = 20
