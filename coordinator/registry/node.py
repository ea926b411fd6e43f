"""A node's part in the protocol: see the alias and its operation, load, answer, switch.

Everything it does is decided in `protocol`; this carries it out in one thread. A
load is given up when neither the alias nor the open operation names it any more.
Whatever goes wrong, what is served goes on being served, marked with the reason.
"""

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.registry.accepted import AcceptedEntry
from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.approvals import approvers
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.errors import RegistryError
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.loading import (
    LoadAbandonedError,
    LoadedModel,
    find_record,
    load_record,
)
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.node_protocol import (
    NodeDecision,
    NodeVerdict,
    decide_node,
    digests_of,
    refusal,
    wanted_digests,
)
from pliska.coordinator.registry.nodes import WHY_CHARACTERS_MAX, Ack, Answer, NodeRecord
from pliska.coordinator.registry.operations import Operation
from pliska.coordinator.registry.presence import Presence
from pliska.coordinator.registry.view import Held, ModelT, Standing, View
from pliska.locks import LockError, Revision

WANTED_CHECK_S = 0.5
"""How often a load looks whether it is still wanted."""
RELOAD_S = 30.0
"""How long after a load failed it is tried again."""

Load = Callable[[LoadedModel], ModelT]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the store said at one moment.

    Attributes:
        damage: What is wrong with the records; empty where nothing is.
        incarnation: The life of this node in which it was read.
        revision: Of the store.
    """

    alias: AliasRecord | None
    operation: Operation | None
    damage: str
    incarnation: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a version could not be loaded, and when that was found."""

    why: str
    at_s: float


class Node(Generic[ModelT]):
    """One node. `read` and `take` are called by one thread.

    Args:
        namespace: Where the alias is.
        record: Who it is.
        load: Makes a model of verified tensors, beside the one that is served.
        accepted: What it accepted in earlier lives.
        presence: Shows it in the store.
        tell: Gets its standing, each time it changes.
    """

    def __init__(
        self,
        namespace: Namespace,
        record: NodeRecord,
        load: Load[ModelT],
        accepted: AcceptedEntry,
        presence: Presence,
        tell: Callable[[Standing[ModelT]], None],
    ) -> None:
        self._parts = namespace
        self._record = dataclasses.replace(
            record, gen=accepted.entry.gen if accepted.entry is not None else 0
        )
        self._load = load
        self._accepted = accepted
        self._presence = presence
        self._tell = tell
        self._held: dict[Digest, Held[ModelT]] = {}
        self._view: View[ModelT] | None = None
        self._failures: dict[Digest, _Failure] = {}
        self._missed = ""

    def read(self) -> Sighting:
        """See what the alias and its operation are now.

        Raises:
            StoreError: The store does not answer.
        """
        self._presence.renew(self._record)
        incarnation = self._presence.incarnation
        try:
            alias, operation, revision = self._look()
        except RegistryError as error:
            return Sighting(None, None, str(error), incarnation, Revision(0))
        return Sighting(alias, operation, "", incarnation, revision)

    def take(self, sighting: Sighting) -> None:
        """Do all that is to be done about what was seen, and show it.

        Raises:
            LockError: The store did not answer half way, or the lease was lost;
                what was not done is done at the next sighting.
        """
        self._missed = ""
        problem = sighting.damage or self._follow(sighting.alias)
        if not problem:
            self._say(self._lag(), sighting)
            self._work(sighting)
            self._let_go(sighting.operation)
            problem = self._lag()
        self._say(problem, sighting)
        self._show(stale=problem)

    def miss(self, reason: str) -> None:
        """Go on without an answer of the store: the lease says for how long."""
        if reason != self._missed:
            _log.warning("no answer: node=%s reason=%s", self._record.node, reason)
        self._missed = reason

    def _look(self) -> tuple[AliasRecord | None, Operation | None, Revision]:
        parts, who = self._parts, self._record
        listing = parts.backend.list(parts.keys.alias_directory(who.model, who.alias))
        found = {record.key: record for record in listing.records}
        alias = found.get(parts.keys.alias(who.model, who.alias))
        operation = found.get(parts.keys.operation(who.model, who.alias))
        return (
            None if alias is None else parts.aliases.stored(alias).record,
            None if operation is None else parts.operations.stored(operation).record,
            listing.revision,
        )

    def _follow(self, alias: AliasRecord | None) -> str:
        """Accept what the alias says; return why not, empty where it was accepted."""
        known = self._accepted.entry
        refused = self._refusal(alias, newest=None)
        if refused is not None or alias is None:
            return refused or ""
        try:
            newest = known
            if known is None or alias.gen > known.gen:
                newest = self._parts.aliases.entries(alias, after=known)[-1]
            refused = self._refusal(alias, newest)
            if refused is None and newest is not None and newest != known:
                self._accepted.accept(newest)
                self._record = dataclasses.replace(self._record, gen=newest.gen)
        except (RegistryError, CoordinatorError) as error:
            return str(error)
        return refused or ""

    def _refusal(self, alias: AliasRecord | None, newest: HistoryEntry | None) -> str | None:
        parts = self._parts
        approvals = 0 if newest is None else len(approvers(newest, parts.publisher_key))
        return refusal(
            parts.now(), self._accepted.entry, alias, newest, approvals, parts.approvals_min
        )

    def _work(self, sighting: Sighting) -> None:
        """Load, answer and switch, until nothing is left to do about what was seen."""
        while True:
            decision = decide_node(
                self._record, self._accepted.entry, sighting.operation, self._unloadable()
            )
            match decision.verdict:
                case NodeVerdict.LOAD if decision.digest is not None:
                    self._let_go(sighting.operation)
                    if not self._load_beside(decision.digest, sighting):
                        return
                case NodeVerdict.SWITCH:
                    self._switch(decision, sighting)
                case NodeVerdict.ANSWER:
                    self._show(ack=Ack(decision.op_id, Answer.PREPARED))
                case NodeVerdict.FAIL if decision.digest is not None:
                    why = self._failures[decision.digest].why
                    self._show(ack=Ack(decision.op_id, Answer.FAILED, why))
                case NodeVerdict.RETRACT:
                    self._show(ack=None)
                case _:
                    return

    def _load_beside(self, digest: Digest, sighting: Sighting) -> bool:
        """Load a version, or remember why not; False where nobody wants it any more."""
        who, last_check_s = self._record, time.monotonic()

        def is_wanted() -> bool:
            nonlocal last_check_s
            if time.monotonic() - last_check_s < WANTED_CHECK_S:
                return True
            last_check_s = time.monotonic()
            alias, operation, _ = self._look()
            return digest in _named(alias, operation)

        version = _named(sighting.alias, sighting.operation)[digest]
        try:
            record = find_record(self._parts, who.model, version, digest)
            model = self._load(load_record(self._parts, record, is_wanted))
        except LockError:
            raise
        except LoadAbandonedError:
            return False
        except Exception as error:  # noqa: BLE001 - the caller's code: whatever it raises, we go on
            _log.warning("cannot load: node=%s version=%s", who.node, version, exc_info=True)
            why = f"cannot load version {version}: {type(error).__name__}: {error}"
            self._failures[digest] = _Failure(_one_line(why), time.monotonic())
            return True
        self._failures.pop(digest, None)
        self._held[digest] = Held(model, version, digest)
        self._record = dataclasses.replace(self._record, loaded=tuple(sorted(self._held)))
        return True

    def _unloadable(self) -> frozenset[Digest]:
        since_s = time.monotonic() - RELOAD_S
        return frozenset(
            digest for digest, failure in self._failures.items() if failure.at_s > since_s
        )

    def _lag(self) -> str:
        """Say why what is served is behind what was accepted; nothing where it is not."""
        accepted = self._accepted.entry
        if accepted is None:
            return "the alias was never set"
        if self._record.serving_gen == accepted.gen:
            return ""
        lag = f"generation {accepted.gen} of the alias is not loaded yet"
        failures = [self._failures[d].why for d in digests_of(accepted) if d in self._failures]
        return _one_line("; ".join([lag, *failures]))

    def _switch(self, decision: NodeDecision, sighting: Sighting) -> None:
        entry = self._accepted.entry
        if entry is None:
            raise ValueError("nothing was accepted that could be switched to")
        canary = entry.canary
        self._view = View(
            entry.gen,
            self._held[entry.manifest_digest],
            None if canary is None else self._held[canary.manifest_digest],
            0 if canary is None else canary.percent,
        )
        self._say("", sighting)
        _log.info(
            "switched: node=%s gen=%s version=%s", self._record.node, entry.gen, entry.to_version
        )
        self._show(
            serving_gen=entry.gen,
            serving=entry.manifest_digest,
            ack=Ack(decision.op_id, Answer.SERVING),
            stale="",
        )

    def _let_go(self, operation: Operation | None) -> None:
        """Drop the models that are neither served nor wanted."""
        wanted = wanted_digests(self._accepted.entry, operation)
        if self._view is not None:
            served = [self._view.main, *([self._view.canary] if self._view.canary else [])]
            wanted |= {held.manifest_digest for held in served}
        self._held = {digest: held for digest, held in self._held.items() if digest in wanted}
        self._record = dataclasses.replace(self._record, loaded=tuple(sorted(self._held)))

    def _say(self, problem: str, sighting: Sighting) -> None:
        self._tell(Standing(self._view, problem, sighting.incarnation))

    def _show(self, **changes: Any) -> None:
        self._record = dataclasses.replace(self._record, **changes)
        self._presence.show(self._record)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:WHY_CHARACTERS_MAX]


def _named(alias: AliasRecord | None, operation: Operation | None) -> dict[Digest, int]:
    """Return the manifests that are named, and their versions."""
    named = {}
    if alias is not None:
        named[alias.manifest_digest] = alias.version
        if alias.canary is not None:
            named[alias.canary.manifest_digest] = alias.canary.version
    if operation is not None:
        named[operation.loads] = operation.target
    return named
