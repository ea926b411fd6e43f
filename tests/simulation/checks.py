"""What must hold of a run, whatever befell it, told from what it left behind."""

from collections import Counter
from collections.abc import Iterator, Sequence

from simulation.disk import Disk, DiskStorage
from simulation.shared_disk import SharedDisk, loss
from simulation.world import Run
from training.passes import miscounts

from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.records.chain import break_in_chain, break_in_restoring
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.rollback import undoing
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rounds.round_state import Phase

PRUNED = frozenset({"checkpoints", "leaders", "log", "payloads"})
"""Folders from which something may be removed."""


def violations(run: Run) -> list[str]:
    """Return what went wrong, in words; empty where nothing did."""
    committed = [Commit.unverified(value) for value in run.committed]
    return [
        *_ends(run),
        *_chain(committed),
        *_rollbacks(committed),
        *_slots(committed),
        *_samples(run, committed),
        *_shown(run, committed),
        *_replicas(run, committed),
        *_stored(run, committed),
    ]


def _ends(run: Run) -> Iterator[str]:
    """After the peace the job comes to its end.

    Who finishes waits for the standbys that it knows of. One that came back later
    may find nobody left to fetch the last rounds from: it waits, and leads nothing.
    """
    for name in run.coordinators:
        is_needed = name not in run.came_late or len(run.came_late) == len(run.coordinators)
        if is_needed and run.ended.get(name) is not Phase.FINISHED:
            yield f"coordinator {name} did not finish: {run.ended.get(name)!r}"
    for name in run.workers:
        if run.ended.get(name) != run.job.rounds.count:
            yield f"worker {name} did not finish: {run.ended.get(name)!r}"


def _chain(committed: Sequence[Commit]) -> Iterator[str]:
    """Every record that the store ever named follows the one before it."""
    before = None
    for commit in committed:
        broken = break_in_chain(before, commit.record)
        if broken is not None:
            yield f"the chain breaks: {broken}"
        before = commit


def _rollbacks(committed: Sequence[Commit]) -> Iterator[str]:
    """An order is carried out once, to the bit; nothing counts that was made on what it undid."""
    by_version = {commit.record.version: commit for commit in committed}
    back = [commit.record for commit in committed if commit.record.rollback is not None]
    if len(back) > 1:
        yield f"one order was carried out in {[each.version for each in back]}"
    for record in back:
        assert record.rollback is not None
        broken = break_in_restoring(by_version[record.rollback.target], record)
        if broken is not None:
            yield f"the rollback does not restore its target: {broken}"
        later = (each.record for each in committed if each.record.version > record.version)
        for after in later:
            for each in after.contributions:
                if after.round - each.lag <= record.version:
                    yield f"version {after.version} counts what was made on an undone version"
                if each.worker in record.rollback.excluded:
                    yield f"version {after.version} counts a gradient of {each.worker}, excluded"


def _standing(committed: Sequence[Commit]) -> list[Commit]:
    """Return the commits that the last state follows from."""
    undone = committed[-1].record.undone if committed else ()
    return [commit for commit in committed if undoing(commit.record.version, undone) is None]


def _slots(committed: Sequence[Commit]) -> Iterator[str]:
    """No gradient of a worker counts twice, nor two for one slot."""
    slots = Counter(
        (each.worker, commit.record.round - each.lag)
        for commit in committed
        for each in commit.record.contributions
    )
    roots = Counter(
        (each.worker, each.payload_root)
        for commit in _standing(committed)
        for each in commit.record.contributions
    )
    yield from (f"slot {slot} counted {n} times" for slot, n in slots.items() if n > 1)
    yield from (f"a gradient of {w} counted {n} times" for (w, _), n in roots.items() if n > 1)


def _samples(run: Run, committed: Sequence[Commit]) -> Iterator[str]:
    """Every sample is read once in a pass, and none is left behind for long."""
    records = [commit.record for commit in _standing(committed)]
    if not records:
        return
    yield from miscounts(run.job, records)
    left = records[-1].cursor.left
    if len(left) > 3 * len(run.workers):  # held, arriving, and being committed
        yield f"the batches of {len(left)} leases were left behind: {left}"


def _shown(run: Run, committed: Sequence[Commit]) -> Iterator[str]:
    """What a worker was given as a version is that version: nothing uncommitted is published."""
    digests = {c.record.version: c.record.parameters_digest.hex() for c in committed}
    for commit in committed[:1]:
        digests[0] = commit.record.base_digest.hex()
    for version, digest in sorted(set(run.shown)):
        if digests and digests.get(version) != digest:
            yield f"version {version} was handed out as {digest[:12]}"


def _replicas(run: Run, committed: Sequence[Commit]) -> Iterator[str]:
    """What is on the disks leads to the last committed state, bit for bit.

    That of each coordinator that came to the end does so by itself.
    """
    if not committed:
        yield "nothing was committed"
        return
    together = Disk()
    for disk in run.disks.values():
        together.objects |= disk.objects
    own = {name: run.disks[name] for name in run.disks if run.ended.get(name) is Phase.FINISHED}
    for name, disk in {"all together": together, **own}.items():
        try:
            recover(run.job, committed[-1], DiskStorage(disk))
        except CoordinatorError as error:
            yield f"the disks ({name}) do not lead to the last committed version: {error}"


def _stored(run: Run, committed: Sequence[Commit]) -> Iterator[str]:
    """Whoever wakes late changes nothing that is stored, and removes nothing that is needed."""
    for disk in {id(disk): disk for disk in run.disks.values()}.values():
        yield from (f"{name} was changed" for name in disk.changed)
        for name in disk.deleted:
            if name.split("/")[2] not in PRUNED:
                yield f"{name} was removed"
        if isinstance(disk, SharedDisk):
            yield from disk.losses
            lost = loss(disk.objects, committed, run.horizon)
            if lost is not None:
                yield f"at the end {lost}"
