"""Rules in fixed point: the same aggregate, to the bit, on CPUs and GPUs of any kind.

For audits that recompute a round elsewhere. It costs resolution (values are
rounded to 22 bits of the median row's largest) and time; ask for it where bytes
have to agree, not otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pliska.aggregation.aggregator import NOBODY, Rule
from pliska.aggregation.engine import fixed_point
from pliska.aggregation.errors import ShapeError
from pliska.aggregation.faces import Input, submission
from pliska.aggregation.result import Aggregation


def aggregate_in_fixed_point(
    rule: Rule,
    rows: Input,
    worker_ids: Sequence[str] | None = None,
    rejected: Mapping[str, str] = NOBODY,
    seed: int = 0,
) -> Aggregation[Any]:
    """Do what `rule.aggregate` does, with every value and weight on a grid.

    The aggregate's bytes agree between devices for rules that choose ranks or
    weigh rows by distances, without pre-aggregators and whole in one process.
    Scores and margins in the report may differ in the last digits. Rows are
    copied. Values beyond twice the median row's largest are cut to that.

    Args:
        rule: Any without pre-aggregators.
        rows: As for `Rule.aggregate`; at most 64, not float64.
        worker_ids: As there.
        rejected: As there.
        seed: As there.

    Raises:
        ShapeError: The rows are float64, or too many.
        AggregationError: As `Rule.aggregate` does.
    """
    handed_in = submission(rows, worker_ids)
    given = handed_in.rows
    if given.n > fixed_point.ROWS_MAX:
        raise ShapeError(f"fixed point holds {fixed_point.ROWS_MAX} rows, not {given.n}")
    if given.n and given.dtype == torch.float64:
        raise ShapeError("fixed point has 22 bits: hand in float32 rows or narrower ones")
    largest = [float(row.abs().max()) for row in given.tensors]
    finite = [value for value in largest if value < float("inf")]
    grid = fixed_point.grid_of(finite) if finite else 1.0
    tensors = tuple(
        _on_grid(row, grid, value) for row, value in zip(given.tensors, largest, strict=True)
    )
    snapped = replace(given.with_tensors(tensors), grid=grid)
    return rule.aggregate(replace(handed_in, rows=snapped), rejected=rejected, seed=seed)


def _on_grid(row: Tensor, grid: float, largest: float) -> Tensor:
    """Snap a row; one that is not finite is left for the gate to refuse."""
    return fixed_point.snapped(row, grid) if largest < float("inf") else row.to(torch.float32)
