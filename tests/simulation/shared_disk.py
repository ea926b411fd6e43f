"""A disk that all coordinators share, which must lead on from the horizon whoever removes what."""

from collections.abc import Callable, Collection, Iterable

from simulation.disk import Disk

from pliska.coordinator.records.commit import Commit


class SharedDisk(Disk):
    """Looks at what is left after each removal.

    Attributes:
        find_loss: Says of the names that are left what is missing.
        losses: What was missing after a removal, in words.
    """

    def __init__(self, find_loss: Callable[[Collection[str]], str | None]) -> None:
        super().__init__()
        self.find_loss = find_loss
        self.losses: list[str] = []

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        super().remove(name)
        lost = self.find_loss(self.objects)
        if lost is not None:
            self.losses.append(f"without {name} {lost}")


def loss(names: Collection[str], committed: Iterable[Commit], horizon: int) -> str | None:
    """Say what is missing to rebuild each committed version from the horizon on, by its name.

    Args:
        names: What is stored.
        committed: The chain so far, oldest first.
        horizon: Nobody needs aggregates up to this version.
    """
    start, missing = 0, []
    for commit in committed:
        version, mark = commit.record.version, commit.digest.hex()[:16]
        folder = f"jobs/{commit.record.job}"
        checkpoint = f"{folder}/checkpoints/{version:012d}-{mark}/manifest.json"
        if version <= horizon and checkpoint in names:
            start, missing = version, []
        elif f"{folder}/log/{version:012d}-{mark}.entry" not in names:
            missing.append(version)
    if not missing:
        return None
    return f"versions {missing} do not follow from version {start}; the horizon is {horizon}"
