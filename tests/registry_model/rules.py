"""The rules that every world of the model keeps, I1 to I8 of the protocol and what they rest on."""

from collections.abc import Sequence

from registry_model.coordinators import Coordinator
from registry_model.serving_nodes import Node
from registry_model.store import Store, sight_of

from pliska.coordinator.registry.aliases import AliasRecord
from pliska.coordinator.registry.ended_operations import Ending
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.nodes import newest_lives
from pliska.coordinator.registry.operations import Operation


def store_violation(store: Store) -> str:
    """The rule that the store breaks by itself; empty where it breaks none."""
    sight = sight_of(store)
    history = sight.history
    for gen, entry in enumerate(history, start=1):
        previous = history[gen - 2] if gen > 1 else None
        if entry.gen != gen or (previous is not None and entry.prev_hash != previous.hash):
            return "I1: the history has a gap or a fork"
    if sight.alias != AliasRecord.after(history[-1]):
        return "I2: the alias is not its newest history entry"
    moved = [entry.op_id for entry in history]
    if len(set(moved)) != len(moved):
        return "I6: an operation moved the alias twice"
    for ended in sight.ended:
        if ended.ending is Ending.ABORTED and ended.operation.op_id in moved:
            return "I6: an operation that was aborted moved the alias"
    return _bad_return(history)


def _bad_return(history: Sequence[HistoryEntry]) -> str:
    """I7's other half: going back never leads to what was gone back from."""
    left: set[int] = set()
    for entry in history:
        if not entry.kind.goes_back:
            left.discard(entry.to_version)
        elif entry.to_version in left:
            return "I7: a rollback returned to a version that was rolled back from"
        else:
            left.add(entry.from_version or 0)
    return ""


def move_violation(before: Store, after: Store, asked: Sequence[Coordinator]) -> str:
    """I1: what happened stays so. I7: an alias moves only from where its request was resolved."""
    known, history = sight_of(before).history, sight_of(after).history
    if history[: len(known)] != known:
        return "I1: the history was rewritten"
    for entry in history[len(known) :]:
        for coordinator in asked:
            is_his = coordinator.request is not None and coordinator.request.op_id == entry.op_id
            if is_his and coordinator.first_gen != entry.gen - 1:
                return "I7: two requests at once moved the alias by two steps"
    return ""


def node_violation(before: Node, after: Node, store: Store) -> str:
    """I3 and I4 of one node's step."""
    history = sight_of(store).history
    if after.gen and (
        after.gen > len(history) or history[after.gen - 1].manifest_digest != after.serving
    ):
        return "I3: a node serves what the history does not say"
    if after.serving is not None and after.serving not in after.held:
        return "I3: a node serves what it does not hold"
    known = 0 if before.accepted is None else before.accepted.gen
    if (0 if after.accepted is None else after.accepted.gen) < known:
        return "I4: a node's generation fell"
    if after.gen < before.gen and after.life == before.life:
        return "I4: a node went back"
    if after.gen > before.gen and after.gen < known:
        return "I4: a restarted node serves less than it knows of"
    return ""


def end_violation(before: Store, after: Store, nodes: Sequence[Node]) -> str:
    """I5: when an operation is DONE, every live node that it needed serves it."""
    operation = sight_of(before).operation
    ended = None if operation is None else sight_of(after).how_ended(operation.op_id)
    if operation is None or ended is None or ended.ending is not Ending.DONE:
        return ""
    for node in nodes:
        is_live = node.is_alive and not node.is_fenced
        if node.name in operation.required and is_live and 0 < node.gen < operation.gen:
            return "I5: an operation was DONE while a live node served an older generation"
    return ""


def commit_violation(operation: Operation, nodes: Sequence[Node], store: Store) -> str:
    """An alias moves only when every live node that was asked holds the target."""
    newest = {record.node: record.incarnation for record in newest_lives(sight_of(store).lives)}
    for node in nodes:
        is_live = node.is_alive and node.is_shown and newest.get(node.name) == str(node.life)
        if node.name in operation.required and is_live and operation.loads not in node.held:
            return "I5: a commit was decided though a live node never loaded the target"
    return ""
