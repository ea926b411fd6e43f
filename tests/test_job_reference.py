"""docs/job_file.md says what the code does: keys, values, defaults, examples, messages."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from pliska.aggregation.catalog import pre_names, rule_named, rule_names
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.expectations import OtherKeys
from pliska.coordinator.wire.job import Job, parse_job
from pliska.coordinator.wire.job_reader import (
    JOB_FILE_BYTES_MAX,
    defaults_of,
    expectations_of,
    tables_of,
)

PAGE = (Path(__file__).parents[1] / "docs" / "job_file.md").read_text()
SECTIONS = {"The job itself": Job} | {f"`[{name}]`": kind for name, kind in tables_of(Job).items()}


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def documented(title: str) -> list[tuple[str, str, str]]:
    """Key, what to write, and default, of each line of the table in a section."""
    rows = [line.strip("|").split(" | ") for line in section(title).splitlines() if "|" in line]
    return [(row[0].strip(), row[1], row[2]) for row in rows[2:]]


def in_code(kind: type) -> list[tuple[str, str, str]]:
    """The same, as the dataclass has it."""
    defaults = defaults_of(kind)
    rows = []
    for name, expected in expectations_of(kind).items():
        if isinstance(expected, OtherKeys):
            rows.append(("any other key", expected.description, "none"))
        elif name in defaults:
            rows.append((f"`{name}`", expected.description, f"`{json.dumps(defaults[name])}`"))
        else:
            rows.append((f"`{name}`", expected.description, "required"))
    return rows


def test_every_table_of_the_file_has_its_section() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == list(SECTIONS)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_keys_of_a_section_are_those_of_the_code(title: str) -> None:
    assert documented(title) == in_code(SECTIONS[title])


def example() -> str:
    return str(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])


def test_the_example_is_a_job_and_says_the_least_it_can() -> None:
    job = parse_job(example(), "tiny.toml")
    assert job.name == "tiny"
    lines = example().splitlines()
    for number, line in enumerate(lines):
        if "=" in line and not line.startswith("f ") and not line.startswith("lr "):
            without = "\n".join(lines[:number] + lines[number + 1 :])
            with pytest.raises(JobFileError, match="is missing"):
                parse_job(without, "tiny.toml")


def test_the_error_shown_is_the_error_given() -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job(example().replace("quorum", "quorm"), "tiny.toml")
    assert f"error: {caught.value}\n" in PAGE


def test_the_rules_named_are_those_there_are() -> None:
    line = next(line for line in section("`[rule]`").splitlines() if "A rule of" in line)
    listed = line.partition(": ")[2].partition(". ")[0]
    assert re.findall(r"`(.*?)`", listed) == list(rule_names())


def test_the_pre_aggregators_named_are_those_there_are() -> None:
    listed = section("`[rule]`").partition("They are ")[2].partition(". ")[0]
    assert re.findall(r"`(.*?)`", listed) == list(pre_names())


def test_the_example_of_pre_aggregation_is_a_rule_with_the_bound_that_is_named() -> None:
    text = re.findall(r"```toml\n(.*?)```", section("`[rule]`"), re.DOTALL)[0]
    rule = rule_named(**tomllib.loads(text)["rule"])
    assert rule.title == "arc | bucketing | krum"
    assert [rule_named("krum", f=f, pre=rule_pre(text)).rows_min for f in (1, 2, 3)] == [9, 13, 17]


def rule_pre(text: str) -> object:
    return tomllib.loads(text)["rule"]["pre"]


def test_the_size_limit_is_named() -> None:
    assert f"at most {JOB_FILE_BYTES_MAX} bytes" in PAGE
