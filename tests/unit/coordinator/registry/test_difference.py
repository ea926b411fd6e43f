"""A difference says what changed and by how much."""

import dataclasses
import math
import struct

import numpy as np
import pytest

from pliska.coordinator.registry import Lineage, Reference, Tensor
from pliska.coordinator.registry.difference import BLOCK_ELEMENTS, Distance, difference


def tensor(dtype, array):
    return Tensor.of_bytes(dtype, array.shape, array.tobytes())


def compare(desk, before, after, lineages=(None, None)):
    for tensors, lineage in zip((before, after), lineages, strict=True):
        desk.registry.register("m", tensors, actor="ann", lineage=lineage)
    found = [desk.registry.resolve(Reference.parse(f"m:{n}")) for n in (1, 2)]
    manifests = [desk.registry.manifest(record) for record in found]
    return difference(*manifests, desk.registry.namespace.blobs.read_tensor)


def test_tensors_come_go_change_and_stay(desk) -> None:
    one, two = (tensor("F32", np.array([n], "<f4")) for n in (1, 2))
    found = compare(desk, {"a": one, "b": one, "c": one}, {"b": two, "c": one, "d": one})
    assert [entry.name for entry in found.added] == ["d"]
    assert [entry.name for entry in found.removed] == ["a"]
    assert [each.name for each in found.changed] == ["b"]
    assert found.same == 1
    assert not found.is_empty


def test_distances_are_those_of_the_numbers(desk) -> None:
    found = compare(
        desk,
        {"w": tensor("F32", np.array([3, 4, 0], "<f4"))},
        {"w": tensor("F32", np.array([3, 4, 5], "<f4"))},
    )
    assert found.changed[0].distance == Distance(5.0, 1.0, 5.0, pytest.approx(25 / 5 / 50**0.5))


@pytest.mark.parametrize(
    ("dtype", "before", "after"),
    [
        ("F64", struct.pack("<d", 1.5), struct.pack("<d", -1.5)),
        ("F16", np.float16(1.5).tobytes(), np.float16(-1.5).tobytes()),
        ("BF16", b"\xc0\x3f", b"\xc0\xbf"),
        ("I8", b"\x01", b"\xfe"),
    ],
)
def test_numbers_of_each_kind_are_read_as_what_they_are(desk, dtype, before, after) -> None:
    found = compare(
        desk,
        {"w": Tensor.of_bytes(dtype, (1,), before)},
        {"w": Tensor.of_bytes(dtype, (1,), after)},
    )
    assert found.changed[0].distance.l2 == 3.0
    assert found.changed[0].distance.cosine == -1.0


def test_a_tensor_larger_than_a_block_is_compared_whole(desk) -> None:
    before = np.zeros(BLOCK_ELEMENTS + 1, "<f4")
    after = before.copy()
    after[-1] = 7
    found = compare(desk, {"w": tensor("F32", before)}, {"w": tensor("F32", after)})
    assert found.changed[0].distance == Distance(7.0, math.inf, 7.0, None)


@pytest.mark.parametrize(
    "after", [Tensor.of_bytes("F32", (1, 1), b"\0\0\0\0"), Tensor.of_bytes("F8_E4M3", (1,), b"\1")]
)
def test_what_cannot_be_compared_is_changed_without_a_distance(desk, after) -> None:
    before = Tensor.of_bytes("F8_E4M3", (1,), b"\0")
    assert compare(desk, {"w": before}, {"w": after}).changed[0].distance is None


def test_metrics_and_lineage_that_differ_are_named(desk) -> None:
    one = Lineage(metrics={"accuracy": 0.9, "loss": 1.0})
    two = dataclasses.replace(one, metrics={"accuracy": 0.8, "loss": 1.0, "auc": 0.5}, parent=1)
    w, v = (tensor("F32", np.array([n], "<f4")) for n in (1, 2))
    found = compare(desk, {"w": w}, {"w": v}, (one, two))
    assert found.metrics == {"accuracy": (0.9, 0.8), "auc": (None, 0.5)}
    assert found.lineage == {"parent": (None, 1)}
