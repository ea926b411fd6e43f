import pytest
import torch
from torch import Tensor

from pliska.aggregation.column_blocks import reduce_columns
from pliska.aggregation.rows import Rows


@pytest.mark.parametrize("measured", [11, 4, 0])
def test_blocks_are_put_together(measured: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliska.aggregation.rows.BLOCK_ELEMENTS", 9)
    matrix = torch.randn(3, 11, generator=torch.Generator().manual_seed(1))

    def largest(block: Tensor) -> tuple[Tensor, Tensor]:
        assert block.dtype == torch.float64
        values = block.max(dim=0).values
        return values, (block == values).sum(dim=1)

    made = reduce_columns(Rows(tuple(matrix), measured), largest)
    assert torch.equal(made.vector, matrix.max(dim=0).values)
    assert sum(made.kept) == 11
    gaps = (matrix - made.vector)[:, :measured].double().square().sum(dim=1)
    assert made.distances.tolist() == pytest.approx(gaps.tolist())
