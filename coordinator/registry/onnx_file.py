"""ONNX files: the weights in one, and a copy of one with other weights.

The initializers of the main graph are the tensors, by name. The graph is never
run, built or checked: a file that is read gives its weights, and one that is
written has the graph of the file it is made like. Weights outside the file
(`external_data`) are refused, because the file would name other files to read.
Needs the package `onnx` (`pip install 'pliska[onnx]'`). Called by `model_file`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliska.coordinator.registry.errors import RegistryUsageError, TensorFormatError
from pliska.coordinator.registry.input_file import read_input
from pliska.coordinator.registry.new_file import new_file
from pliska.coordinator.registry.tensor import Tensor, TensorType, is_tensor_name
from pliska.coordinator.registry.tensor_file import TENSORS_MAX

ONNX_BYTES_MAX = 2**31 - 1
"""What a protobuf message may have."""

_DTYPES: Mapping[str, str] = {
    "BOOL": "BOOL",
    "UINT8": "U8",
    "INT8": "I8",
    "UINT16": "U16",
    "INT16": "I16",
    "UINT32": "U32",
    "INT32": "I32",
    "UINT64": "U64",
    "INT64": "I64",
    "FLOAT16": "F16",
    "BFLOAT16": "BF16",
    "FLOAT": "F32",
    "DOUBLE": "F64",
    "COMPLEX64": "C64",
    "FLOAT8E4M3FN": "F8_E4M3",
    "FLOAT8E5M2": "F8_E5M2",
    "FLOAT8E4M3FNUZ": "F8_E4M3FNUZ",
    "FLOAT8E5M2FNUZ": "F8_E5M2FNUZ",
}
_VALUE_FIELDS = (
    "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data",
)  # fmt: skip


class OnnxFile:
    """An ONNX file in memory.

    Attributes:
        tensors: The main graph's initializers by name.
        metadata: Nothing: what a graph says of itself is not the weights'.
    """

    def __init__(self, path: Path) -> None:
        """Read and check the file.

        Raises:
            NotFoundError: There is no such file.
            RegistryUsageError: It cannot be read, or `onnx` is not installed.
            TensorFormatError: It is not an ONNX model whose weights are in it.
        """
        self._path = path
        self._onnx = _import_onnx()
        self._model = self._parse(read_input(path, ONNX_BYTES_MAX))
        self.metadata: Mapping[str, str] = {}
        self.tensors = self._checked_tensors()

    def write_like(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write a copy of this file with other weights; they must have names and types of it.

        What is not among `tensors` stays as it is here.
        """
        for name, tensor in tensors.items():
            there = self.tensors.get(name)
            if there is None or there.type != tensor.type:
                kind = f"{tensor.type.dtype} {list(tensor.type.shape)}"
                raise RegistryUsageError(f"{self._path} has no weight {name!r} of {kind}")
        for proto in self._model.graph.initializer:
            if proto.name in tensors:
                for field in _VALUE_FIELDS:
                    proto.ClearField(field)
                proto.raw_data = b"".join(tensors[proto.name].chunks())
        if self._model.ByteSize() > ONNX_BYTES_MAX:
            raise RegistryUsageError(
                f"{path}: more than the {ONNX_BYTES_MAX} bytes of an ONNX file"
            )
        with new_file(path) as file:
            file.write(self._model.SerializeToString(deterministic=True))

    def _parse(self, content: bytes) -> Any:
        from google.protobuf.message import DecodeError

        try:
            model = self._onnx.ModelProto.FromString(content)
        except DecodeError as error:
            raise self._bad("it cannot be decoded") from error
        if not model.ir_version or not model.HasField("graph"):
            raise self._bad("it has no graph")
        return model

    def _checked_tensors(self) -> dict[str, Tensor]:
        graph = self._model.graph
        if graph.sparse_initializer:
            raise self._bad("its weights are sparse")
        if not 1 <= len(graph.initializer) <= TENSORS_MAX:
            raise self._bad(f"{len(graph.initializer)} weights, not 1 to {TENSORS_MAX}")
        tensors: dict[str, Tensor] = {}
        for proto in graph.initializer:
            if not is_tensor_name(proto.name) or proto.name in tensors:
                raise self._bad(f"{proto.name[:80]!r} is no name of a weight, or there twice")
            tensors[proto.name] = self._tensor(proto)
        return tensors

    def _tensor(self, proto: Any) -> Tensor:
        kinds = self._onnx.TensorProto
        if proto.external_data or proto.data_location == kinds.EXTERNAL:
            raise self._bad(
                f"weight {proto.name!r} lies in another file; save the model with its weights in it"
            )
        known = {kinds.DataType.Value(name): dtype for name, dtype in _DTYPES.items()}
        if proto.data_type not in known:
            raise self._bad(f"weight {proto.name!r} is of a type that is not supported")
        kind = TensorType(known[proto.data_type], tuple(proto.dims))
        content = proto.raw_data if proto.HasField("raw_data") else self._values(proto)
        if len(content) != kind.nbytes:
            raise self._bad(f"weight {proto.name!r} has {len(content)} of {kind.nbytes} bytes")
        return Tensor.of_bytes(kind.dtype, kind.shape, content)

    def _values(self, proto: Any) -> bytes:
        """Return the bytes of a weight that is written number by number."""
        from onnx import numpy_helper

        try:
            array = numpy_helper.to_array(proto)
        except (TypeError, ValueError) as error:
            raise self._bad(f"weight {proto.name!r}: {error}") from error
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()

    def _bad(self, reason: str) -> TensorFormatError:
        return TensorFormatError(f"{self._path}: not an ONNX file with weights: {reason}")


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise RegistryUsageError(
            "ONNX files need a package that is not installed: pip install 'pliska[onnx]'"
        ) from error
    return onnx
