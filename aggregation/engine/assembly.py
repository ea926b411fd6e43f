"""A small writer of LLVM assembly: typed enough for our kernels, and nothing more.

Text rather than an object model: it is fast to write, it is what the object
cache is keyed by, and it needs no llvmlite before there is something to
compile. The kernels use it.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Value = str
"""An SSA name or a literal, without its type."""

PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector type: `count` elements of `element` ("float", "double", "i32", ...)."""

    count: int
    element: str

    def __str__(self) -> str:
        return f"<{self.count} x {self.element}>"

    def of(self, element: str) -> "Lanes":
        """Return the type of as many lanes of another element."""
        return Lanes(self.count, element)

    @property
    def zero(self) -> Value:
        """All lanes zero."""
        return "zeroinitializer"


class Function:
    """One function under construction.

    Attributes:
        name: Symbol.
        parameters: LLVM type by name; pointers are taken not to alias.
    """

    def __init__(self, name: str, parameters: dict[str, str]) -> None:
        self.name = name
        self.parameters = parameters
        self._lines: list[str] = []
        self._declarations: dict[str, None] = {}
        self._count = 0
        self._block = "entry"

    def text(self) -> str:
        """Return a module of this function alone."""
        return module([self])

    @property
    def definition(self) -> str:
        """The function itself, without what it calls."""
        parameters = ", ".join(
            f"{kind} noalias %{name}" if kind == "ptr" else f"{kind} %{name}"
            for name, kind in self.parameters.items()
        )
        body = "\n".join(self._lines)
        head = f"define void @{self.name}({parameters}) nounwind {{\nentry:\n"
        return f"{head}{body}\n  ret void\n}}\n"

    @property
    def declarations(self) -> tuple[str, ...]:
        """The intrinsics it calls."""
        return tuple(self._declarations)

    def value(self, expression: str) -> Value:
        """Append an instruction and return its result."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {expression}")
        return name

    def effect(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def call(self, result: object, symbol: str, *arguments: tuple[object, Value]) -> Value:
        """Call the intrinsic `symbol` on (type, value) pairs."""
        kinds = ", ".join(str(kind) for kind, _ in arguments)
        self._declarations[f"declare {result} @{symbol}({kinds})"] = None
        given = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.value(f"call {result} @{symbol}({given})")

    def run(self, other: "Function", *arguments: Value | int) -> None:
        """Call another function of the same module."""
        kinds = other.parameters.values()
        given = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, arguments, strict=True))
        self.effect(f"call void @{other.name}({given})")

    def prefetch(self, pointer: Value, locality: int) -> None:
        """Ask for the cache line of `pointer`; 3 is the nearest cache."""
        self._declarations[PREFETCH] = None
        self.effect(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {locality}, i32 1)")

    def add(self, a: Value, b: Value | int) -> Value:
        """Add two i64."""
        return self.value(f"add nsw i64 {a}, {b}")

    def multiply(self, a: Value, b: Value | int) -> Value:
        """Multiply two i64."""
        return self.value(f"mul nsw i64 {a}, {b}")

    def minimum_index(self, a: Value, b: Value) -> Value:
        """Return the smaller of two i64."""
        return self.call("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def at(self, base: Value, index: Value | int, element: str) -> Value:
        """Return the address of base[index]."""
        return self.value(f"getelementptr {element}, ptr {base}, i64 {index}")

    def load(self, kind: Lanes | str, pointer: Value, align: int) -> Value:
        """Load from memory that is aligned to `align` bytes."""
        return self.value(f"load {kind}, ptr {pointer}, align {align}")

    def store(self, kind: Lanes | str, value: Value, pointer: Value, align: int) -> None:
        """Store to memory that is aligned to `align` bytes."""
        self.effect(f"store {kind} {value}, ptr {pointer}, align {align}")

    def pointer_at(self, table: Value, index: Value | int) -> Value:
        """Return table[index] of a table of pointers."""
        return self.load("ptr", self.at(table, index, "ptr"), 8)

    def splat(self, kind: Lanes, value: Value) -> Value:
        """Return a vector whose lanes all are the scalar `value`."""
        first = self.value(f"insertelement {kind} poison, {kind.element} {value}, i32 0")
        return self.value(
            f"shufflevector {kind} {first}, {kind} poison, <{kind.count} x i32> zeroinitializer"
        )

    def fma(self, kind: Lanes, a: Value, b: Value, c: Value) -> Value:
        """Return a * b + c, rounded once."""
        symbol = f"llvm.fma.v{kind.count}{'f32' if kind.element == 'float' else 'f64'}"
        return self.call(kind, symbol, (kind, a), (kind, b), (kind, c))

    def minimum(self, kind: Lanes, a: Value, b: Value) -> Value:
        """Return the lanes' minima; no lane may be NaN."""
        smaller = self.value(f"fcmp nnan nsz olt {kind} {a}, {b}")
        return self._select(kind, smaller, a, b)

    def maximum(self, kind: Lanes, a: Value, b: Value) -> Value:
        """Return the lanes' maxima; no lane may be NaN."""
        larger = self.value(f"fcmp nnan nsz ogt {kind} {a}, {b}")
        return self._select(kind, larger, a, b)

    def _select(self, kind: Lanes, condition: Value, a: Value, b: Value) -> Value:
        choose = f"select nnan nsz {kind.of('i1')} {condition}"
        return self.value(f"{choose}, {kind} {a}, {kind} {b}")

    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: int,
        body: Callable[[Value, list[Value]], Sequence[Value]],
        carried: Sequence[tuple[object, Value]] = (),
    ) -> list[Value]:
        """Append `for i in range(start, stop, step)`.

        Args:
            start: First i64.
            stop: The loop ends before it.
            step: Added each time.
            body: Gets i and the carried values; returns their next values.
            carried: (type, first value) of what one pass hands to the next.

        Returns:
            The carried values after the last pass.
        """
        self._count += 1
        label, before = f"loop{self._count}", self._block
        phis = [f"%{label}.c{i}" for i in range(len(carried))]
        self._lines += [f"  br label %{label}.head", f"{label}.head:"]
        head = len(self._lines)
        self._lines += [
            f"  %{label}.more = icmp slt i64 %{label}.i, {stop}",
            f"  br i1 %{label}.more, label %{label}.body, label %{label}.end",
            f"{label}.body:",
        ]
        self._block = f"{label}.body"
        after = body(f"%{label}.i", list(phis))
        step_on = self.add(f"%{label}.i", step)
        last = self._block
        self._lines += [f"  br label %{label}.head", f"{label}.end:"]
        self._lines[head:head] = [
            f"  %{label}.i = phi i64 [ {start}, %{before} ], [ {step_on}, %{last} ]"
        ] + [
            f"  {phi} = phi {kind} [ {first}, %{before} ], [ {following}, %{last} ]"
            for phi, (kind, first), following in zip(phis, carried, after, strict=True)
        ]
        self._block = f"{label}.end"
        return phis


def module(functions: Sequence[Function]) -> str:
    """Return functions, which may call each other, and what they call as one module."""
    declarations = dict.fromkeys(line for each in functions for line in each.declarations)
    return "\n".join([*(each.definition for each in functions), *declarations]) + "\n"


def float_literal(value: float) -> Value:
    """Return `value` as LLVM writes float and double constants: the bits of a double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
