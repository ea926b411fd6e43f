"""Commit records that nobody signed, for what only reads them."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from pliska.coordinator.records.attendance import Attendance
from pliska.coordinator.records.commit import GENESIS, CommitRecord, Contribution, cursor_after
from pliska.coordinator.records.data_leases import DataCursor

LIFE = b"1" * 16


def digest_of(version: int) -> bytes:
    """The digest that a version's parameters have in these records."""
    return sha256(f"version {version}".encode()).digest()


def root_of(worker: str, made_for: int) -> bytes:
    """The root of the gradient that a worker made for a round."""
    return sha256(f"{worker} {made_for}".encode()).digest()


def lease_of(worker: str, made_for: int) -> int:
    """The lease of the batch that a worker's gradient for a round is of."""
    return 256 * (made_for - 1) + int("".join(filter(str.isdigit, worker)) or 0)


def contribution(worker: str, number: int, lag: int = 0, **changes: Any) -> Contribution:
    """What became of a gradient that round `number` took."""
    right: dict[str, Any] = {
        "worker": worker,
        "incarnation": LIFE,
        "lease": lease_of(worker, number - lag),
        "payload_root": root_of(worker, number - lag),
        "verdict": "kept",
        "weight": 1.0,
        "score": 1.0,
        "reason": "",
        "lag": lag,
    }
    return Contribution(**{**right, **changes})


def record(
    number: int,
    contributions: Sequence[Contribution] = (),
    after: CommitRecord | None = None,
    **changes: Any,
) -> CommitRecord:
    """The record of round `number`, which made the version of the same number.

    Its data cursor follows that of the record before it, if that is given or there is none.
    """
    cursor = DataCursor() if after is None else after.cursor
    if after is not None or number == 1:
        cursor = cursor_after(cursor, contributions)
    right: dict[str, Any] = {
        "job": "toy",
        "epoch": 7,
        "round": number,
        "version": number,
        "mode": "synchronous",
        "mode_epoch": 0,
        "base_digest": digest_of(number - 1),
        "parameters_digest": digest_of(number),
        "state_digest": bytes(32),
        "rule": "mean",
        "rule_parameters": (),
        "contributions": tuple(contributions),
        "cursor": cursor,
        "learning_rate": 0.1,
        "seed": number,
        "aggregate_digest": bytes(32),
        "attendance": Attendance(),
        "previous": GENESIS,
        "issued_at": 0.0,
    }
    return CommitRecord(**{**right, **changes})


def counted(number: int, workers: Iterable[str]) -> CommitRecord:
    """The record of a synchronous round that counted these workers."""
    return record(number, [contribution(worker, number) for worker in workers])
