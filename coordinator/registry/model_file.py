"""Model files by their suffix: `.onnx`, `.pt2`, and safetensors for everything else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pliska.coordinator.registry.errors import RegistryUsageError
from pliska.coordinator.registry.onnx_file import OnnxFile
from pliska.coordinator.registry.pt2_file import Pt2File
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.tensor_file import TensorFile, write_tensor_file


class ModelFile(Protocol):
    """Tensors by name, and free-form texts."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors; their chunks can be read until the file is closed."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The file's own texts."""


@contextmanager
def open_model_file(path: Path) -> Iterator[ModelFile]:
    """Open a model file.

    Raises:
        NotFoundError: There is no such file.
        RegistryUsageError: It cannot be read, or a package for it is missing.
        TensorFormatError: It is not what its suffix says.
    """
    if path.suffix == ".onnx":
        yield OnnxFile(path)
    elif path.suffix == ".pt2":
        with Pt2File(path) as archive:
            yield archive
    else:
        with TensorFile(path) as file:
            yield file


def write_model_file(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], like: Path | None
) -> None:
    """Write a model file, whole and durable, or none.

    Args:
        path: Must not exist; its suffix says the format.
        tensors: The weights.
        metadata: Texts, for safetensors.
        like: For a format that has a graph: a file of it, whose graph to write.

    Raises:
        RegistryUsageError: The path exists, or `like` is missing, is of another format,
            or has no weights of those names and types.
    """
    if path.suffix not in {".onnx", ".pt2"}:
        if like is not None:
            raise RegistryUsageError(f"{path}: --like goes with .onnx and .pt2 files")
        write_tensor_file(path, tensors, metadata)
        return
    if like is None or like.suffix != path.suffix:
        raise RegistryUsageError(
            f"{path}: a registry has weights and no graph; name a {path.suffix} file that has "
            "the graph with --like"
        )
    if path.suffix == ".onnx":
        OnnxFile(like).write_like(path, tensors)
    else:
        with Pt2File(like) as archive:
            archive.write_like(path, tensors)
