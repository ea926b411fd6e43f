"""A manifest lays tensors out without gaps, and its digest names that layout."""

from dataclasses import replace

import pytest

from pliska.coordinator.wire import MalformedError, Manifest, TensorEntry, TooLargeError
from pliska.coordinator.wire.limits import DIMENSION_MAX

MANIFEST = Manifest.of([("w", "float32", (2, 3)), ("b", "bfloat16", (3,)), ("s", "float64", ())])


def test_tensors_lie_one_behind_the_other() -> None:
    assert MANIFEST.entries == (
        TensorEntry("w", "float32", (2, 3), 0, 24),
        TensorEntry("b", "bfloat16", (3,), 24, 6),
        TensorEntry("s", "float64", (), 30, 8),
    )
    assert MANIFEST.dimension == 10


def test_canonical_bytes_come_back_and_the_digest_never_changes() -> None:
    again = Manifest.from_bytes(MANIFEST.to_bytes())
    assert again == MANIFEST
    assert again.digest == MANIFEST.digest
    assert (
        MANIFEST.digest.hex() == "a9a8cdc705c30433daacf8c3cfdcbd1b133b0f179f4723c8ac39ebcf5d9d9d9e"
    )


@pytest.mark.parametrize(
    "tensors",
    [
        [("w", "float32", (3, 2)), ("b", "bfloat16", (3,)), ("s", "float64", ())],
        [("v", "float32", (2, 3)), ("b", "bfloat16", (3,)), ("s", "float64", ())],
        [("w", "float32", (2, 3)), ("b", "float16", (3,)), ("s", "float64", ())],
        [("b", "bfloat16", (3,)), ("w", "float32", (2, 3)), ("s", "float64", ())],
    ],
)
def test_another_layout_has_another_digest(tensors) -> None:
    assert Manifest.of(tensors).digest != MANIFEST.digest


@pytest.mark.parametrize("change", [{"offset": 4}, {"nbytes": 20}, {"shape": (2, 2)}])
def test_an_entry_that_contradicts_itself_is_refused(change) -> None:
    entries = (replace(MANIFEST.entries[0], **change), *MANIFEST.entries[1:])
    with pytest.raises(MalformedError, match="'w'"):
        Manifest(entries)


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(MalformedError, match="same name"):
        Manifest.of([("w", "float32", (1,)), ("w", "float32", (1,))])


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(MalformedError, match="dtype 'int64'"):
        Manifest.of([("w", "int64", (1,))])


def test_the_dimension_is_bounded() -> None:
    assert Manifest.of([("w", "float16", (DIMENSION_MAX,))]).dimension == DIMENSION_MAX
    with pytest.raises(TooLargeError):
        Manifest.of([("w", "float16", (DIMENSION_MAX,)), ("b", "float16", (1,))])
    with pytest.raises(TooLargeError):
        Manifest.from_bytes(b"x" * (16 * 1024 * 1024 + 1))


def test_a_huge_shape_in_received_bytes_is_refused_without_memory() -> None:
    huge = (2**63,) * 32
    entry = TensorEntry("w", "float32", huge, 0, 0)
    with pytest.raises(MalformedError):
        Manifest((entry,))


def test_an_empty_manifest_cannot_be_sent() -> None:
    with pytest.raises(MalformedError):
        Manifest(()).to_bytes()
