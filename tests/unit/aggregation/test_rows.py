import math
from itertools import pairwise

import pytest
import torch

from pliska.aggregation.rows import BLOCK_ELEMENTS, Rows


def test_spans_cover_every_column_once() -> None:
    rows = Rows((torch.zeros(5),) * 3, 5)
    d = BLOCK_ELEMENTS + 3
    spans = list(rows.spans(d))
    assert spans[0].start == 0
    assert spans[-1].stop == d
    assert all(before.stop == after.start for before, after in pairwise(spans))
    assert max(span.stop - span.start for span in spans) * rows.n <= BLOCK_ELEMENTS


def test_block_is_a_copy_in_the_arithmetic_dtype() -> None:
    row = torch.ones(4, dtype=torch.bfloat16)
    block = Rows((row, row), 4).block(slice(1, 3))
    assert block.dtype == torch.float32
    block.fill_(9)
    assert row.tolist() == [1, 1, 1, 1]


def test_weighted_sum_does_not_read_rows_without_weight() -> None:
    rows = Rows((torch.ones(2), torch.full((2,), math.nan), torch.full((2,), 3.0)), 2)
    assert rows.weighted_sum([0.25, 0.0, 0.75]).tolist() == [2.5, 2.5]


def test_single_row_comes_back_bit_for_bit() -> None:
    row = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Rows((row, row * 2), 100).weighted_sum([1.0, 0.0]), row)


def test_weighted_sum_does_not_overflow_or_cancel() -> None:
    rows = Rows(tuple(torch.tensor([x]) for x in (3.4e38, 1.0, -3.4e38, 3.4e38)), 1)
    assert rows.weighted_sum([0.25] * 4).item() == pytest.approx(0.85e38)
