"""Whether two versions can be swapped under an alias: the names, dtypes and shapes of tensors.

Whoever serves an alias builds its model for the tensors of one version. A version
with other ones is another model, which is pointed at only where that is asked for.
"""

from collections.abc import Iterator

from pliska.coordinator.registry.manifest import Manifest
from pliska.coordinator.registry.tensor import TensorType

SHOWN_MAX = 3
"""Changes that a message names; the rest is counted."""
NAME_SHOWN_MAX = 80


def schema_changes(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Say how the tensors of one version differ from those of another, their numbers apart.

    Args:
        before: What the alias points at.
        after: What it shall point at.

    Returns:
        A text for each tensor that is not in both with the same dtype and shape.
    """
    return tuple(_changes(before, after))


def summary(changes: tuple[str, ...]) -> str:
    """Return the first changes and how many there are more, on one line."""
    shown = "; ".join(changes[:SHOWN_MAX])
    rest = len(changes) - SHOWN_MAX
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _changes(before: Manifest, after: Manifest) -> Iterator[str]:
    old = {entry.name: entry.type for entry in before.tensors}
    new = {entry.name: entry.type for entry in after.tensors}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{_short(name)} is gone"
        elif name not in old:
            yield f"{_short(name)} is new"
        elif old[name] != new[name]:
            yield f"{_short(name)} is {_text(new[name])} instead of {_text(old[name])}"


def _text(kind: TensorType) -> str:
    return f"{kind.dtype}{list(kind.shape)}"


def _short(name: str) -> str:
    return repr(name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}…")
