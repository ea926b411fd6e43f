"""The last known configuration in a local file, for when the store is away at start.

The file is replaced as a whole (written aside, synced, renamed), readable by
its owner alone, and read with the same distrust as the store. It is a copy to
start from, never a place to write configuration to.
"""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pliska.discovery.errors import ConfigFormatError, SnapshotError
from pliska.discovery.setting import Setting, setting_from_document
from pliska.locks import Clock

FORMAT = 1
SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024
SAVE_S = 1.0
"""Changes are saved at most this often."""
REFRESH_S = 60.0
"""An unchanged snapshot is saved this often, so that its age tells how long the store was away."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """What was known at a time.

    Attributes:
        settings: All keys that could be delivered.
        saved_at: When the store had confirmed them, by this machine's clock.
        store: The address of the store.
    """

    settings: tuple[Setting, ...]
    saved_at: datetime
    store: str

    def find(self, key: str) -> Setting | None:
        """The setting of a key, if it was known."""
        return next((setting for setting in self.settings if setting.key == key), None)

    def age_s(self, now: datetime) -> float:
        """How old it is; 0 when the clock was set back since."""
        return max(0.0, (now - self.saved_at).total_seconds())


def write_snapshot(path: Path, settings: Iterable[Setting], saved_at: datetime, store: str) -> None:
    """Replace the file; whatever happens, it holds the old snapshot or the new one.

    Raises:
        SnapshotError: It cannot be written.
    """
    document = {
        "format": FORMAT,
        "saved_at": saved_at.isoformat(),
        "store": store,
        "settings": [setting.to_document() for setting in settings],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, json.dumps(document).encode())
    except OSError as error:
        raise SnapshotError(f"cannot write the snapshot {path}: {error.strerror}") from error


def read_snapshot(path: Path) -> ConfigSnapshot | None:
    """Read the file; None when there is none.

    Raises:
        SnapshotError: It cannot be read, is not a snapshot, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SNAPSHOT_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SnapshotError(f"cannot read the snapshot {path}: {error.strerror}") from error
    if len(content) > SNAPSHOT_BYTES_MAX:
        raise SnapshotError(f"{path} has more than {SNAPSHOT_BYTES_MAX} bytes: no snapshot")
    try:
        return _decode(json.loads(content))
    except (ValueError, TypeError, KeyError, RecursionError, ConfigFormatError) as error:
        raise SnapshotError(
            f"{path} is not a snapshot of the configuration, or is damaged: remove it"
        ) from error


def _decode(document: Any) -> ConfigSnapshot:
    if document["format"] != FORMAT:
        raise ValueError("another format")
    saved_at = datetime.fromisoformat(document["saved_at"])
    if saved_at.tzinfo is not UTC:
        raise ValueError("a time without a zone")
    settings = [setting_from_document(each, each["key"]) for each in document["settings"]]
    deliverable = tuple(setting for setting in settings if setting.problem() is None)
    return ConfigSnapshot(deliverable, saved_at, str(document["store"]))


def _replace(path: Path, content: bytes) -> None:
    # mkstemp creates with O_EXCL and mode 0600.
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class SnapshotKeeper:
    """Writes the snapshot of one view, not more often than it is worth.

    A snapshot that cannot be written is logged and tried again; the view goes on.
    """

    def __init__(self, path: Path, store: str, clock: Clock, now: Callable[[], datetime]) -> None:
        self._path = path
        self._store = store
        self._clock = clock
        self._now = now
        self._saved_s: float | None = None
        self._is_changed = True

    @property
    def due_in_s(self) -> float:
        """How long until what is confirmed next will be saved."""
        if self._saved_s is None:
            return 0.0
        pause_s = SAVE_S if self._is_changed else REFRESH_S
        return max(0.0, self._saved_s + pause_s - self._clock.now_s())

    def confirmed(self, settings: Collection[Setting], *, is_changed: bool) -> None:
        """The store has just confirmed these settings; save them if that is due."""
        self._is_changed = self._is_changed or is_changed
        if self.due_in_s > 0:
            return
        self._saved_s, self._is_changed = self._clock.now_s(), False
        try:
            write_snapshot(self._path, settings, self._now(), self._store)
        except SnapshotError as error:
            self._is_changed = True
            _log.warning("%s", error)
