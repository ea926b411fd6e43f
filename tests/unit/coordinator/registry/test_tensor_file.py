import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliska.coordinator.registry import (
    NotFoundError,
    RegistryUsageError,
    Tensor,
    TensorFile,
    TensorFormatError,
)
from pliska.coordinator.registry import tensor_file as module
from pliska.coordinator.registry.tensor import DTYPE_BITS, TENSOR_NAME_CHARACTERS_MAX, TensorType
from pliska.coordinator.registry.tensor_file import write_tensor_file


def content_of(tensor: Tensor) -> bytes:
    return b"".join(tensor.chunks())


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str = "U8", shape: object = (1,), offsets: object = (0, 1)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], TensorFile]:
    def open_it(content: bytes) -> TensorFile:
        path = tmp_path / "it.safetensors"
        path.write_bytes(content)
        return TensorFile(path)

    return open_it


base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
LAYOUTS = {
    "plain": base,
    "transposed": base.T,
    "sliced": base[1:3, ::2],
    "broadcast": base[:1].expand(5, 6),
    "scalar": torch.tensor(3, dtype=torch.int64),
    "empty": torch.empty(0, 7, dtype=torch.float64),
    "bfloat16": base.to(torch.bfloat16),
    "float8": base.to(torch.float8_e4m3fn),
    "half": base.half(),
    "bool": base > 5,
    "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
}


def test_every_layout_and_dtype_that_torch_saves_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved = {name: tensor.contiguous() for name, tensor in LAYOUTS.items()}
    safetensors.torch.save_file(saved, tmp_path / "in.safetensors", {"format": "pt"})
    with TensorFile(tmp_path / "in.safetensors") as file:
        write_tensor_file(tmp_path / "out.safetensors", file.tensors, file.metadata)
    loaded = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert loaded.keys() == saved.keys()
    for name, tensor in saved.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].flatten().view(torch.uint8).equal(tensor.flatten().view(torch.uint8))


tensor_types = st.builds(
    TensorType,
    st.sampled_from(sorted(dtype for dtype, bits in DTYPE_BITS.items() if bits >= 8)),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
)
tensor_names = st.text(
    st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20
).filter(lambda name: name != "__metadata__")


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(tensor_names, tensor_types, min_size=1, max_size=6), st.randoms())
def test_what_is_written_is_read_back_and_the_order_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, types: dict[str, TensorType], random: object
) -> None:
    folder = tmp_path_factory.mktemp("files")
    tensors = {
        name: Tensor.of_bytes(kind.dtype, kind.shape, random.randbytes(kind.nbytes))
        for name, kind in types.items()
    }
    write_tensor_file(folder / "a", tensors, {"k": "v"})
    write_tensor_file(folder / "b", dict(reversed(tensors.items())), {"k": "v"})
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
    with TensorFile(folder / "a") as file:
        assert file.metadata == {"k": "v"}
        assert {name: (t.type, content_of(t)) for name, t in file.tensors.items()} == {
            name: (t.type, content_of(t)) for name, t in tensors.items()
        }


GOOD = file_of({"a": entry()}, b"x")
HOSTILE = {
    "empty": b"",
    "short": b"\1\0\0\0\0\0\0",
    "header past the end": file_of(b"{}", length=3),
    "huge header": struct.pack("<Q", 2**63) + b"{}",
    "not JSON": file_of(b"{nope"),
    "not an object": file_of([]),
    "bytes before the object": file_of(b' {"a":1}'),
    "invalid UTF-8": file_of(b'{"\xff":1}'),
    "deep": file_of(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
    "no tensors": file_of({}),
    "only metadata": file_of({"__metadata__": {}}),
    "name twice": file_of(b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2), b"x"),
    "metadata not texts": file_of({"__metadata__": {"k": 1}, "a": entry()}, b"x"),
    "metadata a list": file_of({"__metadata__": [], "a": entry()}, b"x"),
    "entry a list": file_of({"a": []}),
    "entry with more": file_of({"a": {**entry(), "more": 1}}, b"x"),
    "unknown dtype": file_of({"a": entry(dtype="OBJECT")}, b"x"),
    "negative shape": file_of({"a": entry(shape=[-1, -1])}, b"x"),
    "float shape": file_of({"a": entry(shape=[1.0])}, b"x"),
    "bool shape": file_of({"a": entry(shape=[True])}, b"x"),
    "overflowing shape": file_of({"a": entry(shape=[2**32, 2**32, 2**32])}, b"x"),
    "many dimensions": file_of({"a": entry(shape=[1] * 65)}, b"x"),
    "half a byte": file_of({"a": entry("F4", [1], [0, 1])}, b"x"),
    "shape too large": file_of({"a": entry(shape=[2])}, b"x"),
    "negative offset": file_of({"a": entry(offsets=[-1, 0])}, b"x"),
    "end before start": file_of({"a": entry(shape=[0], offsets=[1, 0])}, b"x"),
    "past the end": file_of({"a": entry(offsets=[1, 2])}, b"x"),
    "gap": file_of({"a": entry(), "b": entry(offsets=[2, 3])}, b"xyz"),
    "overlap": file_of({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(offsets=[1, 2])}, b"xy"),
    "shared bytes": file_of({"a": entry(), "b": entry()}, b"x"),
    "bytes left over": GOOD + b"x",
    "bytes missing": GOOD[:-1],
    "NUL in a name": file_of({"a\0": entry()}, b"x"),
    "line break in a name": file_of({"a\nb": entry()}, b"x"),
    "empty name": file_of({"": entry()}, b"x"),
    "name one too long": file_of({"a" * (TENSOR_NAME_CHARACTERS_MAX + 1): entry()}, b"x"),
    "a pickle": b"\x80\x04\x95" + b"\0" * 40 + b"cos\nsystem\n(S'true'\ntR.",
    "a zip": b"PK\3\4" + b"\0" * 60,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused(opened: Callable[[bytes], TensorFile], content: bytes) -> None:
    with pytest.raises(TensorFormatError) as refused:
        opened(content)
    assert refused.value.exit_code == 5


def test_the_good_file_beside_them_is_read(opened: Callable[[bytes], TensorFile]) -> None:
    with opened(GOOD) as file:
        assert content_of(file.tensors["a"]) == b"x"


def test_the_longest_name_is_read(opened: Callable[[bytes], TensorFile]) -> None:
    with opened(file_of({"a" * TENSOR_NAME_CHARACTERS_MAX: entry()}, b"x")) as file:
        assert len(file.tensors) == 1


@pytest.mark.parametrize("slack", [0, 1])
def test_the_limits_on_header_and_count_are_included(
    opened: Callable[[bytes], TensorFile], monkeypatch: pytest.MonkeyPatch, slack: int
) -> None:
    two = {"a": entry(), "b": entry(offsets=[1, 2])}
    monkeypatch.setattr(module, "TENSORS_MAX", 2 - slack)
    monkeypatch.setattr(module, "HEADER_BYTES_MAX", len(json.dumps(two)))
    if not slack:
        opened(file_of(two, b"xy")).close()
        monkeypatch.setattr(module, "HEADER_BYTES_MAX", len(json.dumps(two)) - 1)
    with pytest.raises(TensorFormatError):
        opened(file_of(two, b"xy"))


def test_a_pickle_saved_by_torch_is_refused_and_never_run(
    opened: Callable[[bytes], TensorFile], tmp_path: Path
) -> None:
    torch.save({"w": torch.zeros(3)}, tmp_path / "w.safetensors")  # noqa: TID251 - what we refuse
    with pytest.raises(TensorFormatError, match="pickled files are never read"):
        TensorFile(tmp_path / "w.safetensors")


def test_a_file_that_shrinks_while_it_is_read_is_an_error_not_a_crash(
    opened: Callable[[bytes], TensorFile], tmp_path: Path
) -> None:
    file = opened(GOOD)
    (tmp_path / "it.safetensors").write_bytes(GOOD[:-1])
    with file, pytest.raises(TensorFormatError, match="shorter"):
        content_of(file.tensors["a"])


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        TensorFile(tmp_path / "none")
    with pytest.raises(TensorFormatError):
        TensorFile(tmp_path)


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "it").write_text("precious")
    with pytest.raises(RegistryUsageError, match="exists"):
        write_tensor_file(tmp_path / "it", {"a": Tensor.of_bytes("U8", (1,), b"x")}, {})
    assert (tmp_path / "it").read_text() == "precious"


def test_a_tensor_that_gives_other_bytes_than_it_says_leaves_no_file(tmp_path: Path) -> None:
    for given_bytes in (b"x", b"xyz"):
        tensor = Tensor(TensorType("U8", (2,)), lambda given=given_bytes: iter((given,)))
        with pytest.raises(TensorFormatError):
            write_tensor_file(tmp_path / "it", {"a": tensor}, {})
        assert list(tmp_path.iterdir()) == []


def test_bytes_that_do_not_fill_the_shape_make_no_tensor() -> None:
    with pytest.raises(TensorFormatError):
        Tensor.of_bytes("F32", (2,), b"1234567")
