"""`pliska model charter` as the members of a team run it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliska.discovery import new_private_key, write_private_key
from services.commands import Commands


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Commands]:
    for name in ("ann", "bob", "eve"):
        write_private_key(tmp_path / f"{name}.pem", new_private_key())
    commands = Commands("model", tmp_path)
    yield commands
    commands.end()


def charter(model: Commands, *words: str, code: int = 0) -> str:
    done = model.run("charter", *words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_members_draft_sign_and_enact_and_a_stranger_cannot(model: Commands) -> None:
    keys = ("--key", "ann.pem", "--key", "bob.pem")
    charter(model, "draft", "one.json", *keys, "--quorum", "2")
    charter(model, "sign", "one.json", "ann.json", "--key", "ann.pem")
    charter(model, "enact", "ann.json", code=7)
    charter(model, "sign", "one.json", "bob.json", "--key", "bob.pem")
    charter(model, "enact", "ann.json", "bob.json")
    charter(model, "draft", "two.json", "--key", "eve.pem", "--quorum", "1")
    charter(model, "sign", "two.json", "eve.json", "--key", "eve.pem")
    charter(model, "enact", "eve.json", code=7)
    charter(model, "enact", "ann.json", code=5)
    (shown,) = json.loads(charter(model, "show", "-o", "json"))["charters"]
    assert (shown["number"], shown["quorum"], len(shown["signed_by"])) == (1, 2, 2)
    charter(model, "show", "--charter", shown["hash"])
    charter(model, "show", "--charter", "sha256:" + "0" * 64, code=5)
    charter(model, "show", "--charter", "one", code=2)
