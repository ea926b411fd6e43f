import json
from collections.abc import Callable

import pytest

from pliska.coordinator.registry import (
    IntegrityError,
    VersionRecord,
)
from pliska.coordinator.registry.versions import State


def test_a_record_is_read_back(version_record: Callable[..., VersionRecord]) -> None:
    for state in State:
        record = version_record(4, state, parent=2)
        assert VersionRecord.from_bytes(record.to_bytes(), "it") == record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "pliska-version-2"),
        ("version", 0),
        ("version", "1"),
        ("state", "GONE"),
        ("state", "PENDING"),
        ("content_id", "md5:1"),
        ("manifest_digest", None),
        ("parent", 4),
        ("parent", 5),
        ("nbytes", -1),
        ("signatures", "x"),
        ("more", 1),
    ],
)
def test_a_malformed_record_is_refused(
    version_record: Callable[..., VersionRecord], field: str, value: object
) -> None:
    fields = {**json.loads(version_record(4).to_bytes()), field: value}
    content = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(IntegrityError):
        VersionRecord.from_bytes(content, "it")
