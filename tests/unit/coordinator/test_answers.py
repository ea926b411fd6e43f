"""What the responses of a coordinator mean, and that nonsense is called so."""

import json
from typing import Any

import pytest

from pliska.coordinator import routes
from pliska.coordinator.answers import donors_in, lease_in, version_in
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import ProtocolError
from pliska.coordinator.wire import ClientResponse

DONOR = Endpoint("w1", "10.0.0.7", 4711, "certificate", "ed25519:00")
HEADERS = {
    routes.VERSION: "7",
    routes.EPOCH: "3",
    routes.MODE_EPOCH: "0",
    "etag": f'"{bytes(32).hex()}"',
    routes.FINAL: "no",
}


def response(document: Any = None, **changes: str) -> ClientResponse:
    headers = {**HEADERS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return ClientResponse(200, headers, json.dumps(document).encode())


def test_donors_come_back_as_they_were_named_and_no_more_than_agreed() -> None:
    named = [DONOR.to_fields()] * (routes.DONORS_MAX + 1)
    assert donors_in(response({"donors": named})) == (DONOR,) * routes.DONORS_MAX
    assert donors_in(response({"donors": []})) == ()


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"donors": {}}, {"donors": [1]}, {"donors": [{}]}, {"donors": [{"host": "x"}]}],
)
def test_a_malformed_list_of_donors_is_a_protocol_error(document: Any) -> None:
    with pytest.raises(ProtocolError, match=r"donor|JSON object"):
        donors_in(response(document))


@pytest.mark.parametrize("value", ["x", "-1", str(2**64), ""])
def test_a_malformed_lease_or_version_is_a_protocol_error(value: str) -> None:
    with pytest.raises(ProtocolError):
        lease_in(response(pliska_data_lease=value))
    if not value.lstrip("-").isdigit():
        with pytest.raises(ProtocolError, match="pliska-version"):
            version_in(response(pliska_version=value))


def test_a_missing_header_is_named() -> None:
    with pytest.raises(ProtocolError, match="lacks the header pliska-version"):
        version_in(ClientResponse(200, {}, b""))
