"""Other programs find our services: Curator's layout on ZooKeeper, the catalog on Consul."""

import http.client
import json
import uuid
from contextlib import closing
from typing import Any

from kazoo.client import KazooClient

from pliska.discovery import Instance, ServiceView, register
from pliska.locks import connect
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer


def scorer(service: str) -> Instance:
    return Instance(
        service=service,
        id="s1",
        address="10.0.0.7",
        port=8080,
        metadata={"model": "v3"},
        tags=("gpu",),
        zone="eu-1",
        weight=3,
    )


def test_an_instance_on_zookeeper_is_an_ephemeral_node_in_curators_json(
    zookeeper: ZookeeperServer,
) -> None:
    address = zookeeper.fresh_address()
    root = "/" + address.split("/", 3)[3]
    client = KazooClient(zookeeper.host_port)
    client.start()
    with closing(connect(address)) as backend, register(backend, scorer("scorer"), lease_s=5):
        data, stat = client.get(f"{root}/services/scorer/s1")
        document = json.loads(data)
        assert stat.ephemeralOwner != 0
        assert (document["name"], document["id"], document["address"], document["port"]) == (
            "scorer",
            "s1",
            "10.0.0.7",
            8080,
        )
        assert (document["serviceType"], document["enabled"]) == ("DYNAMIC", True)
        assert document["payload"]["metadata"] == {"model": "v3"}
        foreign = {**document, "id": "java", "payload": None, "uriSpec": None}
        client.create(f"{root}/services/scorer/java", json.dumps(foreign).encode(), ephemeral=True)
        with ServiceView(backend, "scorer") as view:
            snapshot = view.wait_until_known(10)
            assert snapshot is not None
            assert [each.id for each in snapshot.instances] == ["java", "s1"]
    client.stop()
    client.close()


def passing(consul: ConsulServer, service: str) -> list[dict[str, Any]]:
    """What Consul's own tools take for usable."""
    with closing(http.client.HTTPConnection(consul.host_port, timeout=5)) as connection:
        connection.request("GET", f"/v1/health/service/{service}?passing=1")
        found: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        return found


def test_an_instance_on_consul_is_a_service_with_a_passing_check(consul: ConsulServer) -> None:
    service = f"scorer-{uuid.uuid4().hex[:8]}"
    with (
        closing(connect(consul.fresh_address())) as backend,
        register(backend, scorer(service), lease_s=5) as registration,
    ):
        (found,) = passing(consul, service)
        assert (found["Service"]["Address"], found["Service"]["Port"]) == ("10.0.0.7", 8080)
        assert found["Service"]["Tags"] == ["gpu"]
        assert found["Service"]["Meta"] == {"model": "v3", "zone": "eu-1"}
        assert found["Service"]["Weights"]["Passing"] == 3
        registration.drain()
        assert registration.wait_until_registered(10)
        assert passing(consul, service) == []
    assert passing(consul, service) == []
