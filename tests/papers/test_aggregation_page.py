"""docs/aggregation.md names the test that holds each mistake off: there is one of that name."""

import re
from pathlib import Path

from pliska.aggregation import AttackName
from pliska.aggregation.conformance import definitions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "aggregation.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 60
    assert sorted(named - set(re.findall(r"def (test_\w+)\(", written))) == []


def test_every_definition_and_every_attack_is_on_the_page() -> None:
    for definition in definitions():
        assert f"\n| {definition} |" in PAGE
    for attack in AttackName:
        assert f"\n| `{attack}` |" in PAGE
