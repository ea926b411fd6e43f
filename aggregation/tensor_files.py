"""Safetensors files of named tensors: one worker's gradient or state dict each.

Whoever wrote a file may lie, so it is parsed by the safetensors library alone,
which executes nothing. Used by the command line; the library works on arrays.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pliska.aggregation.errors import (
    FileExistsAlreadyError,
    MissingFileError,
    UnreadableFileError,
)


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read all tensors of a file onto the CPU.

    Raises:
        MissingFileError: There is no such file.
        UnreadableFileError: It is no safetensors file.
    """
    import safetensors
    import safetensors.torch

    if not file.is_file():
        raise MissingFileError(f"there is no file {file}")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
        raise UnreadableFileError(f"{file} is no safetensors file: {error}") from error
    return tensors


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a new file, durably and whole or not at all.

    Tied tensors are written once under each of their names.

    Raises:
        FileExistsAlreadyError: The file exists.
        MissingFileError: Its directory does not.
    """
    import safetensors.torch

    if not file.parent.is_dir():
        raise MissingFileError(f"there is no directory {file.parent}")
    content = safetensors.torch.save({name: each.clone() for name, each in tensors.items()})
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as stream:
        temporary = Path(stream.name)
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            temporary.chmod(0o644)
            os.link(temporary, file)
        except FileExistsError:
            raise FileExistsAlreadyError(f"{file} exists: choose another name") from None
        finally:
            temporary.unlink()
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
