"""From LLVM assembly to a function that runs on this CPU.

llvmlite translates; no C compiler is needed. Without llvmlite, or on a CPU
without vectors and fused multiply-add, `host` is None and callers take their
slower way. Called through ctypes, a kernel runs without the interpreter lock.
"""

import ctypes
import logging
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pliska.aggregation.engine.elements import ELEMENTS, Element
from pliska.aggregation.engine.object_cache import ObjectCache, default_cache

logger = logging.getLogger(__name__)

ARGUMENTS = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A compiled function.

    Attributes:
        address: Where its machine code begins.
        call: Calls it through ctypes, without the interpreter lock; pointers are ints.
    """

    address: int
    call: Callable[..., None]

    def __call__(self, *arguments: int) -> None:
        """Call it."""
        self.call(*arguments)


_lock = threading.Lock()
_engines: list[Any] = []
"""Owners of the machine code that has been handed out; it lives as long as the process."""


@dataclass(frozen=True, slots=True, eq=False)
class Host:
    """The CPU that kernels are compiled for; there is one (`host`), equal to itself alone.

    Attributes:
        cpu: Its name.
        features: Its features, as LLVM writes them.
        lanes: float32 values in one vector register.
        registers: Number of vector registers.
        version: Of llvmlite and the LLVM in it.
        half: Whether it widens float16 by itself.
    """

    cpu: str
    features: str
    lanes: int
    registers: int
    version: str
    half: bool

    @property
    def elements(self) -> dict[torch.dtype, Element]:
        """What kernels on this CPU can read, by dtype."""
        return {dtype: element for dtype, element in ELEMENTS.items() if self.reads(dtype)}

    def reads(self, dtype: torch.dtype) -> bool:
        """Return whether kernels on this CPU can read values of this dtype."""
        return dtype in ELEMENTS and (self.half or dtype != torch.float16)


def host_for(rows: Sequence[Tensor]) -> Host | None:
    """Return this machine's CPU if kernels on it can read these rows."""
    if rows[0].device.type != "cpu":
        return None
    found = host()
    return found if found is not None and found.reads(rows[0].dtype) else None


@lru_cache(maxsize=1)
def host() -> Host | None:
    """Return this machine's CPU, or None if there is nothing to compile with or for."""
    try:
        import llvmlite
        from llvmlite import binding
    except ImportError:
        logger.info("llvmlite is not installed: rules run on torch alone, several times slower")
        return None
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    found = binding.get_host_cpu_features()
    machine = platform.machine().lower()
    if machine in {"aarch64", "arm64"}:
        lanes, registers, half = 4, 32, True
    elif found.get("avx512f") and found.get("avx512vl") and found.get("fma"):
        lanes, registers, half = 16, 32, True
    elif found.get("avx2") and found.get("fma"):
        lanes, registers, half = 8, 16, bool(found.get("f16c"))
    else:
        logger.info("no kernels for this CPU: rules run on torch alone: machine=%s", machine)
        return None
    return Host(
        cpu=binding.get_host_cpu_name(),
        features=found.flatten(),
        lanes=lanes,
        registers=registers,
        version=f"{llvmlite.__version__} {binding.llvm_version_info}",
        half=half,
    )


def compiled(
    target: Host,
    symbol: str,
    assembly: str,
    arguments: tuple[str, ...],
    cache: ObjectCache | None = None,
) -> Kernel:
    """Return the function `symbol` of `assembly`, from the cache if it is there.

    Args:
        target: From `host`.
        symbol: The function's name.
        assembly: LLVM assembly of one module.
        arguments: LLVM types of the function's arguments.
        cache: Where to look first and to store; None is this user's.
    """
    store = cache or default_cache()
    key = "\n".join((target.version, target.cpu, target.features, assembly)).encode()
    with _lock:
        code = store.get(key) if store else None
        if code is None:
            code = _object_code(target, symbol, assembly)
            if store:
                store.put(key, code)
        address = _linked(target, symbol, code)
    prototype = ctypes.CFUNCTYPE(None, *(ARGUMENTS[kind] for kind in arguments))
    return Kernel(address, prototype(address))


def _object_code(target: Host, symbol: str, assembly: str) -> bytes:
    from llvmlite import binding

    logger.info("compiling for this CPU, once: kernel=%s cpu=%s", symbol, target.cpu)
    started = time.perf_counter()
    module = binding.parse_assembly(assembly)
    module.verify()
    code: bytes = _machine(target).emit_object(module)
    logger.info("compiled: kernel=%s seconds=%.2f", symbol, time.perf_counter() - started)
    return code


def _linked(target: Host, symbol: str, code: bytes) -> int:
    from llvmlite import binding

    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine(target))
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    address: int = engine.get_function_address(symbol)
    if not address:
        raise ImportError(f"the compiled kernel has no function {symbol!r}")
    return address


def _machine(target: Host) -> Any:
    from llvmlite import binding

    return binding.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, jit=True
    )
