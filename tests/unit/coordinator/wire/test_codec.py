"""What a codec encodes it decodes, in place where it can, and never out of bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.wire import (
    CodecSpec,
    Float32Codec,
    MalformedError,
    NonFiniteError,
    SchemaError,
    check_finite,
    codec_named,
)

CODEC = Float32Codec()


@given(st.lists(st.floats(width=32), max_size=50))
def test_float32_comes_back_bit_for_bit(numbers: list[float]) -> None:
    vector = np.array(numbers, dtype=np.float32)
    payload = CODEC.encode(vector)
    assert len(payload) == CODEC.encoded_bytes(vector.size)
    row = np.empty_like(vector)
    CODEC.decode_into(payload, row)
    assert row.tobytes() == vector.tobytes()


def test_the_wire_is_little_endian() -> None:
    assert bytes(CODEC.encode(np.array([1.0], np.float32))) == b"\0\0\x80?"


def test_encoding_and_landing_share_the_callers_memory() -> None:
    vector = np.zeros(8, np.float32)
    assert np.shares_memory(np.frombuffer(CODEC.encode(vector), np.uint8), vector)
    landing = CODEC.landing(vector)
    landing[:4] = b"\0\0\x80?"
    CODEC.decode_into(landing, vector)
    assert vector[0] == 1.0


def test_a_row_with_gaps_is_decoded_by_copy() -> None:
    row = np.zeros((4, 2), np.float32)[:, 0]
    landing = CODEC.landing(row)
    landing[:] = np.arange(4, dtype=np.float32).tobytes()
    CODEC.decode_into(landing, row)
    assert row.tolist() == [0, 1, 2, 3]
    assert bytes(CODEC.encode(row)) == bytes(landing)


@pytest.mark.parametrize("size", [11, 13, 0])
def test_a_payload_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(SchemaError, match="12 bytes"):
        CODEC.decode_into(bytes(size), np.zeros(3, np.float32))


@pytest.mark.parametrize("vector", [np.zeros(3), np.zeros((2, 2), np.float32)])
def test_only_one_float32_vector_can_be_encoded(vector) -> None:
    with pytest.raises(MalformedError):
        CODEC.encode(vector)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 65_535, 65_536, 199_999])
def test_the_first_number_that_is_not_finite_is_named(value: float, index: int) -> None:
    row = np.zeros(200_000, np.float32)
    check_finite(row)
    row[index:] = value
    with pytest.raises(NonFiniteError) as refusal:
        check_finite(row)
    assert refusal.value.index == index


def test_extreme_finite_numbers_pass() -> None:
    check_finite(np.array([3.4e38, -3.4e38, 1e-45, -0.0], np.float32))


def test_a_codec_is_found_by_id_and_parameters() -> None:
    assert codec_named("float32").id == "float32"
    with pytest.raises(SchemaError, match="'int9'"):
        codec_named("int9")
    with pytest.raises(SchemaError, match="no parameters"):
        codec_named("float32", [("block", "256")])


@pytest.mark.parametrize("params", [(("b", "1"), ("a", "1")), (("a", "1"), ("a", "2"))])
def test_parameters_are_sorted_and_named_once(params) -> None:
    with pytest.raises(MalformedError):
        CodecSpec("top-k", params)
