"""Archives of `torch.export.save` (`.pt2`): the weights in one, and a copy with other weights.

An archive is a zip file with the graph as JSON, each weight as raw bytes, and
the sample inputs as a pickle. Neither the graph nor the pickle is looked at here: weights
are raw bytes, or the archive is refused. A copy that is written has no sample
inputs, and so no pickle at all; `torch.export.load` takes it (and would run what
is in the pickle of another archive). Needs no torch. Called by `model_file`.

Layout: `torch/csrc/export/pt2_archive_constants.h` and `torch/_export/serde/schema.py`
(schema 8), as PyTorch 2.8 to 2.13 write them.
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pliska.coordinator.registry.errors import RegistryUsageError, TensorFormatError
from pliska.coordinator.registry.input_file import open_input
from pliska.coordinator.registry.new_file import new_file
from pliska.coordinator.registry.tensor import Tensor, TensorType, is_tensor_name
from pliska.coordinator.registry.tensor_file import TENSORS_MAX

CONFIG_BYTES_MAX = 64 * 1024 * 1024
ENTRIES_MAX = 2 * TENSORS_MAX

_CONFIG = "data/weights/model_weights_config.json"
_WEIGHTS = "data/weights/"
_SAMPLES = "data/sample_inputs/"
_STRIDED = 7
_DTYPES = {
    1: "U8", 2: "I8", 3: "I16", 4: "I32", 5: "I64", 6: "F16", 7: "F32", 8: "F64", 10: "C64",
    12: "BOOL", 13: "BF16", 28: "U16", 29: "F8_E4M3", 30: "F8_E5M2", 31: "F8_E4M3FNUZ",
    32: "F8_E5M2FNUZ", 33: "F8_E8M0", 34: "U32", 35: "U64",
}  # fmt: skip
"""By the numbers of `ScalarType` in PyTorch's schema."""
_PATH_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


class Pt2File:
    """An archive open for reading.

    Attributes:
        tensors: Parameters and buffers by name; read until the file is closed.
        metadata: Nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open and check the archive.

        Raises:
            NotFoundError: There is no such file.
            RegistryUsageError: It cannot be opened.
            TensorFormatError: It is not an archive with raw weights.
        """
        self._path = path
        self._file = os.fdopen(open_input(path), "rb")
        self.metadata: Mapping[str, str] = {}
        try:
            self._archive = zipfile.ZipFile(self._file)
            self._entries = self._checked_entries()
            self._root = self._checked_root()
            self._config = self._read_config()
            self.tensors = {name: self._tensor(name, each) for name, each in self._config.items()}
        except (zipfile.BadZipFile, NotImplementedError) as error:
            self._file.close()
            raise self._bad(str(error)) from error
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._archive.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def write_like(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write a copy of this archive with other weights; they must have names and types of it.

        What is not among `tensors` stays as it is here, but for the sample inputs, which go.
        """
        for name, tensor in tensors.items():
            there = self.tensors.get(name)
            if there is None or there.type != tensor.type:
                kind = f"{tensor.type.dtype} {list(tensor.type.shape)}"
                raise RegistryUsageError(f"{self._path} has no weight {name!r} of {kind}")
        config = {}
        with new_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as copy:
            for number, (name, entry) in enumerate(self._config.items()):
                place = f"weight_{number}"
                content = b"".join(tensors.get(name, self.tensors[name]).chunks())
                copy.writestr(zipfile.ZipInfo(f"{self._root}{_WEIGHTS}{place}"), content)
                config[name] = {
                    **entry,
                    "path_name": place,
                    "tensor_meta": _contiguous(entry["tensor_meta"]),
                }
            text = json.dumps({"config": config})
            copy.writestr(zipfile.ZipInfo(f"{self._root}{_CONFIG}"), text)
            for name, info in self._entries.items():
                if name.startswith(f"{self._root}{_SAMPLES}"):
                    copy.writestr(zipfile.ZipInfo(name), b"")
                elif not name.startswith(f"{self._root}{_WEIGHTS}"):
                    copy.writestr(zipfile.ZipInfo(name), self._archive.read(info))

    def _checked_entries(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._archive.infolist()
        entries = {info.filename: info for info in infos}
        if len(infos) > ENTRIES_MAX or len(entries) != len(infos):
            raise self._bad(f"an entry is there twice, or there are more than {ENTRIES_MAX}")
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise self._bad(f"{info.filename[:80]!r} is compressed")
        return entries

    def _checked_root(self) -> str:
        roots = [name.removesuffix(_CONFIG) for name in self._entries if name.endswith(_CONFIG)]
        if len(roots) != 1 or not re.fullmatch(r"[^/]{1,200}/", roots[0]):
            raise self._bad("it does not hold one model with its weights")
        return roots[0]

    def _read_config(self) -> dict[str, Any]:
        info = self._entries[f"{self._root}{_CONFIG}"]
        if info.file_size > CONFIG_BYTES_MAX:
            raise self._bad(f"its list of weights has more than {CONFIG_BYTES_MAX} bytes")
        try:
            config = json.loads(self._archive.read(info))["config"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._bad(f"its list of weights cannot be read: {error}") from error
        if not isinstance(config, dict) or not 1 <= len(config) <= TENSORS_MAX:
            raise self._bad(f"not 1 to {TENSORS_MAX} weights")
        return config

    def _tensor(self, name: str, entry: Any) -> Tensor:
        match entry:
            case {
                "path_name": str(place),
                "use_pickle": False,
                "tensor_meta": {
                    "dtype": int(dtype),
                    "sizes": list(sizes),
                    "strides": list(strides),
                    "storage_offset": {"as_int": int(offset)},
                    "layout": int(layout),
                },
            } if _PATH_NAME.fullmatch(place) and is_tensor_name(name) and dtype in _DTYPES:
                shape, steps = self._integers(name, sizes), self._integers(name, strides)
                info = self._entries.get(f"{self._root}{_WEIGHTS}{place}")
                kind = TensorType(_DTYPES[dtype], shape)
                if layout == _STRIDED and len(shape) == len(steps) and offset >= 0 and info:
                    return Tensor(kind, self._reader(name, kind, steps, offset, info))
        raise self._bad(f"weight {name[:80]!r} is not stored as raw bytes of a dense tensor")

    def _integers(self, name: str, items: list[Any]) -> tuple[int, ...]:
        found = [item.get("as_int") if isinstance(item, dict) else None for item in items]
        if not all(type(number) is int and number >= 0 for number in found):
            raise self._bad(f"weight {name[:80]!r} has no fixed size")
        return tuple(found)  # type: ignore[arg-type]

    def _reader(
        self,
        name: str,
        kind: TensorType,
        steps: tuple[int, ...],
        offset: int,
        info: zipfile.ZipInfo,
    ) -> Callable[[], Iterator[bytes]]:
        """Return what reads a tensor in C order out of the storage that it is a view of."""
        count = math.prod(kind.shape)
        item = kind.nbytes // count if count else 1
        last = offset + sum(
            (length - 1) * step for length, step in zip(kind.shape, steps, strict=True)
        )
        if count and max((last + 1) * item, kind.nbytes) > info.file_size:
            raise self._bad(f"weight {name[:80]!r} is larger than its storage")

        def chunks() -> Iterator[bytes]:
            import numpy as np

            items = info.file_size // item
            storage = np.frombuffer(self._archive.read(info), np.dtype((np.void, item)), items)
            yield np.lib.stride_tricks.as_strided(
                storage[offset:], kind.shape, tuple(step * item for step in steps)
            ).tobytes()

        return chunks if count else lambda: iter(())

    def _bad(self, reason: str) -> TensorFormatError:
        return TensorFormatError(
            f"{self._path}: not an archive of torch.export with raw weights: {reason}"
        )


def _contiguous(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of a tensor, with the strides of one in C order at the beginning."""
    strides, step = [], 1
    for size in reversed(meta["sizes"]):
        strides.append({"as_int": step})
        step *= max(size["as_int"], 1)
    return {**meta, "strides": strides[::-1], "storage_offset": {"as_int": 0}}
