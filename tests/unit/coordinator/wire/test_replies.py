"""Replies survive JSON, and hostile JSON is refused without a traceback."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.wire import (
    HTTP_STATUS,
    BadSignatureError,
    MalformedError,
    Reply,
    ReplyCode,
    TooLargeError,
)
from pliska.coordinator.wire.limits import REASON_CHARACTERS_MAX, REPLY_BYTES_MAX

COUNTS = st.none() | st.integers(0, 2**64 - 1)
REPLIES = st.builds(
    Reply,
    code=st.sampled_from(ReplyCode),
    reason=st.text(max_size=50),
    epoch=COUNTS,
    round=COUNTS,
    version=COUNTS,
    lease=COUNTS,
    digest=st.none() | st.binary(min_size=32, max_size=32),
    mode=st.none() | st.just("synchronous"),
    leader=st.none() | st.text(max_size=30),
    retry_after_s=st.none() | st.floats(0, 3600),
    credits=COUNTS,
    receipt=st.none() | st.binary(max_size=300),
)


@given(REPLIES)
def test_a_reply_survives_json(reply: Reply) -> None:
    assert Reply.from_json(reply.to_json()) == reply


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["code", "epoch", "digest", "receipt", "leader", "retry_after_s"]),
                inner,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_other_bytes_are_refused_as_malformed(data: bytes) -> None:
    with suppress(MalformedError):
        Reply.from_json(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 60_000,
        '{"reason": "no code"}',
        '{"code": "MAYBE"}',
        '{"code": []}',
        '{"code": "BUSY", "epoch": -1}',
        '{"code": "BUSY", "epoch": 18446744073709551616}',
        '{"code": "BUSY", "epoch": true}',
        '{"code": "STALE_LEASE", "lease": -1}',
        '{"code": "STALE_LEASE", "lease": "1"}',
        '{"code": "BUSY", "epoch": 1.5}',
        '{"code": "BUSY", "credits": ' + "9" * 5000 + "}",
        '{"code": "BUSY", "retry_after_s": NaN}',
        '{"code": "BUSY", "retry_after_s": 1e300}',
        '{"code": "BUSY", "retry_after_s": "1"}',
        '{"code": "BUSY", "digest": "zz"}',
        '{"code": "BUSY", "digest": "00"}',
        '{"code": "BUSY", "receipt": "%%"}',
        '{"code": "BUSY", "receipt": "é"}',
        '{"code": "BUSY", "leader": 5}',
        '{"code": "BUSY", "reason": "' + "x" * (REASON_CHARACTERS_MAX + 1) + '"}',
    ],
)
def test_what_is_no_reply_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        Reply.from_json(text.encode())


def test_a_reply_of_a_later_protocol_may_say_more() -> None:
    assert Reply.from_json(b'{"code": "BUSY", "mood": "fine"}').code is ReplyCode.BUSY


def test_a_reply_is_bounded() -> None:
    padding = b" " * (REPLY_BYTES_MAX - len(b'{"code":"BUSY"}'))
    Reply.from_json(b'{"code":"BUSY"}' + padding)
    with pytest.raises(TooLargeError):
        Reply.from_json(b'{"code":"BUSY"} ' + padding)


def test_a_long_reason_is_cut_by_its_sender() -> None:
    reply = Reply(code=ReplyCode.SCHEMA, reason="é" * 9000)
    assert Reply.from_json(reply.to_json()).reason == "é" * REASON_CHARACTERS_MAX


def test_every_code_of_the_protocol_has_an_http_status() -> None:
    assert list(HTTP_STATUS) == list(ReplyCode)
    expected = """
        ACCEPTED DUPLICATE COMMITTED STALE_EPOCH STALE_ROUND STALE_MODE STALE_LEASE FUTURE_ROUND
        WRONG_BASE NOT_MEMBER OLD_INCARNATION BAD_SIG KEY_REVOKED QUARANTINED REPLAY EQUIVOCATION
        SCHEMA DIGEST NONFINITE TOO_LARGE BUSY
    """
    assert [code.value for code in ReplyCode] == expected.split()
    assert Reply(code=ReplyCode.TOO_LARGE).http_status == 413


def test_a_refusal_becomes_its_reply() -> None:
    reply = Reply.to_refusal(BadSignatureError("the signature does not fit"))
    assert (reply.code, reply.reason) == (ReplyCode.BAD_SIG, "the signature does not fit")
