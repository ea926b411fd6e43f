"""Every fault that docs/scenarios.md lists is told by tests that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = (ROOT / "docs/scenarios.md").read_text()
ROWS = re.findall(r"^\| (\S.*? #.*?) \|.*\| (`.*`) \|$", LIST, re.MULTILINE)


def test_all_rows_are_read() -> None:
    assert len(ROWS) == LIST.count("\n| ") - 1


@pytest.mark.parametrize(("thread", "names"), ROWS)
def test_scenario_is_a_test(thread: str, names: str) -> None:
    for name in re.findall(r"`(.*?)`", names):
        file, _, test = name.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text())
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = {each.name for each in tree.body if isinstance(each, functions)}
        assert test in found, f"{thread}: tests/{file} has no {test}"
