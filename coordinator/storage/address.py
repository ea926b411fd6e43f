"""From an address to a storage: a directory, a bucket, or several that hold the same."""

import re
import time
from pathlib import Path

from pliska.coordinator.errors import StorageUsageError
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.coordinator.storage.object_storage import SCHEMES, ObjectStorage
from pliska.coordinator.storage.storage import LocalStorage, Storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_storage(address: str) -> Storage:
    """Open the storage at `address`: a path, `file:PATH`, `s3://BUCKET/FOLDER`, or several.

    Several, joined by commas, hold the same: the first is read, and the others
    where it lacks or damaged something.

    Raises:
        StorageUsageError: the address is empty or of a kind that is not supported, or the
            packages for it are missing.
        StorageError: the directory cannot be made or opened.
    """
    if "," in address:
        return MirroredStorage([open_storage(each) for each in address.split(",")])
    matched = _SCHEME.fullmatch(address)
    scheme, path = matched.groups() if matched else ("file", address)
    if scheme in SCHEMES:
        return ObjectStorage(scheme, path)
    if scheme != "file":
        raise StorageUsageError(
            f"storage {address!r}: {scheme!r} is not supported; write a path, file:PATH or s3:…"
        )
    if path.startswith("///"):
        path = path[2:]
    if not path or path.startswith("//") or "\0" in path:
        raise StorageUsageError(f"storage {address!r}: write a path or file:PATH")
    storage = LocalStorage(Path(path))
    storage.sweep(now=time.time())
    return storage
