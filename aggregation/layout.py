"""A state dict as one flat vector and back, in an order that everyone agrees on.

Parameters come first, float buffers (running statistics) after them: both are
aggregated, but only the parameters count for distances. Integer counters stay
out of the vector and stay integers. Tied weights are stored once. Faces,
the coordinator's model and workers use it; it aggregates nothing itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn

from pliska.aggregation.errors import LayoutMismatchError, ShapeError

RUNNING_STATISTICS = frozenset({"running_mean", "running_var"})
"""Last parts of names that mark float buffers where only a state dict is at hand."""


class EntryKind(StrEnum):
    """How an entry of a state dict takes part."""

    PARAMETER = "parameter"
    """In the vector, and counts for distances."""
    BUFFER = "buffer"
    """In the vector, after the parameters; does not count for distances."""
    COUNTER = "counter"
    """An integer or boolean tensor: not in the vector."""


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """Where one named tensor lives.

    Attributes:
        name: Key in the state dict.
        shape: Its shape.
        dtype: Its dtype in the state dict; the vector is float32.
        kind: How it takes part.
        offset: Column of its first value, or -1 for a counter. Tied entries
            have the same one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: EntryKind
    offset: int

    @property
    def numel(self) -> int:
        """Number of values."""
        return torch.Size(self.shape).numel()


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Order and place of every entry; equal layouts mean interchangeable vectors.

    Attributes:
        entries: By kind (parameters, buffers, counters), then by name, so that
            the order of the dict does not matter.
        measured: Leading columns that are parameters.
        d: Length of the vector.
    """

    entries: tuple[LayoutEntry, ...]
    measured: int
    d: int

    @classmethod
    def of(
        cls, state: Mapping[str, Tensor], buffers: Collection[str] | None = None
    ) -> "StateLayout":
        """Lay out a state dict, or any dict of named tensors such as gradients.

        Args:
            state: Named tensors. Entries that share memory are taken as tied.
            buffers: Names of the float buffers; None takes those whose last
                part is in `RUNNING_STATISTICS`, since a state dict does not say.

        Raises:
            ShapeError: A value is no real tensor.
        """
        named = (
            {name for name in state if name.rpartition(".")[2] in RUNNING_STATISTICS}
            if buffers is None
            else set(buffers)
        )
        kinds = {name: _kind(name, state[name], name in named) for name in sorted(state)}
        entries: list[LayoutEntry] = []
        ends: dict[EntryKind, int] = {}
        first_by_memory: dict[object, int] = {}
        end = 0
        for kind in EntryKind:
            for name in (name for name in kinds if kinds[name] is kind):
                tensor = state[name]
                offset = -1
                if kind is not EntryKind.COUNTER:
                    offset = first_by_memory.setdefault(_memory(name, tensor), end)
                    end += tensor.numel() if offset == end else 0
                entries.append(LayoutEntry(name, tuple(tensor.shape), tensor.dtype, kind, offset))
            ends[kind] = end
        return cls(tuple(entries), ends[EntryKind.PARAMETER], end)

    @classmethod
    def of_module(cls, module: nn.Module) -> "StateLayout":
        """Lay out a module's state dict; the module knows which entries are buffers."""
        state = module.state_dict()
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        return cls.of(state, buffers=state.keys() - parameters)

    def mismatch(self, state: Mapping[str, Tensor]) -> str | None:
        """Say how `state` differs from this layout in names, shapes or dtypes, or return None."""
        names = {entry.name for entry in self.entries}
        if missing := sorted(names - state.keys()):
            return f"entry {missing[0]!r} is missing"
        if extra := sorted(state.keys() - names):
            return f"entry {extra[0]!r} is unknown"
        for entry in self.entries:
            tensor = state[entry.name]
            if tuple(tensor.shape) != entry.shape:
                return (
                    f"entry {entry.name!r} has shape {tuple(tensor.shape)}, expected {entry.shape}"
                )
            if tensor.dtype != entry.dtype:
                return f"entry {entry.name!r} is {tensor.dtype}, expected {entry.dtype}"
        return None

    def flatten(self, state: Mapping[str, Tensor], out: Tensor | None = None) -> Tensor:
        """Copy the float entries of `state` into one vector.

        Of tied entries the first by name is taken.

        Args:
            state: Must have exactly the entries of this layout.
            out: float32 [d] to write into, such as a row of a `GradientBuffer`;
                None makes a new one on the device of the entries.

        Returns:
            float32 [d]: `out`, or the new vector. float64 entries are rounded.

        Raises:
            LayoutMismatchError: `state` or `out` does not fit.
        """
        if reason := self.mismatch(state):
            raise LayoutMismatchError(f"state dict does not fit the layout: {reason}")
        if out is None:
            device = next(iter(state.values())).device if state else None
            out = torch.empty(self.d, dtype=torch.float32, device=device)
        if out.shape != (self.d,) or out.dtype != torch.float32:
            raise LayoutMismatchError(f"out must be float32 [{self.d}], not {_described(out)}")
        end = 0
        for entry in self.entries:
            if entry.offset == end and entry.numel:
                end += entry.numel
                out[entry.offset : end].copy_(state[entry.name].detach().reshape(-1))
        return out

    def unflatten(
        self, vector: Tensor, counters: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the named tensors that `vector` holds, with their shapes and dtypes.

        float32 entries are views of `vector`; others are converted. Tied names
        share one tensor.

        Args:
            vector: [d], floating.
            counters: Values for the integer entries, by name; entries that it
                lacks are left out of the result.

        Raises:
            LayoutMismatchError: `vector` has another length.
        """
        if vector.shape != (self.d,):
            raise LayoutMismatchError(
                f"vector must have shape ({self.d},), not {_described(vector)}"
            )
        state: dict[str, Tensor] = {}
        by_offset: dict[tuple[int, tuple[int, ...], torch.dtype], Tensor] = {}
        for entry in self.entries:
            if entry.kind is EntryKind.COUNTER:
                if counters is not None and entry.name in counters:
                    state[entry.name] = counters[entry.name]
                continue
            key = (entry.offset, entry.shape, entry.dtype)
            if key not in by_offset:
                part = vector[entry.offset : entry.offset + entry.numel]
                by_offset[key] = part.view(entry.shape).to(entry.dtype)
            state[entry.name] = by_offset[key]
        return state


def _kind(name: str, tensor: Tensor, is_buffer: bool) -> EntryKind:
    if not isinstance(tensor, Tensor):
        raise ShapeError(f"entry {name!r} is a {type(tensor).__name__}, not a tensor")
    if tensor.dtype.is_complex:
        raise ShapeError(f"entry {name!r} is {tensor.dtype}; only real tensors can be aggregated")
    if not tensor.dtype.is_floating_point:
        return EntryKind.COUNTER
    return EntryKind.BUFFER if is_buffer else EntryKind.PARAMETER


def _memory(name: str, tensor: Tensor) -> object:
    """Return what tied entries have in common; entries without memory are never tied."""
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return name
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
