from pathlib import Path

import pytest
import safetensors.torch
import torch

from pliska.coordinator.errors import DamagedStateError, ModelStateError
from pliska.coordinator.training.tensor_file import decode_tensors, encode_tensors


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "step": torch.tensor(3.0),
        "flag": torch.tensor([True, False, True]),
        "empty": torch.zeros(0, 4),
        "wide": torch.arange(5, dtype=torch.int64),
        "half": torch.ones(3, dtype=torch.bfloat16),
        'name "with" quotes and ü': torch.randn(7, 3, generator=generator),
        "transposed": torch.randn(4, 2, generator=generator).T,
    }


def test_tensors_come_back_bit_for_bit(tensors: dict[str, torch.Tensor]) -> None:
    decoded = decode_tensors(b"".join(encode_tensors(tensors)))

    assert decoded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert decoded[name].dtype == tensor.dtype
        assert torch.equal(decoded[name], tensor)


def test_the_file_is_what_the_safetensors_library_reads(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"".join(encode_tensors(tensors)))

    loaded = safetensors.torch.load_file(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_what_the_safetensors_library_writes_is_read(tensors: dict[str, torch.Tensor]) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    decoded = decode_tensors(safetensors.torch.save(contiguous))

    assert all(torch.equal(decoded[name], tensor) for name, tensor in tensors.items())


def test_no_tensors_make_a_file_too() -> None:
    assert decode_tensors(b"".join(encode_tensors({}))) == {}


def test_a_dtype_that_cannot_be_kept_is_named() -> None:
    with pytest.raises(ModelStateError, match=r"tensor z: torch\.complex64"):
        list(encode_tensors({"z": torch.zeros(1, dtype=torch.complex64)}))


def test_a_file_that_is_cut_anywhere_is_refused(tensors: dict[str, torch.Tensor]) -> None:
    content = b"".join(encode_tensors(tensors))

    for length in range(0, len(content), 7):
        with pytest.raises(DamagedStateError, match="not a safetensors file"):
            decode_tensors(content[:length])
