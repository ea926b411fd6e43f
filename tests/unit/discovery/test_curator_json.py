import json

import pytest

from pliska.discovery.curator_json import decode_instance, drained, encode_instance
from pliska.discovery.errors import InstanceFormatError
from pliska.discovery.instance import Instance, InstanceState

FULL = Instance(
    service="scorer",
    id="s1",
    address="10.0.0.7",
    port=8080,
    metadata={"model": "v3"},
    tags=("gpu", "eu"),
    zone="eu-1",
    weight=5,
)

SPRING = b"""{"name":"payment","id":"3bf1","address":"host-1","port":8004,"sslPort":null,
"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance",
"id":"application-1","name":"payment","metadata":{"build":"7","dotted.name":"x","n":1}},
"registrationTimeUTC":1642376683503,"serviceType":"DYNAMIC",
"uriSpec":{"parts":[{"value":"scheme","variable":true}]}}"""


def decoded(**changes: object) -> Instance:
    document = {**json.loads(encode_instance(FULL, 1)), **changes}
    return decode_instance(json.dumps(document).encode(), "scorer", "s1")


def test_the_document_has_exactly_curators_fields() -> None:
    assert json.loads(encode_instance(FULL, 1_700_000_000_123)) == {
        "name": "scorer",
        "id": "s1",
        "address": "10.0.0.7",
        "port": 8080,
        "sslPort": None,
        "payload": {
            "metadata": {"model": "v3"},
            "tags": ["gpu", "eu"],
            "zone": "eu-1",
            "weight": 5,
            "state": "up",
        },
        "registrationTimeUTC": 1_700_000_000_123,
        "serviceType": "DYNAMIC",
        "uriSpec": None,
        "enabled": True,
    }


@pytest.mark.parametrize("state", InstanceState)
def test_an_instance_comes_back_as_it_was(state: InstanceState) -> None:
    instance = Instance(service="s", id="i", address="h", state=state)
    assert decode_instance(encode_instance(instance, 1), "s", "i") == instance
    assert json.loads(encode_instance(instance, 1))["enabled"] is (state is InstanceState.UP)


def test_an_instance_of_spring_cloud_is_read() -> None:
    instance = decode_instance(SPRING, "payment", "3bf1")
    assert (instance.address, instance.port, instance.weight) == ("host-1", 8004, 1)
    assert instance.metadata == {"build": "7"}
    assert instance.takes_work


def test_what_we_do_not_know_is_kept_when_somebody_elses_instance_is_drained() -> None:
    document = json.loads(drained(SPRING))
    assert document["enabled"] is False
    assert document["uriSpec"] == json.loads(SPRING)["uriSpec"]
    assert decode_instance(drained(SPRING), "payment", "3bf1").state is InstanceState.DRAINING


def test_draining_writes_what_its_owner_would_have_written() -> None:
    assert drained(encode_instance(FULL, 7)) == encode_instance(FULL.drained(), 7)
    assert drained(drained(encode_instance(FULL, 7))) == drained(encode_instance(FULL, 7))


def test_a_port_may_be_the_tls_one_or_missing() -> None:
    assert decoded(port=None, sslPort=443).port == 443
    assert decoded(port=None).port == 0


def test_a_payload_of_another_kind_is_passed_over() -> None:
    for payload in (None, "text", [1], {}):
        assert decoded(payload=payload).weight == 1


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"name":"scorer","id":"s1"}',
        b'{"name":"scorer","id":"other","address":"h"}',
        b'{"name":"scorer","id":"s1","address":7}',
        b'{"name":"scorer","id":"s1","address":"a b"}',
        b'{"name":"scorer","id":"s1","address":"h","port":"80"}',
        b'{"name":"scorer","id":"s1","address":"h","port":70000}',
        b'{"name":"scorer","id":"s1","address":"h","payload":{"weight":0}}',
        b'{"name":"scorer","id":"s1","address":"h","payload":{"tags":"gpu","metadata":7}}',
        b'{"name":"scorer","id":"s1","address":"h","enabled":false,"payload":{"state":"odd"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_instance_is_refused(document: bytes) -> None:
    with pytest.raises(InstanceFormatError, match="scorer/s1"):
        decode_instance(document, "scorer", "s1")


def test_what_is_no_instance_cannot_be_drained() -> None:
    for document in (b"", b"[]", b"7", b"{}"):
        with pytest.raises(InstanceFormatError):
            drained(document)
