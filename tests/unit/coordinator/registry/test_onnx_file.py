from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pliska.coordinator.registry import (
    NotFoundError,
    Reference,
    RegistryUsageError,
    Tensor,
    TensorFormatError,
)
from pliska.coordinator.registry.onnx_file import OnnxFile

W = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([0.5, -1, 2], dtype=np.float32)
X = np.array([[1, 2]], dtype=np.float32)


def graph_of(*initializers: TensorProto) -> onnx.ModelProto:
    """Return x @ w + b * scale, whose scale is no parameter of the model's."""
    scale = numpy_helper.from_array(np.array(3, dtype=np.float32), "scale")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Mul", ["b", "scale"], ["sb"]),
            helper.make_node("Add", ["xw", "sb"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [*initializers, scale],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model, one of whose weights is raw bytes and one written number by number."""
    path = tmp_path / "m.onnx"
    numbers = helper.make_tensor("b", TensorProto.FLOAT, [3], B.tolist())
    onnx.save(graph_of(numpy_helper.from_array(W, "w"), numbers), path)
    return path


def run(path: Path) -> Any:
    return ReferenceEvaluator(onnx.load(path)).run(None, {"x": X})[0]


def test_the_weights_are_the_initializers(path: Path) -> None:
    tensors = OnnxFile(path).tensors
    assert {name: b"".join(each.chunks()) for name, each in tensors.items()} == {
        "w": W.tobytes(),
        "b": B.tobytes(),
        "scale": np.array(3, dtype=np.float32).tobytes(),
    }
    assert (tensors["w"].type.dtype, tensors["w"].type.shape) == ("F32", (2, 3))


def test_a_version_is_exported_with_the_graph_of_a_file_and_computes_with_its_weights(
    desk: Any, path: Path, tmp_path: Path
) -> None:
    desk.registry.register_file("digits", path, actor="ann")
    again = tmp_path / "again.onnx"
    desk.registry.export(Reference("digits"), again, path)
    assert run(again).tolist() == run(path).tolist() == (X @ W + 3 * B).tolist()
    assert not desk.registry.register_file("digits", again, actor="ann").created
    other = {
        "w": Tensor.of_bytes("F32", (2, 3), (W * 2).tobytes()),
        "b": Tensor.of_bytes("F32", (3,), B.tobytes()),
    }
    desk.registry.register("digits", other, actor="ann")
    trained = tmp_path / "trained.onnx"
    desk.registry.export(Reference("digits", version=2), trained, path)
    assert run(trained).tolist() == (X @ (W * 2) + 3 * B).tolist()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("BFLOAT16", "BF16"), ("FLOAT16", "F16"), ("FLOAT8E4M3FN", "F8_E4M3"), ("INT64", "I64"),
     ("BOOL", "BOOL"), ("UINT8", "U8"), ("DOUBLE", "F64")],
)  # fmt: skip
def test_every_type_goes_through_whichever_way_it_is_written(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    number = TensorProto.DataType.Value(kind)
    numbers = helper.make_tensor("w", number, [2], [1, 0])
    raw = helper.make_tensor("w", number, [2], numpy_helper.to_array(numbers).tobytes(), raw=True)
    found = []
    for proto in (numbers, raw):
        onnx.save(graph_of(proto), tmp_path / "m.onnx")
        tensor = OnnxFile(tmp_path / "m.onnx").tensors["w"]
        found.append((tensor.type.dtype, tensor.type.shape, b"".join(tensor.chunks())))
    assert found[0] == found[1]
    assert found[0][:2] == (dtype, (2,))


def test_weights_in_another_file_are_refused_and_no_file_is_read(tmp_path: Path) -> None:
    proto = numpy_helper.from_array(W, "w")
    proto.ClearField("raw_data")
    proto.data_location = TensorProto.EXTERNAL
    entry = proto.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    (tmp_path / "m.onnx").write_bytes(graph_of(proto).SerializeToString())
    with pytest.raises(TensorFormatError, match="another file"):
        OnnxFile(tmp_path / "m.onnx")


def spoiled(change: Callable[[Any], None]) -> bytes:
    model = graph_of(numpy_helper.from_array(W, "w"))
    change(model)
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95pickle",
        b"\xff" * 100,
        spoiled(lambda model: model.graph.initializer[0].dims.append(2)),
        spoiled(lambda model: setattr(model.graph.initializer[0], "name", "")),
        spoiled(lambda model: setattr(model.graph.initializer[0], "name", "scale")),
        spoiled(lambda model: setattr(model.graph.initializer[0], "data_type", 8)),
        spoiled(lambda model: setattr(model.graph.initializer[0], "data_type", 999)),
        spoiled(lambda model: model.graph.ClearField("initializer")),
        spoiled(lambda model: model.graph.sparse_initializer.add()),
        spoiled(lambda model: model.graph.initializer[0].dims.__setitem__(0, -2)),
    ],
)
def test_what_is_no_model_with_weights_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(TensorFormatError):
        OnnxFile(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "tensor",
    [
        {"other": Tensor.of_bytes("F32", (3,), B.tobytes())},
        {"b": Tensor.of_bytes("F32", (3, 1), B.tobytes())},
        {"b": Tensor.of_bytes("I32", (3,), B.tobytes())},
    ],
)
def test_weights_that_the_graph_has_no_place_for_are_refused(
    path: Path, tmp_path: Path, tensor: dict[str, Tensor]
) -> None:
    with pytest.raises(RegistryUsageError, match="has no weight"):
        OnnxFile(path).write_like(tmp_path / "out.onnx", tensor)
    assert not (tmp_path / "out.onnx").exists()


def test_an_export_needs_a_graph_and_never_overwrites(
    desk: Any, path: Path, tmp_path: Path
) -> None:
    desk.registry.register_file("digits", path, actor="ann")
    for like in (None, tmp_path / "m.pt2"):
        with pytest.raises(RegistryUsageError, match="--like"):
            desk.registry.export(Reference("digits"), tmp_path / "out.onnx", like)
    with pytest.raises(RegistryUsageError, match="exists"):
        desk.registry.export(Reference("digits"), path, path)
    with pytest.raises(RegistryUsageError, match="--like goes with"):
        desk.registry.export(Reference("digits"), tmp_path / "out.safetensors", path)
    with pytest.raises(NotFoundError):
        OnnxFile(tmp_path / "missing.onnx")
