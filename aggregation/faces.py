"""What callers hand to a rule, read as rows; and the result, handed back in kind.

Takes a matrix, a list of tensors of any shape, NumPy arrays, a list of state
dicts, or a `GradientBuffer`. A row whose shape or dtype is not that of most
rows is refused here, since one worker must not stop a round. Nothing is
mutated, and nothing is copied but state dicts.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

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
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Submission:
    """Rows as they were handed in, in canonical order.

    Attributes:
        workers: Ids of the workers in `rows`.
        rows: The rows that have the common shape and dtype.
        refused: Reason by worker for the rows that have not.
        restore: Turns the aggregate, flat [d], into what the caller handed in.
        counters: Integer entries to put beside the aggregate, from the
            positions of the rows that passed the gate; empty unless state dicts.
        layout: Of the state dicts, if that is what was handed in.
    """

    workers: tuple[str, ...]
    rows: Rows
    refused: dict[str, str]
    restore: Callable[[Tensor], Any]
    counters: Callable[[Sequence[int]], dict[str, Tensor]]
    layout: StateLayout | None = None


def canonical(workers: Sequence[str]) -> list[int]:
    """Return the positions of `workers` in canonical order.

    Shorter names come first, names of one length in alphabetical order, so
    that w2 precedes w10. Every sum and every tie follows this order, whatever
    the order of arrival.
    """
    return sorted(range(len(workers)), key=lambda i: (len(workers[i]), workers[i]))


def submission(rows: Input, workers: Sequence[str] | None) -> Submission:
    """Read what the caller handed in.

    Args:
        rows: See the module's docstring.
        workers: One id per row; None names them "0", "1", ... A
            `GradientBuffer` knows its workers.

    Raises:
        ShapeError: The rows cannot be read as vectors at all.
        WorkerNameError: The ids are not one per row, or repeat.
    """
    if isinstance(rows, GradientBuffer):
        return _of_buffer(rows, workers)
    given: list[Any] = list(rows)
    ids = _checked_ids(given, workers)
    order = canonical(ids)
    given, ids = [given[i] for i in order], [ids[i] for i in order]
    if isinstance(rows, Tensor | np.ndarray) and rows.ndim < 2:
        raise ShapeError(
            f"rows must be [n, d], not {tuple(rows.shape)}; use rows[:, None] if d = 1"
        )
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
    return Submission(
        workers=tuple(filled[i].worker for i in order),
        rows=Rows(tuple(filled[i].values for i in order), buffer.d),
        refused={},
        restore=lambda vector: vector,
        counters=_no_counters,
    )


def _of_tensors(workers: Sequence[str], given: Sequence[Tensor]) -> Submission:
    expected = _most_common([(row.shape, row.dtype, row.device) for row in given])
    shape, dtype, _ = expected or (torch.Size([0]), torch.float32, None)
    if not dtype.is_floating_point:
        raise ShapeError(f"rows are {dtype}; only floating tensors can be aggregated")
    fitting, refused = [], {}
    for i, row in enumerate(given):
        if (row.shape, row.dtype, row.device) == expected:
            fitting.append(i)
        else:
            refused[workers[i]] = (
                f"{row.dtype} {tuple(row.shape)} on {row.device}, expected {dtype} {tuple(shape)}"
            )
    return Submission(
        workers=tuple(workers[i] for i in fitting),
        rows=Rows(tuple(given[i].detach().reshape(-1) for i in fitting), shape.numel()),
        refused=refused,
        restore=lambda vector: vector.to(dtype).reshape(shape),
        counters=_no_counters,
    )


def _of_arrays(workers: Sequence[str], given: Sequence[Array]) -> Submission:
    for worker, row in zip(workers, given, strict=True):
        if row.dtype.kind not in "fiub":
            raise ShapeError(f"row of worker {worker!r} is {row.dtype}, not an array of numbers")
    # torch warns about sharing read-only memory, and cannot hold foreign byte orders.
    shared = [
        torch.from_numpy(
            row
            if row.flags.writeable and row.dtype.isnative and min(row.strides, default=0) >= 0
            else row.astype(row.dtype.newbyteorder("="), order="C")
        )
        for row in given
    ]
    inner = _of_tensors(workers, shared)
    return Submission(
        workers=inner.workers,
        rows=inner.rows,
        refused=inner.refused,
        restore=lambda vector: cast("Tensor", inner.restore(vector)).numpy(),
        counters=_no_counters,
    )


def _of_states(workers: Sequence[str], given: Sequence[State]) -> Submission:
    layout = _most_common([StateLayout.of(state) for state in given])
    if layout is None:
        raise ShapeError("there are no state dicts")
    refused = {
        worker: reason
        for worker, state in zip(workers, given, strict=True)
        if (reason := layout.mismatch(state))
    }
    fitting = [i for i, worker in enumerate(workers) if worker not in refused]
    states = [given[i] for i in fitting]
    return Submission(
        workers=tuple(workers[i] for i in fitting),
        rows=Rows(tuple(layout.flatten(state) for state in states), layout.measured),
        refused=refused,
        restore=lambda vector: vector,
        counters=lambda positions: _median_counters(layout, [states[i] for i in positions]),
        layout=layout,
    )


def _most_common(keys: Sequence[Key]) -> Key | None:
    """Return the key that most rows share; of equally common ones the first."""
    return Counter(keys).most_common(1)[0][0] if keys else None


def _no_counters(positions: Sequence[int]) -> dict[str, Tensor]:
    del positions
    return {}


def _median_counters(layout: StateLayout, states: Sequence[State]) -> dict[str, Tensor]:
    """Return the lower median of each counter: a value that was sent, and no liar's maximum."""
    return {
        entry.name: torch.stack([state[entry.name] for state in states])
        .sort(dim=0)
        .values[(len(states) - 1) // 2]
        for entry in layout.entries
        if entry.kind is EntryKind.COUNTER
    }
