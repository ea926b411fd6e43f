from dataclasses import replace

import pytest

from pliska.discovery.errors import ServiceUsageError
from pliska.discovery.instance import (
    ADDRESS_CHARACTERS_MAX,
    ID_CHARACTERS_MAX,
    METADATA_ENTRIES_MAX,
    METADATA_VALUE_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    PORT_MAX,
    TAGS_MAX,
    WEIGHT_MAX,
    Instance,
    InstanceState,
)

PLAIN = Instance(service="scorer", id="s1", address="host-1", port=80)

AT_LIMIT: list[dict[str, object]] = [
    {"service": "x" * NAME_CHARACTERS_MAX},
    {"id": "x" * ID_CHARACTERS_MAX},
    {"address": "x" * ADDRESS_CHARACTERS_MAX},
    {"port": 0},
    {"port": PORT_MAX},
    {"weight": 1},
    {"weight": WEIGHT_MAX},
    {"tags": ("x",) * TAGS_MAX},
    {"metadata": {f"k{n}": "" for n in range(METADATA_ENTRIES_MAX)}},
    {"metadata": {"k": "x" * METADATA_VALUE_CHARACTERS_MAX}},
]
BEYOND: list[dict[str, object]] = [
    {"service": "x" * (NAME_CHARACTERS_MAX + 1)},
    {"service": ""},
    {"service": "a/b"},
    {"service": ".."},
    {"id": "x" * (ID_CHARACTERS_MAX + 1)},
    {"id": "a b"},
    {"id": "../x"},
    {"address": "x" * (ADDRESS_CHARACTERS_MAX + 1)},
    {"address": ""},
    {"address": "a\nb"},
    {"address": "http://x"},
    {"port": -1},
    {"port": PORT_MAX + 1},
    {"weight": 0},
    {"weight": WEIGHT_MAX + 1},
    {"zone": "a\tb"},
    {"tags": ("x",) * (TAGS_MAX + 1)},
    {"tags": ("",)},
    {"metadata": {f"k{n}": "" for n in range(METADATA_ENTRIES_MAX + 1)}},
    {"metadata": {"k": "x" * (METADATA_VALUE_CHARACTERS_MAX + 1)}},
    {"metadata": {"a.b": ""}},
    {"metadata": {"k": "two\nlines"}},
]


@pytest.mark.parametrize("fields", AT_LIMIT)
def test_what_is_at_the_limit_is_taken(fields: dict[str, object]) -> None:
    replace(PLAIN, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", BEYOND)
def test_what_is_beyond_a_limit_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ServiceUsageError):
        replace(PLAIN, **fields)  # type: ignore[arg-type]


def test_the_endpoint_is_what_one_connects_to() -> None:
    assert PLAIN.endpoint == "host-1:80"
    assert replace(PLAIN, address="::1").endpoint == "[::1]:80"
    assert replace(PLAIN, port=0).endpoint == "host-1"


def test_only_an_instance_that_is_up_takes_work() -> None:
    assert [replace(PLAIN, state=state).takes_work for state in InstanceState] == [
        True,
        False,
        False,
    ]
    assert PLAIN.drained() == replace(PLAIN, state=InstanceState.DRAINING)
