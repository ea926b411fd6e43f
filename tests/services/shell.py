"""`pliska model` as people run it: real processes in a folder, on a store in it."""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliska.coordinator.registry import PromoteRequest, Registry, Tensor
from pliska.coordinator.registry.tensor_file import write_tensor_file
from pliska.coordinator.storage.address import open_storage
from pliska.locks import connect
from services.ready_command import ReadyCommand
from services.zygote import PLISKA

WAIT_MAX_S = 60.0


@dataclass
class Shell:
    """Runs `pliska` in a folder, where its store is `.pliska`.

    Attributes:
        environment: What it finds there besides.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *words: object) -> ReadyCommand:
        environment = {
            **os.environ,
            "PLISKA_STORE": "embedded:./.pliska",
            "PLISKA_ACTOR": "ann@test",
            **self.environment,
        }
        return ReadyCommand(PLISKA, words, cwd=self.folder, env=environment)

    def run(self, *words: object, code: int = 0) -> str:
        """Return what it printed; its exit code must be `code`, and an error one line."""
        process = self.start(*words)
        stdout, stderr = process.communicate(timeout=WAIT_MAX_S)
        assert process.returncode == code, (words, stdout, stderr)
        assert "Traceback" not in stderr
        if code not in (0, 2):
            assert stderr.splitlines()[-1].startswith("error: "), stderr
        return stdout

    def said(self, *words: object) -> str:
        """Return what it told the person beside its data; it must succeed."""
        process = self.start(*words)
        _, stderr = process.communicate(timeout=WAIT_MAX_S)
        assert process.returncode == 0, (words, stderr)
        return stderr

    def json(self, *words: object) -> Any:
        document = json.loads(self.run(*words, "-o", "json"))
        assert document["schema_version"] == 1
        return document

    def log(self, alias: str = "prod") -> list[dict[str, Any]]:
        """Return the moves of an alias, oldest first."""
        return list(reversed(self.json("model", "log", "digits", "--alias", alias)["log"]))

    def model_file(self, number: int) -> str:
        """Write a small model of which half depends on the number; return the file's name."""
        name = f"m{number}.safetensors"
        head = Tensor.of_bytes("F32", (2,), struct.pack("<2f", number, -number))
        frozen = Tensor.of_bytes("BF16", (2, 2), b"\0\1\2\3\4\5\6\7")
        write_tensor_file(self.folder / name, {"head": head, "frozen": frozen}, {"format": "pt"})
        return name

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """Open its registry in this process, to prepare what a test is about."""
        with closing(connect(f"embedded:{self.folder / '.pliska'}")) as backend:
            artifacts = self.environment.get("PLISKA_ARTIFACTS", ".pliska/registry")
            places = [str(self.folder / each) for each in artifacts.split(",")]
            yield Registry(backend, open_storage(",".join(places)))

    def prepare(self, *numbers: int, prod: Sequence[int] = ()) -> None:
        """Register small models as versions 1, 2, ... and move the alias `prod`."""
        with self.registry() as registry:
            for number in numbers:
                path = self.folder / self.model_file(number)
                registry.register_file("digits", path, actor="ann")
            for version in prod:
                registry.promote(
                    PromoteRequest(model="digits", alias="prod", version=version, actor="ann")
                )

    def register(self, *numbers: int) -> None:
        for number in numbers:
            self.run("model", "register", "digits", self.model_file(number))

    def promote(self, *versions: int) -> None:
        for version in versions:
            self.run("model", "promote", "digits", version, "--alias", "prod")
