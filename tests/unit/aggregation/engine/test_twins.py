"""Copies of rows, against a comparison of all with all."""

import pytest
import torch

from pliska.aggregation.engine.twins import COMPARED_COLUMNS, are_equal, originals

D = 2 * COMPARED_COLUMNS + 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("place", [0, COMPARED_COLUMNS, D - 1])
def test_one_bit_makes_rows_differ_wherever_it_is(dtype: torch.dtype, place: int) -> None:
    row = torch.randn(D, generator=torch.Generator().manual_seed(1)).to(dtype)
    other = row.clone()
    assert are_equal([(row, other)], slice(0, D)) == [True]
    other[place] = torch.nextafter(other[place], torch.tensor(9, dtype=dtype))
    assert are_equal([(row, row.clone()), (row, other)], slice(0, D)) == [True, False]


def test_columns_that_do_not_count_are_not_compared() -> None:
    row, other = torch.zeros(9), torch.zeros(9)
    other[8] = 1
    assert are_equal([(row, other)], slice(0, 8)) == [True]


def test_a_row_of_zeros_is_no_copy_of_one_of_minus_zeros() -> None:
    # Bits are compared, so that whatever follows from a row follows from its copy.
    assert are_equal([(torch.zeros(5), -torch.zeros(5))], slice(0, 5)) == [False]


def test_rows_need_not_lie_in_one_piece() -> None:
    matrix = torch.randn(5, 3, generator=torch.Generator().manual_seed(2))
    assert are_equal([(matrix[:, 1], matrix[:, 1].clone())], slice(0, 5)) == [True]


def test_each_copy_is_told_with_its_original() -> None:
    rows = torch.randn(6, D, generator=torch.Generator().manual_seed(3))
    rows[3] = rows[5] = rows[1]
    rows[4] = rows[0]
    marks = rows[:, 0].tolist()
    assert originals(tuple(rows), slice(0, D), marks) == [0, 1, 2, 1, 0, 1]


def test_equal_marks_alone_make_no_copy() -> None:
    rows = torch.randn(4, D, generator=torch.Generator().manual_seed(4))
    rows[3] = rows[0]
    assert originals(tuple(rows), slice(0, D), [0.0] * 4) == [0, 1, 2, 0]
