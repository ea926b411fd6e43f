"""A small HTTP server that serves what an alias points at, and follows it.

    python examples/serve.py digits prod --port 8080 --state ./serve-state
    curl -d '[[0.1, 0.2]]' http://127.0.0.1:8080/predict
    pliska model promote digits 2 --alias prod    # it loads 2 beside 1, then switches
    pliska model status digits --alias prod

The model is one linear layer, tensors `weight` and `bias`. A client that has seen
generation 7 of the alias and must not be answered by an older one sends
`X-Pliska-Min-Gen: 7`; one that sends the same `X-Request-Key` each time gets the
same version while a canary runs.
"""

import argparse
import hashlib
import json
import os
import random
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from pliska.coordinator.registry import (
    LoadedModel,
    NotServingError,
    Registry,
    ServedModel,
    WhenStale,
)
from pliska.coordinator.storage.address import open_storage
from pliska.locks import connect

BODY_BYTES_MAX = 1 << 20


class Linear:
    """One layer. Whatever is wrong with a version is found here, before it serves."""

    def __init__(self, loaded: LoadedModel) -> None:
        types = {entry.name: entry.type for entry in loaded.manifest.tensors}
        self.weight, self.bias = (
            np.frombuffer(loaded.tensors[name], np.float32).reshape(types[name].shape)
            for name in ("weight", "bias")
        )
        self(np.zeros((1, self.weight.shape[1]), np.float32))

    def __call__(self, inputs: np.ndarray) -> list[int]:
        """Return the most likely class of each row."""
        return (inputs @ self.weight.T + self.bias).argmax(axis=1).tolist()


class Handler(BaseHTTPRequestHandler):
    """Answers one request with one version."""

    served: ServedModel[Linear]

    def do_GET(self) -> None:
        """Say whether requests should come here."""
        try:
            current = self.served.current
        except NotServingError as error:
            self._answer(503, {"error": str(error)})
            return
        self._answer(200, {"version": current.version, "gen": current.gen, "stale": current.stale})

    def do_POST(self) -> None:
        """Predict."""
        key = self.headers.get("X-Request-Key")
        point = random.random() if key is None else point_of(key)  # noqa: S311 - no secret
        try:
            serving = self.served.draw(point)
            min_gen = int(self.headers.get("X-Pliska-Min-Gen", 0))
            length = min(int(self.headers.get("Content-Length", 0)), BODY_BYTES_MAX)
            inputs = np.asarray(json.loads(self.rfile.read(length)), np.float32)
            if serving.gen < min_gen:
                self._answer(503, {"error": f"at generation {serving.gen}, not yet at {min_gen}"})
                return
            outputs = serving.model(inputs)
        except NotServingError as error:
            self._answer(503, {"error": str(error)})
        except ValueError as error:
            self._answer(400, {"error": str(error)})
        else:
            answer = {"outputs": outputs, "version": serving.version, "gen": serving.gen}
            self._answer(200, {**answer, "stale": serving.stale})

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""

    def _answer(self, code: int, document: dict[str, object]) -> None:
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def point_of(key: str) -> float:
    """Return the same point from 0 to 1 for the same key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("alias")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--state", type=Path, default=Path("serve-state"))
    parser.add_argument("--node", help="name of this process; the host's by default")
    parser.add_argument("--lease", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--stop-when-stale", action="store_true")
    parser.add_argument("--store", default=os.environ.get("PLISKA_STORE", "embedded:./.pliska"))
    parser.add_argument(
        "--artifacts", default=os.environ.get("PLISKA_ARTIFACTS", "./.pliska/registry")
    )
    options = parser.parse_args()

    registry = Registry(connect(options.store), open_storage(options.artifacts))
    with ServedModel.open(
        registry,
        options.model,
        options.alias,
        load=Linear,
        state=options.state,
        node=options.node,
        lease_s=options.lease,
        when_stale=WhenStale.STOP if options.stop_when_stale else WhenStale.SERVE,
    ) as Handler.served:
        server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"serving on http://127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            server.server_close()


if __name__ == "__main__":
    main()
