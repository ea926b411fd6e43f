"""A network namespace of the kernel's with one cable to this one, which can be pulled.

What runs in it reaches the host at `host_address` and nothing else. With the
cable pulled packets are lost and nobody is told, as with a real one.
"""

import os
import shutil
import subprocess
import uuid
from typing import Self

from services.missing import ServiceMissingError

HOW_TO_GET = "network namespaces need root and iproute2 (`apt-get install iproute2`)"


class NetworkNamespace:
    """Exists until `close`.

    Attributes:
        host_address: This side's address on the cable.
        prefix: What a command begins with that is to run in the namespace.
    """

    def __init__(self) -> None:
        """Lay the cable.

        Raises:
            ServiceMissingError: The kernel does not let us, or `ip` is missing.
        """
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise ServiceMissingError(HOW_TO_GET)
        unique = uuid.uuid4()
        self._name = f"pliska-{unique.hex[:8]}"
        self._cable = f"pl{unique.hex[:8]}"
        # A random corner of 10.0.0.0/8, for four addresses.
        network = f"10.{unique.bytes[0]}.{unique.bytes[1]}"
        first = unique.bytes[2] & 0xFC
        self.host_address = f"{network}.{first + 1}"
        self.prefix = ("ip", "netns", "exec", self._name)
        _ip("netns", "add", self._name)
        try:
            far = ("peer", "name", "cable", "netns", self._name)
            _ip("link", "add", self._cable, "type", "veth", *far)
            _ip("address", "add", f"{self.host_address}/30", "dev", self._cable)
            _ip("-n", self._name, "address", "add", f"{network}.{first + 2}/30", "dev", "cable")
            _ip("-n", self._name, "link", "set", "cable", "up")
            self.plug_in()
        except BaseException:
            self.close()
            raise

    def pull(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self._cable, "down")

    def plug_in(self) -> None:
        """Put it back."""
        _ip("link", "set", self._cable, "up")

    def close(self) -> None:
        """Remove the namespace and the cable."""
        _ip("netns", "delete", self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceMissingError(
            f"{HOW_TO_GET}; `ip {' '.join(arguments)}` failed: {done.stderr.strip()}"
        )
