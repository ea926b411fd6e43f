"""What changed from one version to another: tensors, metrics, lineage.

Tensors with the same digest are the same and are not read. The others are
compared in float64, block by block.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.tensor import TensorType

Array = NDArray[Any]
BLOCK_ELEMENTS = 1 << 20
"""Elements that are widened to float64 at a time."""
_NUMPY_DTYPES: Mapping[str, str] = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "I64": "<i8",
    "U64": "<u8",
    "F64": "<f8",
}
ReadTensor = Callable[[TensorEntry], bytes]
"""Returns the verified bytes of a tensor."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two tensors of one shape are from each other.

    Attributes:
        l2: Length of the difference.
        relative: The same over the length of the older one; infinite where that is zero.
        largest: Largest absolute difference of two elements; like the others not a
            number where an element of either is none.
        cosine: Of the angle between them; None where one of them is zero.
    """

    l2: float
    relative: float
    largest: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class ChangedTensor:
    """A tensor that both versions have, with other bytes.

    Attributes:
        distance: None where shapes differ, or the numbers of that dtype cannot be read here.
    """

    name: str
    before: TensorType
    after: TensorType
    distance: Distance | None


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs.

    Attributes:
        added: Tensors that only the newer version has.
        removed: Tensors that only the older one has.
        changed: Sorted by name.
        same: How many tensors are the same.
        metrics: By name, those that differ: the older value and the newer; None where missing.
        lineage: By field, those that differ, as JSON values.
    """

    added: tuple[TensorEntry, ...]
    removed: tuple[TensorEntry, ...]
    changed: tuple[ChangedTensor, ...]
    same: int
    metrics: Mapping[str, tuple[float | None, float | None]]
    lineage: Mapping[str, tuple[Any, Any]]

    @property
    def is_empty(self) -> bool:
        """Whether the tensors are the same."""
        return not (self.added or self.removed or self.changed)


def difference(before: Manifest, after: Manifest, read: ReadTensor) -> Difference:
    """Compare two versions.

    Args:
        before: The older one.
        after: The newer one.
        read: Asked for the tensors that differ only; raises `IntegrityError`
            where a file is missing or damaged.
    """
    old = {entry.name: entry for entry in before.tensors}
    new = {entry.name: entry for entry in after.tensors}
    both = [(old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    changed = [(a, b) for a, b in both if (a.digest, a.type) != (b.digest, b.type)]
    fields = before.lineage.to_fields(), after.lineage.to_fields()
    metrics = fields[0].pop("metrics"), fields[1].pop("metrics")
    return Difference(
        added=tuple(new[name] for name in sorted(new.keys() - old.keys())),
        removed=tuple(old[name] for name in sorted(old.keys() - new.keys())),
        changed=tuple(
            ChangedTensor(a.name, a.type, b.type, _distance(a, b, read)) for a, b in changed
        ),
        same=len(both) - len(changed),
        metrics=_differing(*metrics),
        lineage=_differing(*fields),
    )


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _distance(before: TensorEntry, after: TensorEntry, read: ReadTensor) -> Distance | None:
    if before.type.shape != after.type.shape:
        return None
    old, new = _numbers(before.type, read(before)), _numbers(after.type, read(after))
    if old is None or new is None:
        return None
    squares = np.zeros(4)  # of the difference, of each, and their product
    largest = 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # weights may be infinite, or no numbers
        for a, b in _blocks(old, new):
            change = b - a
            squares += (change @ change, a @ a, b @ b, a @ b)
            largest = float(np.maximum(largest, np.max(np.abs(change), initial=0.0)))
    return _summary(squares, largest)


def _summary(squares: NDArray[np.float64], largest: float) -> Distance:
    l2, length, other = (math.sqrt(square) for square in squares[:3])
    return Distance(
        l2=l2,
        relative=l2 / length if length else (math.inf if l2 else 0.0),
        largest=largest,
        cosine=float(squares[3]) / (length * other) if length and other else None,
    )


def _numbers(kind: TensorType, content: bytes) -> Array | None:
    if kind.dtype == "BF16":
        # A bfloat16 is the upper half of a float32.
        halves = np.frombuffer(content, "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32)
    if kind.dtype not in _NUMPY_DTYPES:
        return None
    return np.frombuffer(content, _NUMPY_DTYPES[kind.dtype])


def _blocks(old: Array, new: Array) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    for start in range(0, len(old), BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        yield old[block].astype(np.float64), new[block].astype(np.float64)
