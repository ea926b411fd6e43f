"""The element types that kernels read, and how a vector of each becomes float32."""

from dataclasses import dataclass

import torch

from pliska.aggregation.engine.assembly import Function, Lanes, Value


@dataclass(frozen=True, slots=True)
class Element:
    """An element type of rows in memory.

    Attributes:
        dtype: The torch dtype.
        memory: The LLVM type it is loaded as.
        nbytes: Its size.
    """

    dtype: torch.dtype
    memory: str
    nbytes: int

    def load(self, function: Function, kind: Lanes, pointer: Value) -> Value:
        """Load `kind.count` elements and widen them to float32, exactly."""
        raw = function.load(kind.of(self.memory), pointer, self.nbytes)
        if self.memory == "half":
            return function.value(f"fpext {kind.of('half')} {raw} to {kind}")
        if self.memory == "i16":  # bfloat16 is the upper half of a float32
            wide = function.value(f"zext {kind.of('i16')} {raw} to {kind.of('i32')}")
            shift = function.splat(kind.of("i32"), "16")
            bits = function.value(f"shl {kind.of('i32')} {wide}, {shift}")
            return function.value(f"bitcast {kind.of('i32')} {bits} to {kind}")
        return raw


FLOAT32 = Element(torch.float32, "float", 4)
ELEMENTS = {
    element.dtype: element
    for element in (
        FLOAT32,
        Element(torch.bfloat16, "i16", 2),
        Element(torch.float16, "half", 2),
    )
}
"""What kernels can read, by dtype."""
