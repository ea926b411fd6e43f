"""Every interleaving of a few coordinators and nodes keeps the rules, and each rule is needed.

What is explored are production's own decisions and transactions (`policy`,
`planning`, `protocol`, `node_protocol`, `transactions`), on its own records. A mutant
takes one rule out of them; then the exploration has to find the way to disaster.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from registry_model import coordinators, serving_nodes, store
from registry_model.explore import World, explore, start
from registry_model.serving_nodes import Budget

from pliska.coordinator.registry import (
    PromoteRequest,
    RollbackRequest,
    Wait,
    node_protocol,
    policy,
    protocol,
)
from pliska.coordinator.registry.nodes import NodeRecord
from pliska.coordinator.registry.protocol import Decision, Verdict
from pliska.coordinator.registry.requests import Request

EVERYTHING = Budget(crashes=1, leases=1, failures=1, late=1)


def rollback(number: int, **more: object) -> Request:
    return RollbackRequest(
        model="digits",
        alias="prod",
        actor="ann",
        reason="worse",
        op_id=f"op{number}",
        **{"wait": Wait.ALL, **more},
    )


def promote(number: int, version: int, **more: object) -> Request:
    return PromoteRequest(
        model="digits", alias="prod", actor="ann", version=version, op_id=f"op{number}", **more
    )


SMALL = {
    "two rollbacks, two nodes, a takeover": start(
        (rollback(0), rollback(1)), 2, Budget(), takeovers=1, deaths=1
    ),
    "a rollback, all that befalls a node": start((rollback(0),), 1, EVERYTHING, 1, 1),
    "a rollback and a CI, a node that dies": start(
        (rollback(0), promote(1, 1, wait=Wait.NONE)), 1, Budget(crashes=1, late=1), 1, 0
    ),
    "a quorum and an emergency": start(
        (rollback(0, wait=Wait.QUORUM), rollback(1, is_emergency=True)),
        2, Budget(failures=1), 0, 0,
    ),
}  # fmt: skip
LARGE = {
    "a rollback and a CI, a node that dies and hears late": start(
        (rollback(0), promote(1, 1, wait=Wait.NONE)), 1, Budget(crashes=1, late=1), 1, 1
    ),
    "two rollbacks and a CI, two nodes": start(
        (rollback(0), rollback(1), promote(2, 1, wait=Wait.NONE)), 2, Budget(), 1, 1
    ),
    "two rollbacks, two nodes that die": start(
        (rollback(0), rollback(1)), 2, Budget(crashes=1), 1, 1
    ),
    "a rollback and a promotion, all that befalls two nodes": start(
        (rollback(0), promote(1, 1)), 2, EVERYTHING, 1, 1
    ),
}
"""These take minutes, and half an hour in all: PLISKA_REGISTRY_MODEL=large."""

WORLDS = {**SMALL, **(LARGE if os.environ.get("PLISKA_REGISTRY_MODEL") == "large" else {})}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORLDS)
def test_every_interleaving_keeps_the_rules_and_leaves_nothing_stuck(name: str) -> None:
    found = explore(WORLDS[name], states_max=20_000_000)
    print(f"{name}: {found.states} states")  # noqa: T201 - what a person who runs this wants to see
    assert (found.broken, found.trace) == ("", ())
    assert found.stuck == 0


@dataclass(frozen=True)
class Mutant:
    """A rule taken out.

    Attributes:
        apply: Takes it out.
        world: Where that shows.
        breaks: The beginning of the rule's name in `rules`.
    """

    apply: Callable[[pytest.MonkeyPatch], None]
    world: World
    breaks: str


def alias_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Commit without comparing the alias, and write over the history."""
    sent = store.sent

    def careless(at: store.Store, step: object) -> store.Pending:
        pending = sent(at, step)
        guarded = ("/aliases/digits/prod/alias", "/history/")
        expected = [each for each in pending.expected if not each[0].endswith(guarded[0])]
        created = frozenset(key for key in pending.created if guarded[1] not in key)
        return dataclasses.replace(pending, expected=tuple(expected), created=created)

    patch.setattr(coordinators, "sent", careless)
    patch.setattr(store, "is_lenient", True)


def operation_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Commit without comparing the operation."""
    sent = store.sent

    def careless(at: store.Store, step: object) -> store.Pending:
        pending = sent(at, step)
        expected = [each for each in pending.expected if each[0] != store.OPERATION_KEY]
        return dataclasses.replace(pending, expected=tuple(expected))

    patch.setattr(coordinators, "sent", careless)
    patch.setattr(store, "is_lenient", True)


def resolved_again(patch: pytest.MonkeyPatch) -> None:
    """Work out what "previous" means anew when somebody else was faster."""
    patch.setattr(coordinators, "is_overtaken", lambda *_: False)


def returns_allowed(patch: pytest.MonkeyPatch) -> None:
    """Forget what was rolled back from, and quarantine nothing."""
    patch.setattr(policy, "standing_entries", list)
    plan = coordinators.make_plan

    def without_quarantine(*arguments: object) -> object:
        made = plan(*arguments)
        operation = made.operation and dataclasses.replace(made.operation, quarantines=())
        return dataclasses.replace(made, operation=operation)

    patch.setattr(coordinators, "make_plan", without_quarantine)


def barrier_gone(patch: pytest.MonkeyPatch) -> None:
    """Call an operation DONE as soon as the alias has moved."""
    patch.setattr(
        protocol, "_decide_switch", lambda *_: Decision(Verdict.DONE, "the alias has moved")
    )


def answers_of_any_operation(patch: pytest.MonkeyPatch) -> None:
    """Take a node's answer whatever it was asked."""
    patch.setattr(NodeRecord, "answer_to", lambda record, _: record.ack)


def answers_of_any_life(patch: pytest.MonkeyPatch) -> None:
    """Take the oldest record that a node still has."""
    newest = store.newest_lives

    def oldest(lives: object) -> object:
        return newest(
            dataclasses.replace(life, created=-life.created)  # type: ignore[attr-defined]
            for life in lives  # type: ignore[attr-defined]
        )

    patch.setattr(store, "newest_lives", oldest)


def late_news_followed(patch: pytest.MonkeyPatch) -> None:
    """Follow whatever the alias says, also when it says less than before."""
    patch.setattr(node_protocol, "refusal", lambda *_: None)

    def decide(node: NodeRecord, accepted: object, operation: object) -> object:
        back = dataclasses.replace(node, serving_gen=min(node.serving_gen, accepted.gen - 1))  # type: ignore[attr-defined]
        same = node.serving_gen == accepted.gen  # type: ignore[attr-defined]
        return decide_node(node if same else back, accepted, operation)

    decide_node = node_protocol.decide_node
    patch.setattr(node_protocol, "decide_node", decide)


def seen_before_shown(patch: pytest.MonkeyPatch) -> None:
    """Let a restarted node look at the alias before operations can see it."""

    def first_steps(fresh, at, budget):  # type: ignore[no-untyped-def]
        if fresh.accepted is not None and fresh.accepted.gen == store.sight_of(at).alias.gen:
            digest = fresh.accepted.manifest_digest
            serving = dataclasses.replace(
                fresh,
                is_shown=False,
                gen=fresh.accepted.gen,
                serving=digest,
                held=frozenset({digest}),
            )
            yield "starts again, unseen", serving, at, budget

    patch.setattr(serving_nodes, "first_steps", first_steps)


def fence_lifted_early(patch: pytest.MonkeyPatch) -> None:
    """Believe what was seen before the lease was lost."""
    patch.setattr(
        serving_nodes,
        "confirms",
        lambda node, _: node.accepted is not None and node.gen == node.accepted.gen,
    )


def answers_stand(patch: pytest.MonkeyPatch) -> None:
    """Let go of a target without taking the answer back."""
    decide_node = node_protocol.decide_node

    def decide(node: NodeRecord, *more: object) -> object:
        decision = decide_node(node, *more)
        if decision.verdict is node_protocol.NodeVerdict.RETRACT:
            return node_protocol.NodeDecision(node_protocol.NodeVerdict.REST, "it forgets")
        return decision

    patch.setattr(node_protocol, "decide_node", decide)


ROLLBACKS = start((rollback(0), rollback(1)), 1, Budget(), 1, 1)
MUTANTS = {
    "the alias is compared at the commit": Mutant(
        alias_unchecked,
        start((rollback(0), promote(1, 1, wait=Wait.NONE)), 1, Budget(), 0, 0),
        "I1",
    ),
    "the operation is compared at the commit": Mutant(operation_unchecked, ROLLBACKS, "I6"),
    "a request is resolved once": Mutant(resolved_again, ROLLBACKS, "I7"),
    "what was rolled back from is not returned to": Mutant(returns_allowed, ROLLBACKS, "I7"),
    "DONE waits for the nodes": Mutant(
        barrier_gone, start((rollback(0),), 1, Budget(), 0, 0), "I5"
    ),
    "an answer belongs to an operation": Mutant(
        answers_of_any_operation,
        start((rollback(0), promote(1, 1)), 1, Budget(), 0, 0),
        "I5: a commit",
    ),
    "an answer belongs to a life": Mutant(
        answers_of_any_life, start((rollback(0),), 1, Budget(crashes=1), 0, 0), "I5: a commit"
    ),
    "a node follows no lower generation": Mutant(
        late_news_followed, start((rollback(0),), 1, Budget(late=1), 0, 0), "I4"
    ),
    "a node shows itself before it looks": Mutant(
        seen_before_shown, start((rollback(0),), 1, Budget(crashes=1), 0, 0), "I5"
    ),
    "a lost lease is trusted again only after a look": Mutant(
        fence_lifted_early, start((rollback(0),), 1, Budget(leases=1, late=1), 0, 0), "I5"
    ),
    "an answer is taken back before the target is let go": Mutant(
        answers_stand, start((rollback(0),), 1, Budget(late=1), 0, 0), "I5: a commit"
    ),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_without_the_rule_the_exploration_finds_what_breaks(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS[rule]
    store.sight_of.cache_clear()
    mutant.apply(monkeypatch)
    found = explore(mutant.world)
    store.sight_of.cache_clear()
    assert found.broken.startswith(mutant.breaks), (found, rule)
    assert found.trace
