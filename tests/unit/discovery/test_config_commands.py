import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pliska.discovery.config_commands import config

Run = Callable[..., Result]


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Runs the command in this process, on a store of the test's own."""

    def run_one(*arguments: str) -> Result:
        store = f"memory:{request.node.name}"
        return CliRunner().invoke(config, arguments, env={"PLISKA_STORE": store, "COLUMNS": "200"})

    return run_one


def document(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done
    parsed: dict[str, Any] = json.loads(done.stdout)
    assert parsed["schema_version"] == 1
    return parsed


def test_a_key_is_declared_set_changed_and_rolled_back(run: Run) -> None:
    declared = run("schema", "training.lr", "--kind", "number", "--minimum", "0", "--maximum", "1")
    assert declared.stdout == "training.lr is declared as number at revision 1\n"
    assert run("set", "training.lr", "0.1").stdout == "training.lr is 0.1 at revision 2\n"
    assert run("set", "training.lr", "0.2", "--note", "faster").exit_code == 0
    assert run("get", "training.lr").stdout == "0.2\n"
    rolled = run("rollback", "training.lr", "--to", "2")
    assert rolled.stdout == "training.lr is 0.1 at revision 4: back to revision 2\n"
    assert run("unset", "training.lr").stdout == "training.lr is not set since revision 5\n"
    revisions = document(run("history", "training.lr", "-o", "json"))["revisions"]
    assert [(each["revision"], each["change"], each["value"]) for each in revisions] == [
        (5, "delete", None),
        (4, "rollback", 0.1),
        (3, "set", 0.2),
        (2, "set", 0.1),
        (1, "schema", None),
    ]
    assert revisions[2]["note"] == "faster"
    assert "@" in revisions[2]["author"]
    later = run("rollback", "training.lr", "--to-time", "2100-01-01T00:00:00Z")
    assert later.stdout == "training.lr is not set at revision 6: back to revision 5\n"


def test_the_list_shows_values_kinds_and_what_is_left_out(run: Run) -> None:
    run("set", "a.flag", "true")
    run("set", "b.count", "7")
    run("schema", "b.count", "--kind", "integer")
    run("set", "c.bad", "text")
    shown = run("schema", "c.bad", "--kind", "boolean")
    assert "not delivered any more" in shown.stderr
    listed = run("list", "-o", "json")
    assert "left out: the stored value of c.bad is not delivered" in listed.stderr
    assert [
        (each["key"], each["value"], each["kind"]) for each in document_of(listed)["settings"]
    ] == [("a.flag", True, None), ("b.count", 7, "integer")]
    table = run("list").stdout
    assert "WRITTEN AT" in table
    assert "b.count" in table


def document_of(done: Result) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("true", True), ("[1]", [1]), ("eu-1", "eu-1"), ('"7"', "7"), ("NaN", "NaN")],
)
def test_without_a_schema_a_value_is_json_or_else_text(run: Run, text: str, value: object) -> None:
    assert run("set", "key", text).exit_code == 0
    found = document(run("get", "key", "-o", "json"))
    assert (found["setting"]["value"], found["age_s"], found["is_stale"]) == (value, 0.0, False)


def test_with_a_schema_a_text_stays_a_text(run: Run) -> None:
    run("schema", "key", "--kind", "text", "--choice", "7", "--choice", "on")
    run("set", "key", "7")
    assert document(run("get", "key", "-o", "json"))["setting"]["value"] == "7"
    assert document(run("schema", "key"))["schema"] == {"kind": "text", "choices": ["7", "on"]}


@pytest.mark.parametrize(
    ("exit_code", "words", "arguments"),
    [
        (2, "cannot be a configuration key", ("set", "no key", "1")),
        (2, "either --to", ("rollback", "key")),
        (2, "either --to", ("rollback", "key", "--to", "1", "--to-time", "2100-01-01T00:00:00Z")),
        (2, "is no time", ("rollback", "key", "--to-time", "noon")),
        (2, "has no time zone", ("rollback", "key", "--to-time", "2100-01-01T00:00:00")),
        (2, "has no minimum", ("schema", "key", "--kind", "text", "--minimum", "1")),
        (3, "nothing is not set", ("get", "nothing")),
        (3, "was never set", ("history", "nothing")),
        (3, "no revision 9", ("rollback", "key", "--to", "9")),
        (3, "has no schema", ("schema", "key")),
        (4, "is at revision 1", ("set", "key", "2", "--if-revision", "7")),
        (7, "10 is above the maximum, 1", ("set", "bounded", "10")),
        (7, "is no number", ("set", "bounded", "true")),
    ],
)
def test_a_users_mistake_is_an_error_with_its_exit_code(
    run: Run, exit_code: int, words: str, arguments: tuple[str, ...]
) -> None:
    run("set", "key", "1")
    run("schema", "bounded", "--kind", "number", "--maximum", "1")
    done = run(*arguments)
    assert getattr(done.exception, "exit_code", None) == exit_code
    assert words in str(done.exception)
    assert done.stdout == ""
