"""What is written as TOML reads back as it was."""

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.trainer.demo.toml_text import toml_text

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=6))
def test_document_reads_back_as_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(document)) == document


def test_no_text_ends_its_quotes() -> None:
    path = 'a"\n[rule]\nname = "mean'
    assert tomllib.loads(toml_text({"data": {"source": path}})) == {"data": {"source": path}}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\udcff"])
def test_value_that_toml_or_a_job_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"no place in a job file|surrogates not allowed"):
        toml_text({"a": {"b": value}})


def test_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType has no place"):
        toml_text({"a": None})  # type: ignore[dict-item]
