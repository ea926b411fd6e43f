"""Promotes and rolls back at random, and writes down what it was told. Run as a process.

Usage: python -m registry_chaos.mover ADDRESS ARTIFACTS HISTORY SEED
"""

import contextlib
import random
import sys
import threading
from pathlib import Path

from chaos.history import Recorder, now_s

from pliska.coordinator.registry import (
    MoveUnknownError,
    OperationOpenError,
    PromoteRequest,
    Registry,
    RegistryError,
    RollbackRequest,
    State,
    Wait,
)
from pliska.coordinator.registry.requests import Request
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import LockError, connect

MODEL, ALIAS = "digits", "prod"
VERSIONS = 5
TIMEOUT_S = 3


class Mover:
    """One process's part."""

    def __init__(self, registry: Registry, recorder: Recorder, seed: int) -> None:
        self._registry = registry
        self._recorder = recorder
        self._random = random.Random(seed)

    def turn(self) -> None:
        """Ask for one move, or clean up after somebody."""
        try:
            request = self._request()
        except (RegistryError, LockError):
            return
        began_s = now_s()
        self._recorder.record("asked", op_id=request.op_id)
        try:
            if isinstance(request, PromoteRequest):
                move = self._registry.promote(request)
            else:
                move = self._registry.rollback(request)
        except OperationOpenError as open_:
            self._record(request, "refused", began_s, why=str(open_))
            self._clean_up(open_.op_id)
        except MoveUnknownError as error:
            self._record(request, "unknown", began_s, why=str(error))
        except (RegistryError, LockError) as error:
            self._record(request, "refused", began_s, why=f"{type(error).__name__}: {error}")
        else:
            self._record(request, move.outcome, began_s, gen=move.gen, by=move.op_id, why=move.why)

    def _request(self) -> Request:
        chance = self._random
        common = {
            "model": MODEL,
            "alias": ALIAS,
            "actor": self._recorder.who.replace(" ", "-"),
            "op_id": f"{chance.randrange(2**60):015x}",
            "timeout_s": TIMEOUT_S,
            "wait": chance.choice(list(Wait)),
            "is_emergency": chance.random() < 0.1,
        }
        if chance.random() < 0.6:
            percent = chance.choice((None, None, 25))
            return PromoteRequest(**common, version=self._version(), canary_percent=percent)
        return RollbackRequest(**common, reason="worse", quarantine=False)

    def _version(self) -> int:
        """Choose one of the versions that were there a moment ago, a new one more often."""
        versions = self._registry.versions(MODEL)
        ready = [version.version for version in versions if version.state is State.READY]
        return self._random.choice(ready[-VERSIONS:])

    def _clean_up(self, op_id: str) -> None:
        """Sometimes abort or resume what another has open, who may be dead or not."""
        operations = self._registry.operations(self._recorder.who.replace(" ", "-"))
        action = self._random.choice((operations.abort, operations.resume, None, None))
        if action is None:
            return
        with contextlib.suppress(RegistryError, LockError):  # the history tells what it was
            action(op_id)

    def _record(self, request: Request, outcome: str, began_s: float, **fields: object) -> None:
        self._recorder.record(
            "told", op_id=request.op_id, outcome=outcome, from_s=began_s, to_s=now_s(), **fields
        )


def main(arguments: list[str]) -> None:
    """Take turns until the end of the input."""
    address, artifacts, history, seed = arguments
    recorder = Recorder(Path(history), f"mover {seed}")
    registry = Registry(connect(address), LocalStorage(Path(artifacts)))
    mover, has_ended = Mover(registry, recorder, int(seed)), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), has_ended.set()), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not has_ended.is_set():
        mover.turn()


if __name__ == "__main__":
    main(sys.argv[1:])
