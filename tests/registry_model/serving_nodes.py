"""Nodes of the model: each follows the alias by production's decisions.

A step looks and does one thing about what it saw, which it also shows; or it is
something that happens to the node: it dies, its lease ends, it is started again,
or it hears late of how things were before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from registry_model.coordinators import EARLY
from registry_model.store import ALIAS, MODEL, NAMESPACE, Store, sight_of, with_record

from pliska.coordinator.registry import node_protocol
from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.node_protocol import NodeVerdict, wanted_digests
from pliska.coordinator.registry.nodes import Ack, Answer, NodeRecord, node_key
from pliska.coordinator.registry.operations import Operation


@dataclass(frozen=True)
class Seen:
    """What a node saw of the alias and its operation at some moment, and in which life."""

    life: int
    alias: AliasRecord | None
    operation: Operation | None


@dataclass(frozen=True)
class Node:
    """One node.

    Attributes:
        name: Kept across lives.
        life: 1, 2, ...; its incarnation.
        is_alive: Whether its process runs.
        is_shown: Whether the store has a record of this life.
        is_fenced: Whether it was cut off and has not seen since that it is up to date.
        accepted: On its disk.
        gen: What it serves; 0 for nothing.
        serving: The manifest that it serves.
        held: The manifests in its memory.
        ack: Its newest answer.
        late: Something that it saw and that reaches it later.
        ghost: The record of a life before, while its lease has not ended; or none.
    """

    name: str
    life: int
    is_alive: bool = True
    is_shown: bool = True
    is_fenced: bool = False
    accepted: HistoryEntry | None = None
    gen: int = 0
    serving: Digest | None = None
    held: frozenset[Digest] = frozenset()
    ack: Ack | None = None
    late: Seen | None = None
    ghost: str = ""

    def record(self) -> NodeRecord:
        """What it has to show."""
        return NodeRecord(
            namespace=NAMESPACE,
            model=MODEL,
            alias=ALIAS,
            node=self.name,
            incarnation=str(self.life),
            gen=0 if self.accepted is None else self.accepted.gen,
            serving_gen=self.gen,
            serving=self.serving,
            loaded=tuple(sorted(self.held)),
            ack=self.ack,
        )

    @property
    def key(self) -> str:
        return node_key(self.record())


@dataclass(frozen=True)
class Budget:
    """How often things that happen to nodes may still happen."""

    crashes: int = 0
    leases: int = 0
    failures: int = 0
    late: int = 0


NodeStep = tuple[str, Node, Store, Budget]


def steps(node: Node, store: Store, budget: Budget) -> Iterator[NodeStep]:
    """What may happen next with a node."""
    if node.ghost:
        forgotten = with_record(store, node.ghost, None)
        yield "old lease ends", replace(node, ghost=""), forgotten, budget
    if not node.is_alive:
        ghost = node.key if node.is_shown else node.ghost
        fresh = Node(node.name, node.life + 1, accepted=node.accepted, ghost=ghost)
        yield from first_steps(fresh, store, budget)
        return
    if budget.crashes:
        less = replace(budget, crashes=budget.crashes - 1)
        yield "dies", replace(node, is_alive=False, late=None), store, less
    if not node.is_shown:
        shown = replace(node, life=node.life + 1, is_shown=True)
        yield "shows itself", shown, _shown(shown, store), budget
    elif budget.leases:
        cut = replace(node, is_shown=False, is_fenced=True)
        less = replace(budget, leases=budget.leases - 1)
        yield "is cut off", cut, with_record(store, node.key, None), less
    now = _seen(node, store)
    if node.is_shown:
        yield from _act(node, now, "looks", store, budget)
    if node.late is not None:
        yield from _act(replace(node, late=None), node.late, "hears late", store, budget)
    elif budget.late:
        less = replace(budget, late=budget.late - 1)
        yield "will hear late", replace(node, late=now), store, less


def first_steps(fresh: Node, store: Store, budget: Budget) -> Iterator[NodeStep]:
    """It shows itself before it looks; see `Presence.renew`."""
    yield "starts again", fresh, _shown(fresh, store), budget


def _act(node: Node, seen: Seen, how: str, store: Store, budget: Budget) -> Iterator[NodeStep]:
    """See `Node.take` of production: one decision, and what is shown of it."""
    before, node = node, _accept(node, seen, store)
    if before.accepted != node.accepted and budget.crashes:
        less = replace(budget, crashes=budget.crashes - 1)
        yield f"{how}, dies", replace(node, is_alive=False, late=None), store, less
    decision = node_protocol.decide_node(node.record(), node.accepted, seen.operation)
    if _refusal(before, seen) is not None:
        return
    label = f"{how}: {decision.verdict}"
    match decision.verdict:
        case NodeVerdict.LOAD if decision.digest is not None:
            if budget.failures:
                # That it cannot load it and the answer that says so are one step here.
                failed = replace(node, ack=Ack(decision.op_id, Answer.FAILED))
                less = replace(budget, failures=budget.failures - 1)
                yield f"{label} fails", failed, _shown(failed, store), less
            node = replace(_let_go(node, seen), held=node.held | {decision.digest})
        case NodeVerdict.SWITCH if node.accepted is not None:
            # Production answers SERVING; nobody counts that, the generation shown says it.
            entry = node.accepted
            node = replace(node, gen=entry.gen, serving=entry.manifest_digest, ack=None)
        case NodeVerdict.ANSWER:
            node = replace(node, ack=Ack(decision.op_id, Answer.PREPARED))
        case NodeVerdict.RETRACT:
            node = replace(node, ack=None)
        case _:
            node = _let_go(node, seen)
    if confirms(node, seen):
        node = replace(node, is_fenced=False)
    if node != before:
        yield label, node, _shown(node, store), budget


def confirms(node: Node, seen: Seen) -> bool:
    """Whether what it saw tells it that what it serves is up to date; see `ServedModel._stale`."""
    is_behind = node.accepted is None or node.gen != node.accepted.gen
    return node.is_shown and seen.life == node.life and not is_behind


def _accept(node: Node, seen: Seen, store: Store) -> Node:
    if seen.alias is None or _refusal(node, seen) is not None:
        return node
    newest = sight_of(store).history[seen.alias.gen - 1]
    return node if newest == node.accepted else replace(node, accepted=newest)


def _refusal(node: Node, seen: Seen) -> str | None:
    return node_protocol.refusal(EARLY, node.accepted, seen.alias, None, 0, 0)


def _let_go(node: Node, seen: Seen) -> Node:
    wanted = wanted_digests(node.accepted, seen.operation) | {node.serving}
    return replace(node, held=node.held & wanted)


def _seen(node: Node, store: Store) -> Seen:
    sight = sight_of(store)
    return Seen(node.life, sight.alias, sight.operation)


def _shown(node: Node, store: Store) -> Store:
    return with_record(store, node.key, node.record().to_bytes()) if node.is_shown else store
