"""Storage in a bucket, through fsspec: S3 and what speaks its protocol.

One object a name. An object store shows an object whole or not at all, and an
upload that breaks off is discarded, so nothing is renamed here. Credentials and
endpoint come from where the store's own tools take them (`AWS_PROFILE`,
`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …) and are never part of an address.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pliska.coordinator.errors import (
    MissingObjectError,
    ObjectTooLargeError,
    StorageError,
    StorageUsageError,
)
from pliska.coordinator.storage.name import require_name, require_prefix

SCHEMES = ("s3",)
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*")


class ObjectStorage:
    """One folder of one bucket. See `storage.Storage` for what each method promises."""

    def __init__(self, scheme: str, place: str) -> None:
        """Connect to nothing yet.

        Args:
            scheme: One of `SCHEMES`.
            place: `bucket/folder` or `bucket`.

        Raises:
            StorageUsageError: It is no place in a bucket, or the packages for it are missing.
        """
        place = place.strip("/")
        if _PLACE.fullmatch(place) is None or ".." in place:
            raise StorageUsageError(f"{scheme}://{place}: write {scheme}://BUCKET/FOLDER")
        self._root = place
        self._scheme = scheme
        self._files = _open_filesystem(scheme)

    def __str__(self) -> str:
        return f"{self._scheme}://{self._root}"

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks under `name`; see `Storage.write`."""
        with _translated(name, "write"):
            file = self._files.open(self._path(name), "wb", autocommit=False)
            try:
                for chunk in chunks:
                    file.write(chunk)
                file.close()
            except BaseException:
                file.discard()
                file.closed = True  # else the end of its memory would upload what is there
                raise
            file.commit()

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object; see `Storage.read`."""
        size = self.size(name)
        if size is None:
            raise MissingObjectError(f"nothing is stored as {name}")
        if size > bytes_max:
            raise ObjectTooLargeError(f"{name} has {size} bytes, more than {bytes_max}")
        return self._range(name, 0, size)

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return exactly the `count` bytes from `offset` on; see `Storage.read_range`."""
        size = self.size(name)
        if size is None:
            raise MissingObjectError(f"nothing is stored as {name}")
        if size < offset + count:
            raise StorageError(f"{name} ends before byte {offset + count}")
        return self._range(name, offset, count)

    def size(self, name: str) -> int | None:
        """Return the length of the object in bytes, or None where there is none."""
        with _translated(name, "look at"):
            try:
                return int(self._files.info(self._path(name), refresh=True)["size"])
            except FileNotFoundError:
                return None

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`, sorted."""
        require_prefix(prefix)
        folder = f"{self._root}/{prefix}".rpartition("/")[0]
        with _translated(prefix, "list"):
            self._files.invalidate_cache()
            found = [str(path).removeprefix(f"{self._root}/") for path in self._files.find(folder)]
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, name: str) -> bool:
        """Remove the object; False where there was none."""
        if self.size(name) is None:
            return False
        with _translated(name, "delete"), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))
        return True

    def move(self, name: str, target: str) -> bool:
        """Copy the object within the store and remove it under its old name."""
        if self.size(name) is None or self.size(target) is not None:
            return False
        try:
            with _translated(name, "move"):
                self._files.cp_file(self._path(name), self._path(target))
                self._files.rm_file(self._path(name))
        except MissingObjectError:
            return False
        return True

    def _range(self, name: str, offset: int, count: int) -> bytes:
        if count == 0:
            return b""
        with _translated(name, "read"):
            content = self._files.cat_file(self._path(name), start=offset, end=offset + count)
        if len(content) != count:
            raise StorageError(f"{name}: {len(content)} of {count} bytes came")
        return bytes(content)

    def _path(self, name: str) -> str:
        require_name(name)
        return f"{self._root}/{name}"


def _open_filesystem(scheme: str) -> Any:
    try:
        import fsspec

        return fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False)
    except ImportError as error:
        raise StorageUsageError(
            f"{scheme}:// needs packages that are not installed: pip install 'pliska[{scheme}]'"
        ) from error


@contextlib.contextmanager
def _translated(name: str, action: str) -> Iterator[None]:
    """Turn whatever the store's client raises into one of our errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObjectError(f"nothing is stored as {name}") from error
    except (StorageError, StorageUsageError):
        raise
    except OSError as error:
        raise StorageError(f"cannot {action} {name}: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"botocore", "aiobotocore", "aiohttp"}:
            raise  # of the caller's chunks
        raise StorageError(f"cannot {action} {name}: {error}") from error
