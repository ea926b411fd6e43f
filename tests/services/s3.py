"""An S3 server for tests: moto's, as a process of its own that speaks HTTP."""

import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass

START_TIMEOUT_S = 60.0


@dataclass
class S3Server:
    """A running server; it keeps nothing when it ends."""

    port: int
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls) -> "S3Server":
        """Start one on a free port and wait until it answers."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = cls(port, process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not server.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                server.stop()
                raise RuntimeError("the S3 server did not start")
            time.sleep(0.1)  # it announces nothing that could be awaited
        return server

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def make_bucket(self, bucket: str) -> None:
        """Add a bucket."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{bucket}", method="PUT", data=b""
        )
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310

    def answers(self) -> bool:
        """Whether it accepts connections."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
