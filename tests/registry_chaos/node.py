"""Serves what the alias points at and writes down what it serves. Run as a process.

Usage: python -m registry_chaos.node ADDRESS ARTIFACTS HISTORY STATE NAME LEASE_S
"""

import sys
import threading
from pathlib import Path

from chaos.history import Recorder, now_s
from registry_chaos.mover import ALIAS, MODEL

from pliska.coordinator.registry import NotServingError, Registry, ServedModel
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect

LOOK_PAUSE_S = 0.002


def main(arguments: list[str]) -> None:
    """Serve until the end of the input."""
    address, artifacts, history, state, name, lease_s = arguments
    recorder = Recorder(Path(history), name)
    registry = Registry(connect(address), LocalStorage(Path(artifacts)))
    has_ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), has_ended.set()), daemon=True).start()
    served = ServedModel.open(
        registry,
        MODEL,
        ALIAS,
        load=lambda loaded: loaded.version.version,
        state=Path(state),
        node=name,
        lease_s=float(lease_s),
    )
    recorder.record("began", node=name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    last: dict[str, object] = {}
    with served:
        while not has_ended.is_set():
            seen_s = now_s()
            try:
                current, drawn = served.current, served.draw(0.0)
            except NotServingError:
                continue
            seen = {
                "gen": current.gen,
                "version": current.model,
                "stale": current.stale,
                "canary_gen": drawn.gen,
                "canary": drawn.model if drawn.is_canary else None,
            }
            if seen == {name: last.get(name) for name in seen}:
                last["until_s"] = seen_s
            else:
                if last:
                    recorder.record("served until", node=name, **last)
                recorder.record("served", node=name, until_s=seen_s, **seen)
                last = {**seen, "since_s": seen_s, "until_s": seen_s}
            has_ended.wait(LOOK_PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1:])
