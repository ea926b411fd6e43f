"""Holds a run against the rules I1 to I9; a pure function of what is left of it.

Reading the history has proven I1 and I2 already: it is chained without a gap and
the alias is its newest entry. I8 was proven by coming to rest.
"""

from collections import defaultdict
from collections.abc import Iterator

from chaos.history import Event
from registry_chaos.run import Run
from registry_chaos.sweeper import HISTORY

from pliska.coordinator.registry import Ending, HistoryEntry, MoveKind, State, VersionRecord
from pliska.coordinator.registry.digest import NO_DIGEST
from pliska.coordinator.registry.policy import previous_entries


def check(run: Run) -> list[str]:
    """All violations, in words; none for a good run."""
    return [
        *_nodes_serve_what_history_says(run),
        *_no_node_goes_back(run),
        *_done_means_served(run),
        *_each_operation_moves_once_or_never(run),
        *_everybody_was_told_the_truth(run),
        *_rollbacks_went_to_the_previous(run),
        *_nothing_in_use_was_removed(run),
    ]


def _nodes_serve_what_history_says(run: Run) -> Iterator[str]:
    """I3."""
    entries = {entry.gen: entry for entry in run.history}
    for event in _served(run):
        entry = entries.get(event["gen"])
        if entry is None or entry.to_version != event["version"]:
            yield f"I3: {event['node']} served version {event['version']} as {event['gen']}"
        canary = entries[event["canary_gen"]].canary if event["canary_gen"] in entries else None
        if event["canary"] is not None and event["canary"] != (canary and canary.version):
            yield f"I3: {event['node']} served a canary {event['canary']} as {event['gen']}"


def _no_node_goes_back(run: Run) -> Iterator[str]:
    """I4: also not from one life to the next."""
    highest: dict[str, int] = defaultdict(int)
    for event in _served(run):
        if event["gen"] < highest[event["node"]]:
            yield f"I4: {event['node']} went from {highest[event['node']]} to {event['gen']}"
        highest[event["node"]] = max(highest[event["node"]], event["gen"])


def _done_means_served(run: Run) -> Iterator[str]:
    """I5: whoever was told DONE finds no node that was asked serving anything older."""
    ended = {each.operation.op_id: each for each in run.ended}
    told_s = [
        (event["to_s"], ended[event["op_id"]])
        for event in run.events
        if event["kind"] == "told" and event["outcome"] == "moved"
    ]
    seen = [event for event in run.events if event["kind"].startswith("served")]
    for at_s, each in told_s:
        for event in seen:
            is_older = event["gen"] < (each.gen or 0) and not event["stale"]
            if is_older and event["node"] in each.operation.required and event["until_s"] > at_s:
                yield (
                    f"I5: {event['node']} served {event['gen']} at {event['until_s']}, after "
                    f"{each.gen} was DONE at {at_s}"
                )


def _each_operation_moves_once_or_never(run: Run) -> Iterator[str]:
    """I6."""
    moves: dict[str, list[int]] = defaultdict(list)
    for entry in run.history:
        moves[entry.op_id].append(entry.gen)
    for op_id, gens in moves.items():
        if len(gens) > 1:
            yield f"I6: operation {op_id} moved the alias to {gens}"
    seen = set()
    for each in run.ended:
        op_id = each.operation.op_id
        seen.add(op_id)
        if (each.ending is Ending.ABORTED) == (op_id in moves):
            yield f"I6: operation {op_id} ended {each.ending} and moved to {moves[op_id]}"
    for op_id in moves.keys() - seen:
        yield f"I6: nobody knows how operation {op_id} ended"


def _everybody_was_told_the_truth(run: Run) -> Iterator[str]:
    """What a process was told about its move is what the history says."""
    moved = {entry.op_id: entry.gen for entry in run.history}
    for event in run.events:
        if event["kind"] != "told":
            continue
        op_id, outcome = event["op_id"], event["outcome"]
        if outcome in ("moved", "degraded") and moved.get(event["by"]) != event["gen"]:
            yield f"{op_id} was told {outcome} to {event['gen']}, history: {moved.get(op_id)}"
        if outcome in ("aborted", "refused", "stayed") and op_id in moved:
            yield f"{op_id} was told {outcome} and moved the alias to {moved[op_id]}"
        if outcome == "joined" and (op_id in moved or moved.get(event["by"]) != event["gen"]):
            yield f"{op_id} was told that {event['by']} moved the alias to {event['gen']}"


def _rollbacks_went_to_the_previous(run: Run) -> Iterator[str]:
    """I7: each went one step back from where it was resolved, and never to what had been left."""
    versions = {entry.to_version: _ready(entry) for entry in run.history}
    versions |= {e.canary.version: _ready(e) for e in run.history if e.canary is not None}
    failed = {each.gen for each in run.ended if each.gen is not None and each.failed}
    for entry in run.history:
        if entry.kind is not MoveKind.ROLLBACK:
            continue
        before = run.history[: entry.gen - 1]
        withdrawn = before[-1:] if before[-1].canary is not None else ()
        for known_failed in (failed, set()):  # which were known when it was resolved is not
            previous = [*withdrawn, *previous_entries(before, versions, known_failed)]
            # Of those that were removed in the end, some were removed by then.
            steps = [each.to_version for each in previous]
            if entry.to_version in steps and run.gone.issuperset(
                steps[: steps.index(entry.to_version)]
            ):
                break
        else:
            yield f"I7: generation {entry.gen} went back to {entry.to_version}, not {previous[:1]}"


def _nothing_in_use_was_removed(run: Run) -> Iterator[str]:
    """I9: what an alias, its last moves, a node or a pin needs is there, and was not removed."""
    for damage in run.damage:
        yield f"I9: {damage}"
    for event in run.events:
        if event["kind"] != "collected":
            continue
        for version in event["removed"]:
            for use in _uses(run, event, version):
                yield f"I9: version {version} was removed at {event['to_s']}, though {use}"


def _uses(run: Run, collected: Event, version: int) -> Iterator[str]:
    """Say what needed the version from before a collection until after it."""
    first, last = collected["gens"]
    for entry in run.history[max(0, last - HISTORY) : first]:
        if version in (entry.to_version, entry.canary and entry.canary.version):
            yield f"generation {entry.gen} pointed at it"
    events = [event for event in run.events if event.get("version") == version]
    from_s, to_s = collected["from_s"], collected["to_s"]
    for event in events:
        is_served = event["kind"] == "served until" and not event["stale"]
        if is_served and event["since_s"] < from_s and event["until_s"] > to_s:
            yield f"{event['node']} served it"
    turns = [(event["at_s"], event["kind"]) for event in events if event["at_s"] < to_s]
    pins = [(at_s, kind) for at_s, kind in sorted(turns) if kind in ("pinned", "unpinning")]
    if pins and pins[-1][1] == "pinned" and pins[-1][0] < from_s:
        yield f"it was pinned at {pins[-1][0]}"


def _ready(entry: HistoryEntry) -> VersionRecord:
    return VersionRecord(
        namespace=entry.namespace, model=entry.model, version=entry.to_version,
        content_id=NO_DIGEST, manifest_digest=NO_DIGEST, state=State.READY, state_reason="",
        parent=None, tensors=1, nbytes=8, registered_at="", registered_by="ann",
    )  # fmt: skip


def _served(run: Run) -> list[Event]:
    served = [event for event in run.events if event["kind"] == "served"]
    return sorted(served, key=lambda event: event["at_s"])
