"""A checkpoint: the whole training state of one committed version, and the manifest that names it.

The manifest is a JSON file beside the state's files; each of its fields is checked when
it is read. Values only: the files themselves are `checkpoint_store`'s.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliska.coordinator.errors import DamagedStateError

FORMAT = "pliska-checkpoint"
SCHEMA_VERSION = 2
MANIFEST_BYTES_MAX = 16 * 2**20
"""Largest manifest that is read."""
FILES_MAX = 4096
"""Most files of one checkpoint that are read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One stored checkpoint.

    Attributes:
        version: The model version that it holds.
        record_digest: Of the commit record that made the version, 32 bytes.
        state_digest: Of the training state, 32 bytes.
    """

    version: int
    record_digest: bytes
    state_digest: bytes


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """What a checkpoint consists of.

    Attributes:
        job: That it is of.
        checkpoint: What it holds.
        settings: Of the training state, JSON values by name.
        files: Name and size in bytes of each file of tensors, in the state's order.
    """

    job: str
    checkpoint: Checkpoint
    settings: Mapping[str, Any]
    files: tuple[tuple[str, int], ...]

    def to_bytes(self) -> bytes:
        """Return its JSON text."""
        document = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "job": self.job,
            "version": self.checkpoint.version,
            "record_digest": self.checkpoint.record_digest.hex(),
            "state_digest": self.checkpoint.state_digest.hex(),
            "settings": dict(self.settings),
            "files": [{"name": name, "bytes": size} for name, size in self.files],
        }
        return json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode()

    @classmethod
    def parse(cls, content: bytes, place: str) -> "CheckpointManifest":
        """Read its JSON text.

        Args:
            content: At most `MANIFEST_BYTES_MAX` bytes.
            place: Where it came from, for the message.

        Raises:
            DamagedStateError: A field is missing, of another type or out of bounds.
        """
        try:
            return cls._checked(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedStateError(f"{place}: its manifest cannot be read: {error}") from error

    @classmethod
    def _checked(cls, document: Any) -> "CheckpointManifest":
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema version {document['schema_version']!r} is not ours")
        files = tuple((_file_name(each["name"]), int(each["bytes"])) for each in document["files"])
        if len(files) > FILES_MAX:
            raise ValueError(f"it lists {len(files)} files, more than {FILES_MAX}")
        if not isinstance(document["settings"], dict):
            raise TypeError("its settings are not a table")
        checkpoint = Checkpoint(
            version=int(document["version"]),
            record_digest=_digest(document["record_digest"]),
            state_digest=_digest(document["state_digest"]),
        )
        return cls(str(document["job"]), checkpoint, document["settings"], files)


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != 32:
        raise ValueError(f"a digest has {len(digest)} bytes")
    return digest


def _file_name(name: str) -> str:
    if re.fullmatch(r"state-\d{5}\.safetensors", name) is None:
        raise ValueError(f"it names a file {name[:40]!r}")
    return name
