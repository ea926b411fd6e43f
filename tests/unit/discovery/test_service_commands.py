import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pliska.discovery import Instance, Registration, register
from pliska.discovery.service_commands import service
from pliska.locks import connect

Run = Callable[..., Result]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.name}"


@pytest.fixture
def run(store: str) -> Run:
    """Runs the command in this process, on a store of the test's own."""

    def run_one(*arguments: str) -> Result:
        return CliRunner().invoke(service, arguments, env={"PLISKA_STORE": store, "COLUMNS": "200"})

    return run_one


@pytest.fixture
def registered(store: str) -> Iterator[Registration]:
    backend = connect(store)
    instance = Instance(service="scorer", id="s1", address="::1", port=80, tags=("a", "b"))
    with register(backend, instance) as registration:
        yield registration


def test_services_and_instances_are_listed(run: Run, registered: Registration) -> None:
    services = json.loads(run("list", "-o", "json").stdout)["services"]
    assert services == [{"service": "scorer", "instances": 1, "up": 1, "draining": 0, "failing": 0}]
    table = run("list", "scorer").stdout
    for word in ("ENDPOINT", "s1", "[::1]:80", "up", "a, b"):
        assert word in table


def test_resolving_prints_the_endpoint_and_says_why(run: Run, registered: Registration) -> None:
    assert run("resolve", "scorer").stdout == "[::1]:80\n"
    document = json.loads(run("resolve", "scorer", "--policy", "round-robin", "-o", "json").stdout)
    assert document["instance"]["id"] == "s1"
    assert document["reason"] == "next after none"


def test_a_drained_instance_is_not_resolved(run: Run, registered: Registration) -> None:
    assert run("drain", "scorer", "s1").stdout == "scorer/s1 is draining\n"
    done = run("resolve", "scorer")
    assert getattr(done.exception, "exit_code", None) == 3
    assert str(done.exception) == "no instance of scorer takes work: 1 draining"


@pytest.mark.parametrize(
    ("exit_code", "words", "arguments"),
    [
        (2, "cannot name a service", ("register", "no name", "--address", "h")),
        (2, "is no port", ("register", "scorer", "--address", "h", "--port", "65536")),
        (2, "write KEY=VALUE", ("register", "scorer", "--address", "h", "--meta", "x")),
        (2, "is no probe", ("register", "scorer", "--port", "1", "--probe", "ping")),
        (2, "needs a port", ("register", "scorer", "--probe", "tcp")),
        (2, "a lease lasts", ("register", "scorer", "--address", "h", "--lease", "0")),
        (2, "no policy is called", ("resolve", "scorer", "--policy", "best")),
        (3, "other has no instance", ("resolve", "other")),
        (3, "no instance s9", ("drain", "scorer", "s9")),
        (
            4,
            "s1 of another process",
            ("register", "scorer", "--id", "s1", "--address", "h", "--wait", "0.1"),
        ),
    ],
)
def test_a_users_mistake_is_an_error_with_its_exit_code(
    run: Run,
    registered: Registration,
    exit_code: int,
    words: str,
    arguments: tuple[str, ...],
) -> None:
    done = run(*arguments)
    assert getattr(done.exception, "exit_code", None) == exit_code
    assert words in str(done.exception)
    assert done.stdout == ""
