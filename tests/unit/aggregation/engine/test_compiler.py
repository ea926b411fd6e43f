import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pliska.aggregation.engine import compiler
from pliska.aggregation.engine.assembly import Function, Lanes
from pliska.aggregation.engine.compiler import Host, compiled, host_for
from pliska.aggregation.engine.object_cache import ObjectCache

FOUR = Lanes(4, "float")


def doubling() -> str:
    function = Function("twice", {"values": "ptr", "count": "i64"})

    def body(at: str, _: list[str]) -> list[str]:
        pointer = function.at("%values", at, "float")
        value = function.load(FOUR, pointer, 4)
        function.store(FOUR, function.value(f"fadd {FOUR} {value}, {value}"), pointer, 4)
        return []

    function.loop(0, "%count", 4, body)
    return function.text()


def run(target: Host, cache: ObjectCache) -> list[float]:
    kernel = compiled(target, "twice", doubling(), ("ptr", "i64"), cache)
    values = np.arange(8, dtype=np.float32)
    kernel(values.ctypes.data, 8)
    return values.tolist()


def test_kernel_runs_and_says_why_first_use_waits(
    target: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ObjectCache(tmp_path / "kernels")
    with caplog.at_level(logging.INFO):
        assert run(target, cache) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert "compiling for this CPU, once: kernel=twice" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert run(target, cache) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert "compiling" not in caplog.text


def test_damaged_code_on_disk_is_compiled_anew(
    target: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ObjectCache(tmp_path / "kernels")
    run(target, cache)
    stored = next(cache.directory.iterdir())
    damaged = bytearray(stored.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    stored.write_bytes(damaged)
    with caplog.at_level(logging.INFO):
        assert run(target, cache) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert "damaged" in caplog.text
    assert bytes(damaged) != stored.read_bytes()


def test_code_for_another_cpu_is_another_entry(target: Host, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "kernels")
    run(target, cache)
    other = Host(target.cpu, target.features, target.lanes, target.registers, "other version", True)
    run(other, cache)
    assert len(list(cache.directory.iterdir())) == 2


def test_kernels_read_only_cpu_rows_of_known_dtypes(target: Host) -> None:
    assert host_for([torch.zeros(1)]) == target
    assert host_for([torch.zeros(1, dtype=torch.bfloat16)]) == target
    assert host_for([torch.zeros(1, dtype=torch.float64)]) is None
    assert host_for([torch.zeros(1, device="meta")]) is None


def test_float16_is_left_to_torch_where_the_cpu_cannot_widen_it(target: Host) -> None:
    old = Host(target.cpu, target.features, target.lanes, target.registers, "1", half=False)
    assert torch.float16 not in old.elements
    assert torch.bfloat16 in old.elements


def test_rules_work_without_llvmlite(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["llvmlite"] = None
import torch
from pliska.aggregation import MultiKrum, TrimmedMean
from pliska.aggregation.engine.compiler import host
assert host() is None
rows = torch.randn(9, 200_003, generator=torch.Generator().manual_seed(1))
expected = rows.double().sort(dim=0).values[2:7].mean(dim=0).float()
assert torch.equal(TrimmedMean(f=2)(rows).vector, expected)
assert MultiKrum(f=2)(rows).vector.isfinite().all()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_host_is_asked_for_once() -> None:
    assert compiler.host() is compiler.host()
