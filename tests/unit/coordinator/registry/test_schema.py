"""A version with other tensors takes another's place only where that is asked for."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import Manifest, RefusedError, Tensor
from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.manifest import TensorEntry
from pliska.coordinator.registry.schema import SHOWN_MAX, schema_changes, summary
from pliska.coordinator.registry.tensor import TensorType


def manifest(**tensors: tuple[str, tuple[int, ...]]) -> Manifest:
    entries = tuple(
        TensorEntry(name, TensorType(*kind), digest_of(name.encode()))
        for name, kind in sorted(tensors.items())
    )
    return Manifest("default", "digits", entries, {}, Lineage())


BASE = manifest(w=("F32", (2, 3)), b=("F32", (3,)))


def test_other_numbers_are_no_change() -> None:
    entries = (dataclasses.replace(each, digest=digest_of(b"x")) for each in BASE.tensors)
    assert schema_changes(BASE, dataclasses.replace(BASE, tensors=tuple(entries))) == ()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (manifest(w=("F32", (2, 3))), ("'b' is gone",)),
        (manifest(w=("F32", (2, 3)), b=("F32", (3,)), c=("U8", ())), ("'c' is new",)),
        (manifest(w=("F32", (3, 2)), b=("F32", (3,))), ("'w' is F32[3, 2] instead of F32[2, 3]",)),
        (manifest(w=("F16", (2, 3)), b=("F32", (3,))), ("'w' is F16[2, 3] instead of F32[2, 3]",)),
        (manifest(w=("F32", (2, 3)), B=("F32", (3,))), ("'B' is new", "'b' is gone")),
    ],
)
def test_names_dtypes_and_shapes_count(after: Manifest, told: tuple[str, ...]) -> None:
    assert schema_changes(BASE, after) == told


def test_a_summary_names_the_first_and_counts_the_rest() -> None:
    changes = tuple("abcde")
    assert summary(changes[:SHOWN_MAX]) == "a; b; c"
    assert summary(changes) == "a; b; c; and 2 more"


def test_a_long_name_is_cut() -> None:
    (told,) = schema_changes(
        BASE, manifest(w=("F32", (2, 3)), b=("F32", (3,)), **{"x" * 999: ("U8", ())})
    )
    assert len(told) < 100


@pytest.fixture
def grown(desk: Any, tensors: Callable[[int], Any]) -> Any:
    """Return a registry with `prod` at version 1; version 2 has a tensor more, 3 has not."""
    desk.register(1)
    more = {**tensors(2), "bias": Tensor.of_bytes("F32", (1,), b"\0\0\0\0")}
    desk.registry.register("digits", more, actor="ann")
    desk.register(3)
    desk.promote(1)
    return desk


def test_another_kind_of_model_is_pointed_at_only_where_that_is_asked_for(grown: Any) -> None:
    for more in ({}, {"canary_percent": 5}):
        with pytest.raises(RefusedError, match="'bias' is new; --allow-schema-change") as refused:
            grown.registry.promote(grown.promotion(2, **more))
        assert refused.value.exit_code == 7
    assert grown.pointed_at() == 1
    grown.promote(2, alias="stage")
    grown.registry.promote(grown.promotion(2, allow_schema_change=True))
    assert grown.pointed_at() == 2


def test_a_rollback_goes_back_over_a_change_without_being_asked(grown: Any) -> None:
    grown.registry.promote(grown.promotion(2, allow_schema_change=True))
    grown.registry.rollback(grown.rollback())
    assert grown.pointed_at() == 1


def test_what_is_served_being_damaged_is_said_and_can_be_got_away_from(
    grown: Any, tmp_path: Path
) -> None:
    name = grown.registry.versions("digits")[0].manifest_digest.removeprefix("sha256:")
    (tmp_path / "artifacts/default/manifests" / f"{name}.json").write_bytes(b"{}")
    with pytest.raises(RefusedError, match="cannot be read for comparison"):
        grown.promote(3)
    grown.registry.promote(grown.promotion(3, allow_schema_change=True))
    assert grown.pointed_at() == 3
