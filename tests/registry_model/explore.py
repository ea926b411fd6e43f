"""Explores every interleaving of coordinators, nodes and what befalls them, breadth first."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry_model import coordinators, serving_nodes
from registry_model.coordinators import Coordinator
from registry_model.rules import (
    commit_violation,
    end_violation,
    move_violation,
    node_violation,
    store_violation,
)
from registry_model.serving_nodes import Budget, Node
from registry_model.store import (
    ALIAS,
    ALIAS_KEY,
    KEYS,
    MODEL,
    NAMESPACE,
    Store,
    sight_of,
)

from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.digest import NO_DIGEST, digest_of
from pliska.coordinator.registry.history import HistoryEntry, MoveKind
from pliska.coordinator.registry.protocol import Verdict
from pliska.coordinator.registry.requests import Request
from pliska.coordinator.registry.versions import State, VersionRecord

VERSIONS = 3


@dataclass(frozen=True)
class World:
    """Everything at one moment.

    Attributes:
        takeovers: How many operations may still be taken over.
        deaths: How many coordinators may still die.
    """

    store: Store
    coordinators: tuple[Coordinator, ...]
    nodes: tuple[Node, ...]
    budget: Budget
    takeovers: int
    deaths: int


@dataclass(frozen=True)
class Found:
    """What an exploration found.

    Attributes:
        states: How many worlds there are.
        broken: The rule that was broken first; empty where none was.
        trace: How it came to that.
        stuck: How many worlds have an open operation that nobody can ever end.
    """

    states: int
    broken: str
    trace: tuple[str, ...]
    stuck: int


def start(
    requests: tuple[Request, ...], nodes: int, budget: Budget, takeovers: int, deaths: int
) -> World:
    """`prod` has pointed at 1, 2 and 3, which all nodes serve; nothing has been asked for yet."""
    history, records = [], {}
    for number in range(1, VERSIONS + 1):
        version = version_record(number)
        records[KEYS.version(MODEL, number)] = version.to_bytes()
        entry = HistoryEntry(
            namespace=NAMESPACE,
            model=MODEL,
            alias=ALIAS,
            gen=number,
            kind=MoveKind.PROMOTE,
            from_version=number - 1 or None,
            to_version=number,
            manifest_digest=version.complete_manifest_digest(),
            op_id=f"before{number}",
            actor="ann",
            reason="",
            at="2031-01-01T00:00:00.000Z",
            prev_hash=history[-1].hash if history else NO_DIGEST,
        )
        history.append(entry)
        records[KEYS.history_entry(MODEL, ALIAS, number)] = entry.to_bytes()
    newest = history[-1]
    records[ALIAS_KEY] = AliasRecord.after(newest).to_bytes()
    serving = []
    for number in range(nodes):
        node = Node(
            f"n{number}",
            1,
            accepted=newest,
            gen=newest.gen,
            serving=newest.manifest_digest,
            held=frozenset({newest.manifest_digest}),
        )
        serving.append(node)
        records[node.key] = node.record().to_bytes()
    askers = [Coordinator(f"c{index}", request) for index, request in enumerate(requests)]
    return World(
        tuple(sorted(records.items())),
        tuple(askers),
        tuple(serving),
        budget,
        takeovers,
        deaths,
    )


def version_record(number: int) -> VersionRecord:
    """A version that is READY."""
    return VersionRecord(
        namespace=NAMESPACE,
        model=MODEL,
        version=number,
        content_id=digest_of(b"content %d" % number),
        manifest_digest=digest_of(b"manifest %d" % number),
        state=State.READY,
        state_reason="",
        parent=None,
        tensors=1,
        nbytes=4,
        registered_at="2031-01-01T00:00:00.000Z",
        registered_by="ann",
    )


def explore(world: World, states_max: int = 2_000_000) -> Found:
    """Visit every world that can come of this one, until a rule is broken."""
    return _Exploration(states_max).run(world)


Key = tuple[int, ...]
"""A world by the numbers of its parts: store, budget, takeovers, deaths, coordinators, nodes."""

STORE, BUDGET, TAKEOVERS, DEATHS, PARTS = 0, 1, 2, 3, 4


class _Exploration:
    """Worlds are tuples of numbers, and steps of a part are worked out once for what it sees."""

    def __init__(self, states_max: int) -> None:
        self._states_max = states_max
        self._numbers: dict[object, int] = {}
        self._values: list[Any] = []
        self._coordinator_steps: dict[tuple[int, ...], list[tuple[str, int, int, Any]]] = {}
        self._node_steps: dict[tuple[int, ...], list[tuple[str, int, int, int, str]]] = {}
        self._store_violations: dict[int, str] = {}
        self._broken: dict[tuple[int, ...], str] = {}
        self._heirs: dict[int, int | None] = {}

    def run(self, world: World) -> Found:
        self._askers = len(world.coordinators)
        parts = (world.store, world.budget)
        begin = (
            *map(self._number, parts),
            world.takeovers,
            world.deaths,
            *map(self._number, (*world.coordinators, *world.nodes)),
        )
        parents: dict[Key, tuple[Key | None, str]] = {begin: (None, "")}
        edges: list[tuple[Key, Key]] = []
        waiting = deque([begin])
        while waiting:
            here = waiting.popleft()
            for label, there, broken in self._next(here):
                if broken:
                    trace = (*_trace(parents, here), label)
                    return Found(len(parents), broken, trace, 0)
                edges.append((here, there))
                if there not in parents:
                    parents[there] = (here, label)
                    waiting.append(there)
                    assert len(parents) <= self._states_max, "the model has grown too large"
        return Found(len(parents), "", (), self._stuck(parents, edges))

    def _next(self, here: Key) -> Iterator[tuple[str, Key, str]]:
        for place in range(PARTS, PARTS + self._askers):
            yield from self._next_of_coordinator(here, place)
        for place in range(PARTS + self._askers, len(here)):
            yield from self._next_of_node(here, place)

    def _next_of_coordinator(self, here: Key, place: int) -> Iterator[tuple[str, Key, str]]:
        known = (here[place], here[STORE], int(here[TAKEOVERS] > 0))
        steps = self._coordinator_steps.get(known)
        if steps is None:
            steps = self._coordinator_steps[known] = [
                (step.label, self._number(step.after), self._number(step.store), step)
                for step in coordinators.steps(
                    self._values[here[place]], self._values[here[STORE]], here[TAKEOVERS]
                )
            ]
        for label, after, store, step in steps:
            there = _with(here, place, after, store)
            if step.took_over:
                there = _with(there, TAKEOVERS, here[TAKEOVERS] - 1)
            yield f"c{place - PARTS} {label}", there, self._broken_by_coordinator(here, store, step)
        heir = self._heir(here[place]) if here[DEATHS] else None
        if heir is not None:
            there = _with(_with(here, place, heir), DEATHS, here[DEATHS] - 1)
            yield f"c{place - PARTS} dies", there, ""

    def _heir(self, coordinator: int) -> int | None:
        """Who cleans up after a coordinator's death; None where it has nothing to do any more."""
        if coordinator not in self._heirs:
            value = self._values[coordinator]
            heir = Coordinator(f"{value.name}'", None)
            self._heirs[coordinator] = None if value.result else self._number(heir)
        return self._heirs[coordinator]

    def _broken_by_coordinator(self, here: Key, store: int, step: coordinators.Step) -> str:
        is_commit = step.decided is not None and step.decided[0].verdict is Verdict.COMMIT
        if store == here[STORE] and not is_commit:
            return ""
        # What a step breaks depends on these alone.
        known = (id(step), here[STORE], *here[PARTS:])
        if known not in self._broken:
            self._broken[known] = self._broken_by_step(here, store, step, is_commit=is_commit)
        return self._broken[known]

    def _broken_by_step(
        self, here: Key, store: int, step: coordinators.Step, *, is_commit: bool
    ) -> str:
        nodes = [self._values[number] for number in here[PARTS + self._askers :]]
        before, after = self._values[here[STORE]], self._values[store]
        if is_commit and step.decided is not None:
            return commit_violation(step.decided[1], nodes, before)
        asked = [self._values[number] for number in here[PARTS : PARTS + self._askers]]
        return (
            self._store_violation(store)
            or move_violation(before, after, asked)
            or end_violation(before, after, nodes)
        )

    def _next_of_node(self, here: Key, place: int) -> Iterator[tuple[str, Key, str]]:
        known = (here[place], here[STORE], here[BUDGET])
        steps = self._node_steps.get(known)
        if steps is None:
            node, store = self._values[here[place]], self._values[here[STORE]]
            steps = self._node_steps[known] = [
                (
                    label,
                    self._number(after),
                    self._number(store_after),
                    self._number(budget),
                    node_violation(node, after, store),
                )
                for label, after, store_after, budget in serving_nodes.steps(
                    node, store, self._values[here[BUDGET]]
                )
            ]
        for label, after, store_after, budget, broken in steps:
            there = _with(_with(here, place, after, store_after), BUDGET, budget)
            yield f"n{place - PARTS - self._askers} {label}", there, broken

    def _stuck(
        self, parents: dict[Key, tuple[Key | None, str]], edges: list[tuple[Key, Key]]
    ) -> int:
        """Count worlds from which no way leads to one without an open operation.

        Those in which nobody may take over any more do not count: that is the
        bound of the model, not of the protocol.
        """
        back: dict[Key, list[Key]] = {}
        for here, there in edges:
            back.setdefault(there, []).append(here)
        free = [key for key in parents if sight_of(self._values[key[STORE]]).operation is None]
        reached, waiting = set(free), deque(free)
        while waiting:
            for here in back.get(waiting.popleft(), ()):
                if here not in reached:
                    reached.add(here)
                    waiting.append(here)
        return sum(key not in reached and key[TAKEOVERS] > 0 for key in parents)

    def _store_violation(self, store: int) -> str:
        if store not in self._store_violations:
            self._store_violations[store] = store_violation(self._values[store])
        return self._store_violations[store]

    def _number(self, value: object) -> int:
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number


def _with(key: Key, place: int, value: int, store: int | None = None) -> Key:
    changed = (*key[:place], value, *key[place + 1 :])
    return changed if store is None else (store, *changed[1:])


def _trace(parents: dict[Key, tuple[Key | None, str]], key: Key) -> tuple[str, ...]:
    labels: list[str] = []
    at: Key | None = key
    while at is not None:
        at, label = parents[at]
        labels.append(label)
    return tuple(reversed(labels[:-1]))
