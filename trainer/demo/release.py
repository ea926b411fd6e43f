"""The last act: a good version goes to `prod`, a poisoned one follows, and is rolled back.

Every step is the real command, `pliska model ...`, in a process of its own. The
poisoned version is what the plain mean learned under attack.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliska.trainer.demo.errors import ProcessError
from pliska.trainer.demo.facts import EventKind, Rollback
from pliska.trainer.demo.journal import Journal
from pliska.trainer.demo.processes import Processes

MODEL = "digits"
ALIAS = "prod"


class Release:
    """Registers, promotes and rolls back versions of `MODEL` in one store."""

    def __init__(
        self, processes: Processes, store: str, journal: Journal, round_number: int
    ) -> None:
        """Prepare; nothing is registered.

        Args:
            processes: Runs the commands.
            store: Address of the coordination store.
            journal: Events go there.
            round_number: The last round of the run, where the events are marked.
        """
        self._processes = processes
        self._store = store
        self._journal = journal
        self._round = round_number
        self._commands = 0

    async def run(
        self, good_file: Path, good_accuracy: float, poisoned_file: Path, poisoned_accuracy: float
    ) -> Rollback:
        """Promote the good version, then the poisoned one, and roll back.

        Args:
            good_file: Safetensors file of the robust run.
            good_accuracy: What it reads of the test images, 0 to 1.
            poisoned_file: Safetensors file of the ruined run.
            poisoned_accuracy: The same of that.

        Raises:
            ProcessError: A command failed, or printed what is no answer.
        """
        good = await self._promote(good_file, good_accuracy, "version")
        poisoned = await self._promote(poisoned_file, poisoned_accuracy, "poisoned version")
        began_s = time.monotonic()
        reason = f"reads {100 * poisoned_accuracy:.1f} % of the test images"
        await self._model("rollback", MODEL, "--alias", ALIAS, "--reason", reason)
        duration_s = time.monotonic() - began_s
        restored = await self._pointed_at()
        self._note(EventKind.ROLLED_BACK, f"{ALIAS} rolled back to version {restored}")
        return Rollback(good, poisoned, restored, duration_s)

    async def _promote(self, file: Path, accuracy: float, what: str) -> int:
        metric = ["--metric", f"accuracy={accuracy:.4f}"]
        registered = await self._model("register", MODEL, str(file), *metric)
        version = int(registered["version"])
        await self._model("promote", MODEL, str(version), "--alias", ALIAS)
        text = f"{what} {version}, {100 * accuracy:.1f} %, promoted to {ALIAS}"
        self._note(EventKind.PROMOTED, text)
        return version

    async def _pointed_at(self) -> int:
        """Ask the registry anew what the alias points at."""
        listed = (await self._model("list", MODEL, "--alias", ALIAS))["versions"]
        if len(listed) != 1:
            raise ProcessError(f"alias {ALIAS} points at {len(listed)} versions")
        return int(listed[0]["version"])

    async def _model(self, action: str, *arguments: str) -> Mapping[str, Any]:
        self._commands += 1
        name = f"model-{self._commands}-{action}"
        command = ["model", action, *arguments, "--store", self._store, "-o", "json"]
        printed = await self._processes.output(name, command)
        try:
            document: Mapping[str, Any] = json.loads(printed)
        except ValueError as error:
            raise ProcessError(f"{name} printed what is not JSON: {printed[:200]!r}") from error
        return document

    def _note(self, kind: EventKind, text: str) -> None:
        self._journal.note(kind, None, self._round, text)
