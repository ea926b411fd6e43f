from pathlib import Path

import pytest
import torch

from pliska.aggregation.errors import FileExistsAlreadyError, MissingFileError, UnreadableFileError
from pliska.aggregation.tensor_files import read_tensors, write_tensors


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    vector = torch.arange(6.0)
    tensors = {
        "a": vector[:4].view(2, 2),
        "b": vector[4:],
        "tied": vector[4:],
        "n": torch.tensor(3),
    }
    write_tensors(tmp_path / "t", tensors)
    found = read_tensors(tmp_path / "t")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


def test_an_existing_file_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("mine")
    with pytest.raises(FileExistsAlreadyError, match="exists: choose another name"):
        write_tensors(file, {"a": torch.zeros(1)})
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(MissingFileError, match="no directory"):
        write_tensors(tmp_path / "gone" / "t", {"a": torch.zeros(1)})
    with pytest.raises(MissingFileError, match="there is no file"):
        read_tensors(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04K\x01.", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}{}"]
)
def test_anything_else_is_unreadable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(UnreadableFileError, match="no safetensors file"):
        read_tensors(tmp_path / "t")
