"""Coordinators of the model: each carries out one request by production's decisions.

A step either looks (and decides, which leaves a transaction on its way) or has its
transaction arrive. Between the two anything may happen to the others, and the
coordinator may die. Its clock may show any time whenever it decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from registry_model.store import Pending, Sight, Store, applied, sent, sight_of

from pliska.coordinator.registry import transactions
from pliska.coordinator.registry.errors import RegistryError
from pliska.coordinator.registry.operations import Operation
from pliska.coordinator.registry.planning import Plan, make_plan
from pliska.coordinator.registry.protocol import (
    Decision,
    Intent,
    Situation,
    Verdict,
    decide_intent,
    decide_operation,
)
from pliska.coordinator.registry.requests import Request, RollbackRequest

WRITTEN = datetime(2031, 5, 4, tzinfo=UTC)
EARLY = WRITTEN
LATE = WRITTEN + timedelta(days=100)


@dataclass(frozen=True)
class Coordinator:
    """One coordinator.

    Attributes:
        name: Of its present life; what it did in an earlier one is not its any more.
        request: What it was asked for; None for one that only cleans up.
        follows: The operation that it drives or waits for; empty before that.
        first_gen: The generation at which it first resolved its request.
        pending: Its transaction that has not arrived yet.
        result: How it ended; empty while it goes on.
    """

    name: str
    request: Request | None
    follows: str = ""
    first_gen: int | None = None
    pending: Pending | None = None
    result: str = ""


@dataclass(frozen=True)
class Step:
    """One thing that a coordinator may do next.

    Attributes:
        label: For traces.
        after: The coordinator after it.
        store: The store after it.
        decided: What it decided, about which operation, where it did.
        took_over: Whether it is about to take an operation over.
    """

    label: str
    after: Coordinator
    store: Store
    decided: tuple[Decision, Operation] | None = None
    took_over: bool = False


def steps(coordinator: Coordinator, store: Store, takeovers_left: int) -> Iterator[Step]:
    """What the coordinator may do next."""
    if coordinator.result:
        return
    if coordinator.pending is not None:
        arrived = replace(coordinator, pending=None)
        after = applied(store, coordinator.pending)
        yield Step("arrives" if after else "is refused", arrived, after or store)
        return
    sight = sight_of(store)
    if coordinator.follows:
        yield from _drive(coordinator, store, sight, takeovers_left)
    elif coordinator.request is None:
        if sight.operation is not None:
            follower = replace(coordinator, follows=sight.operation.op_id)
            yield from _drive(follower, store, sight, takeovers_left)
    else:
        yield from _begin(coordinator, coordinator.request, store, sight, takeovers_left)


def _begin(
    coordinator: Coordinator,
    request: Request,
    store: Store,
    sight: Sight,
    takeovers_left: int,
) -> Iterator[Step]:
    """See `Rollout.carry_out`."""
    situation = sight.situation()
    ended = sight.how_ended(request.op_id)
    if ended is not None:
        yield Step("has ended", replace(coordinator, result=ended.ending), store)
        return
    if sight.operation is not None and sight.operation.op_id == request.op_id:
        driving = replace(coordinator, follows=request.op_id)
        yield from _drive(driving, store, sight, takeovers_left)
        return
    if is_overtaken(coordinator.first_gen, situation.gen):
        yield Step("is overtaken", replace(coordinator, result="overtaken"), store)
        return
    try:
        plan = make_plan(
            WRITTEN, coordinator.name, request, sight.state, sight.versions, sight.ended
        )
    except RegistryError as error:
        yield Step(f"cannot: {error}", replace(coordinator, result="refused"), store)
        return
    if plan.operation is None:
        yield Step("stays", replace(coordinator, result="stayed"), store)
        return
    first_gen = situation.gen if coordinator.first_gen is None else coordinator.first_gen
    resolved = replace(coordinator, first_gen=first_gen)
    is_relative = isinstance(request, RollbackRequest) and request.is_relative
    intent = Intent(plan.operation, is_relative, joins=True, approvals=0)
    for now in (EARLY, LATE) if situation.operation is not None else (EARLY,):
        decision = decide_intent(now, situation, intent, approvals_min=0)
        label = f"looks {'late' if now == LATE else 'early'}: {decision.verdict}"
        yield Step(label, _intended(resolved, plan, decision, situation, store), store)


def _intended(
    coordinator: Coordinator, plan: Plan, decision: Decision, situation: Situation, store: Store
) -> Coordinator:
    """See `Rollout._begin`."""
    assert plan.operation is not None
    match decision.verdict:
        case Verdict.BEGIN:
            step = transactions.begin(WRITTEN, situation, plan.operation)
            return replace(coordinator, pending=sent(store, step))
        case Verdict.MOVE:
            step = transactions.move(WRITTEN, situation, plan.operation, plan.versions)
            return replace(coordinator, pending=sent(store, step))
        case Verdict.JOIN:
            assert situation.operation is not None
            return replace(coordinator, follows=situation.operation.record.op_id)
        case _:
            return replace(coordinator, result=decision.verdict)


def is_overtaken(first_gen: int | None, gen: int) -> bool:
    """Whether somebody moved the alias since the request was resolved: it is not resolved again."""
    return first_gen is not None and gen != first_gen


def _drive(
    coordinator: Coordinator, store: Store, sight: Sight, takeovers_left: int
) -> Iterator[Step]:
    """See `Driver.drive`."""
    operation, situation = sight.operation, sight.situation()
    if operation is None or operation.op_id != coordinator.follows:
        ended = sight.how_ended(coordinator.follows)
        result = ended.ending if ended is not None else "vanished"
        yield Step("sees the end", replace(coordinator, result=result), store)
        return
    assert situation.operation is not None
    if operation.driver != coordinator.name:
        if takeovers_left:
            step = transactions.take_over(situation.operation, coordinator.name)
            after = replace(coordinator, pending=sent(store, step))
            yield Step("takes over", after, store, took_over=True)
        return
    seen = set()
    for now in (EARLY, LATE):
        decision = decide_operation(now, operation, situation, approvals_min=0)
        if decision.verdict in (*seen, Verdict.WAIT):
            continue
        seen.add(decision.verdict)
        pending = sent(store, next_step(situation, sight, decision))
        label = f"decides {'late' if now == LATE else 'early'}: {decision.verdict}"
        after = replace(coordinator, pending=pending)
        yield Step(label, after, store, decided=(decision, operation))


def next_step(situation: Situation, sight: Sight, decision: Decision) -> transactions.Transaction:
    """The transaction of a decision about the open operation."""
    stored = situation.operation
    assert stored is not None
    if decision.verdict is not Verdict.COMMIT:
        return transactions.end(WRITTEN, stored, decision)
    numbers = {stored.record.target, *stored.record.quarantines}
    versions = {number: sight.versions[number] for number in sorted(numbers)}
    return transactions.commit(WRITTEN, stored, situation.alias, versions)
