"""What callers hand to a rule, read as rows; and the result, handed back in kind.

Takes a matrix, a list of tensors of any shape, NumPy arrays, a list of state
dicts, or a `GradientBuffer`. A row whose shape or dtype is not that of most
rows is refused here, since one worker must not stop a round. Nothing is
mutated, and nothing is copied but state dicts.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.buffer import GradientBuffer
from pliska.aggregation.errors import ShapeError, WorkerNameError
from pliska.aggregation.layout import EntryKind, StateLayout
from pliska.aggregation.rows import Rows

Array = NDArray[Any]
State = Mapping[str, Tensor]
Input = Tensor | Array | GradientBuffer | Sequence[Tensor] | Sequence[Array] | Sequence[State]

FLOATING_ARRAYS = (np.float16, np.float32, np.float64)
"""NumPy dtypes that torch has too."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Rows as they were handed in, in canonical order.

    Attributes:
        workers: Ids of the workers in `rows`.
        rows: The rows that have the common shape and dtype.
        refused: Reason by worker for the rows that have not.
        restore: Gives the aggregate, flat [d], the shape and dtype of a row.
        state: Makes a state dict of the aggregate, given the positions of the
            rows that passed the gate; None unless state dicts were handed in.
    """

    workers: tuple[str, ...]
    rows: Rows
    refused: dict[str, str]
    restore: Callable[[Tensor], Any]
    state: Callable[[Tensor, Sequence[int]], dict[str, Tensor]] | None = None


def canonical(workers: Sequence[str]) -> list[int]:
    """Return the positions of `workers` in canonical order.

    Shorter names come first, names of one length in alphabetical order, so
    that w2 precedes w10. Every sum and every tie follows this order, whatever
    the order of arrival.
    """
    return sorted(range(len(workers)), key=lambda i: (len(workers[i]), workers[i]))


def submission(rows: Input | Submission, workers: Sequence[str] | None) -> Submission:
    """Read what the caller handed in; what has been read already stays as it is.

    Args:
        rows: See the module's docstring.
        workers: One id per row; None names them "0", "1", ... A
            `GradientBuffer` knows its workers.

    Raises:
        ShapeError: The rows cannot be read as vectors at all.
        WorkerNameError: The ids are not one per row, or repeat.
    """
    if isinstance(rows, Submission):
        return rows
    if isinstance(rows, GradientBuffer):
        return _of_buffer(rows, workers)
    if isinstance(rows, Tensor) and rows.ndim == 2 and rows.is_floating_point() and rows.numel():
        return _of_matrix(rows.detach(), workers)
    given: list[Any] = list(rows)
    ids = _checked_ids(given, workers)
    order = canonical(ids)
    given, ids = [given[i] for i in order], [ids[i] for i in order]
    if isinstance(rows, Tensor | np.ndarray) and rows.ndim < 2:
        raise ShapeError(
            f"rows must be [n, d], not {tuple(rows.shape)}; use rows[:, None] if d = 1"
        )
    if not given:
        return Submission((), Rows((), 0), {}, lambda vector: vector)
    if all(isinstance(row, Tensor) for row in given):
        return _of_tensors(ids, given)
    if all(isinstance(row, np.ndarray) for row in given):
        return _of_arrays(ids, given)
    if all(isinstance(row, Mapping) for row in given):
        return _of_states(ids, given)
    kinds = sorted({type(row).__name__ for row in given})
    raise ShapeError(
        f"rows must be all tensors, all NumPy arrays or all state dicts, not {', '.join(kinds)}"
    )


def trusted_vector(name: str, given: Tensor | Array, rows: Rows) -> Tensor:
    """Read a vector that the caller vouches for as one more row, flat [d].

    Args:
        name: What the caller calls it.
        given: As many values as a row has, in any shape.
        rows: The rows.

    Raises:
        ShapeError: It has not as many values as a row, or one that is not finite.
    """
    tensor = given if isinstance(given, Tensor) else _shared(given)
    vector = tensor.detach().reshape(-1)
    if vector.numel() != rows.d or not vector.isfinite().all():
        raise ShapeError(
            f"{name} must hold {rows.d} finite values like a row, "
            f"not {tensor.dtype} {tuple(tensor.shape)}"
        )
    return vector


def _checked_ids(given: Sequence[object], workers: Sequence[str] | None) -> list[str]:
    if workers is None:
        return [str(i) for i in range(len(given))]
    if len(workers) != len(given):
        raise WorkerNameError(f"{len(workers)} worker ids for {len(given)} rows")
    repeated = [worker for worker, count in Counter(workers).items() if count > 1]
    if repeated:
        raise WorkerNameError(f"worker {repeated[0]!r} has more than one row")
    return list(workers)


def _of_buffer(buffer: GradientBuffer, workers: Sequence[str] | None) -> Submission:
    if workers is not None:
        raise WorkerNameError("a gradient buffer knows its workers; pass no worker ids with it")
    filled = buffer.filled()
    order = canonical([row.worker for row in filled])
    ordered = tuple(filled[i].worker for i in order)
    values = tuple(filled[i].values for i in order)
    return Submission(
        workers=ordered,
        rows=Rows(values, buffer.d, buffer.seen(ordered)),
        refused={},
        restore=lambda vector: vector,
    )


def _of_matrix(rows: Tensor, workers: Sequence[str] | None) -> Submission:
    given, dtype = rows.unbind(), rows.dtype
    ids = _checked_ids(given, workers)
    order = canonical(ids)
    return Submission(
        workers=tuple(ids[i] for i in order),
        rows=Rows(tuple(given[i] for i in order), rows.shape[1]),
        refused={},
        restore=lambda vector: vector.to(dtype),
    )


def _of_tensors(workers: Sequence[str], given: Sequence[Tensor]) -> Submission:
    kinds = Counter((row.shape, row.dtype, row.device) for row in given)
    expected = kinds.most_common(1)[0][0]  # of equally common ones the first
    shape, dtype, device = expected
    if not dtype.is_floating_point:
        raise ShapeError(f"rows are {dtype}; only floating tensors can be aggregated")
    if not shape.numel():
        raise ShapeError(f"rows of shape {tuple(shape)} hold no values")
    fitting, refused = [], {}
    for i, row in enumerate(given):
        if (row.shape, row.dtype, row.device) == expected:
            fitting.append(i)
        else:
            refused[workers[i]] = (
                f"{row.dtype} {tuple(row.shape)} on {row.device}, "
                f"expected {dtype} {tuple(shape)} on {device}"
            )
    return Submission(
        workers=tuple(workers[i] for i in fitting),
        rows=Rows(tuple(given[i].detach().reshape(-1) for i in fitting), shape.numel()),
        refused=refused,
        restore=lambda vector: vector.to(dtype).reshape(shape),
    )


def _of_arrays(workers: Sequence[str], given: Sequence[Array]) -> Submission:
    floating = [i for i, row in enumerate(given) if row.dtype.type in FLOATING_ARRAYS]
    if not floating:
        raise ShapeError(f"rows are {given[0].dtype}; only floating arrays can be aggregated")
    inner = _of_tensors([workers[i] for i in floating], [_shared(given[i]) for i in floating])
    refused = {
        worker: f"{row.dtype} is no floating dtype"
        for worker, row in zip(workers, given, strict=True)
        if row.dtype.type not in FLOATING_ARRAYS
    }
    return Submission(
        workers=inner.workers,
        rows=inner.rows,
        refused=inner.refused | refused,
        restore=lambda vector: cast("Tensor", inner.restore(vector)).numpy(),
    )


def _shared(array: Array) -> Tensor:
    """Return a tensor over the memory of `array`, or over a copy where torch cannot share it.

    torch cannot hold foreign byte orders or negative strides, and warns about
    memory that is read-only.
    """
    if array.flags.writeable and array.dtype.isnative and min(array.strides, default=0) >= 0:
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))


def _of_states(workers: Sequence[str], given: Sequence[State]) -> Submission:
    readable, refused = [], {}
    for worker, state in zip(workers, given, strict=True):
        try:
            readable.append(StateLayout.of(state))
        except ShapeError as error:
            refused[worker] = str(error)
    if not readable:
        raise ShapeError(f"no state dict can be read; worker {workers[0]!r}: {refused[workers[0]]}")
    layout = Counter(readable).most_common(1)[0][0]
    if not layout.d:
        raise ShapeError("the state dicts hold no floating values")
    for worker, state in zip(workers, given, strict=True):
        if worker not in refused and (reason := layout.mismatch(state)):
            refused[worker] = reason
    fitting = [i for i, worker in enumerate(workers) if worker not in refused]
    states = [given[i] for i in fitting]
    return Submission(
        workers=tuple(workers[i] for i in fitting),
        rows=Rows(tuple(layout.flatten(state) for state in states), layout.measured),
        refused=refused,
        restore=lambda vector: vector,
        state=lambda vector, positions: layout.unflatten(
            vector, _median_counters(layout, [states[i] for i in positions])
        ),
    )


def _median_counters(layout: StateLayout, states: Sequence[State]) -> dict[str, Tensor]:
    """Return the lower median of each counter: a value that was sent, and no liar's maximum."""
    return {
        entry.name: torch.stack([state[entry.name] for state in states])
        .sort(dim=0)
        .values[(len(states) - 1) // 2]
        for entry in layout.entries
        if entry.kind is EntryKind.COUNTER
    }
