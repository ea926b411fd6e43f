import re
import subprocess
import sys

import pytest
import torch

from pliska.aggregation import MultiKrum, Rule, TrimmedMean
from pliska.aggregation.catalog import RULES


def test_import_loads_nothing_heavier_than_torch() -> None:
    code = (
        "import sys, pliska.aggregation.catalog\n"
        "heavy = {'aiohttp', 'scipy', 'sklearn', 'kazoo', 'consul', 'typer', 'pliska.locks',\n"
        "         'pliska.coordinator', 'pliska.discovery', 'pliska.trainer'}\n"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("rule", RULES.values())
def test_every_rule_documents_its_cost_bound_and_paper(rule: type[Rule]) -> None:
    text = rule.__doc__ or ""
    assert "Cost" in text
    assert re.search(r"Bound|bound|Breakdown", text)
    assert re.search(r"\b20\d\d\b", text)


def test_rules_are_values() -> None:
    assert MultiKrum(f=2) == MultiKrum(f=2)
    assert hash(MultiKrum(f=2)) == hash(MultiKrum(f=2))
    with pytest.raises(AttributeError):
        MultiKrum(f=2).f = 3  # type: ignore[misc]


def test_rejected_worker_that_has_a_row_is_counted_once() -> None:
    rows = torch.tensor([[1.0], [2.0], [3.0], [100.0]])
    result = TrimmedMean(f=1)(rows, ["a", "b", "c", "d"], rejected={"d": "two messages"})
    assert result.vector.item() == 2
    assert len(result.report) == 4


def test_margin_of_a_coordinate_rule_is_its_share_of_the_kept_values() -> None:
    # Sorted columns: kept are 2, 3 and 3; worker c is kept twice, b once.
    rows = torch.tensor([[1.0, 9.0], [2.0, 1.0], [3.0, 3.0]])
    report = TrimmedMean(f=1)(rows).report
    assert [entry.weight for entry in report] == [0.0, 0.5, 0.5]
    assert [entry.margin for entry in report] == [-1.0, 0.5, 0.5]
    assert report[1].reason == "within the kept range in 50% of the coordinates"
