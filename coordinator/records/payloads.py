"""Gradients kept as they came: `jobs/JOB/payloads/ROUND/ROOT.payload`, named by their hash tree.

The header that a worker signed names the root, so whoever reads a payload knows
that it is the signed one. The newest rounds are kept, as many as the job says;
a replay recomputes them. Payloads may come from several leaders, and one that
was not counted after all goes with its round.
"""

import re

import numpy as np
from numpy.typing import NDArray

from pliska.coordinator.errors import DamagedStateError, MissingObjectError, NotKeptError
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.codec import codec_named
from pliska.coordinator.wire.errors import RefusedError
from pliska.coordinator.wire.limits import PAYLOAD_BYTES_MAX
from pliska.coordinator.wire.messages import GradientHeader

_NAME = re.compile(r"(\d{12})/([0-9a-f]{64})\.payload")


class PayloadStore:
    """The kept payloads of one job. Blocks on the disk; safe from any thread."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the payloads of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._folder = f"jobs/{job}/payloads/"

    def write(self, round_number: int, root: bytes, payload: memoryview) -> None:
        """Keep an encoded gradient durably.

        Args:
            round_number: The round that its header names.
            root: Of the hash tree over it, already checked.
            payload: The bytes as they came; nobody changes them meanwhile.

        Raises:
            StorageError: The disk failed or is full.
        """
        self._storage.write(self.name(round_number, root), [payload])

    def read(self, round_number: int, root: bytes) -> bytes:
        """Return an encoded gradient, checked against its root.

        Raises:
            NotKeptError: It was not kept, or is not kept any more.
            DamagedStateError: It is not the one with this root.
        """
        name = self.name(round_number, root)
        try:
            payload = self._storage.read(name, PAYLOAD_BYTES_MAX)
        except MissingObjectError as error:
            raise NotKeptError(
                f"{name} is not kept: audit.keep_rounds in the job file says how many rounds are"
            ) from error
        if hash_tree.root(hash_tree.leaves(memoryview(payload)), len(payload)) != root:
            raise DamagedStateError(f"{name}: its content does not have this root")
        return payload

    def names(self) -> list[str]:
        """Return the names of what is kept, by round."""
        return self._storage.names(self._folder)

    def check(self, name: str) -> None:
        """Compare one of `names` with its content.

        Raises:
            DamagedStateError: They do not fit each other.
        """
        matched = _NAME.fullmatch(name.removeprefix(self._folder))
        if matched is None:
            raise DamagedStateError(f"{name}: no payload has such a name")
        self.read(int(matched[1]), bytes.fromhex(matched[2]))

    def prune(self, oldest_kept: int) -> list[str]:
        """Remove the payloads of the rounds before this one; return their names."""
        first = f"{self._folder}{oldest_kept:012d}/"
        removed = [name for name in self.names() if name < first]
        for name in removed:
            self._storage.delete(name)
        return removed

    def name(self, round_number: int, root: bytes) -> str:
        """Return the object name of the payload with this root."""
        return f"{self._folder}{round_number:012d}/{root.hex()}.payload"


def decoded(payload: bytes, header: GradientHeader, dimension: int) -> NDArray[np.float32]:
    """Decode a kept payload as its header says, float32 [d].

    Raises:
        DamagedStateError: It is not of this codec or dimension.
    """
    row = np.empty(dimension, dtype=np.float32)
    try:
        codec_named(header.codec.id, header.codec.params).decode_into(payload, row)
    except RefusedError as error:
        raise DamagedStateError(f"a kept gradient of {header.worker}: {error}") from error
    return row
