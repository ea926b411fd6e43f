"""What a worker gives to others that join, over real sockets."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator import routes
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.replication.donor_client import DonorClient, DonorRefusedError
from pliska.coordinator.replication.parameter_donor import ParameterDonor
from pliska.coordinator.wire import Download, NoDonorError, Resource, Signer, hash_tree
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.tls import client_context, self_signed, server_context
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import connect

PARAMETERS = memoryview(np.arange(2_500_000, dtype="<f4")).cast("B")
ROOT = hash_tree.root(hash_tree.leaves(PARAMETERS), len(PARAMETERS))
OTHER = memoryview(np.ones(2_500_000, dtype="<f4")).cast("B")


def resource(root: bytes = ROOT) -> Resource:
    path = f"{routes.PARAMETERS}?{routes.VERSION_NUMBER}=3&{routes.DIGEST}={root.hex()}"
    return Resource(path, root, len(PARAMETERS))


class Street:
    """Workers that give, and those that visit them."""

    def __init__(self, exits: contextlib.AsyncExitStack) -> None:
        self.keyring = Keyring(connect("memory:"))
        self._exits = exits
        self._visitors = 0

    async def donor(self, name: str = "w1") -> tuple[ParameterDonor, Endpoint]:
        donor = ParameterDonor("toy", self.keyring)
        certificate = self_signed(["127.0.0.1"], datetime.now(UTC))
        server = HttpServer(donor.handle, server_context(certificate))
        await server.start()
        self._exits.push_async_callback(server.close)
        return donor, Endpoint(name, "127.0.0.1", server.port, certificate.certificate_pem, "")

    def visitor(
        self, endpoint: Endpoint, job: str = "toy", *, is_enrolled: bool = True
    ) -> DonorClient:
        key = Ed25519PrivateKey.generate()
        self._visitors += 1
        if is_enrolled:
            self.keyring.enroll(f"v{self._visitors}", Role.WORKER, public_bytes(key))
        client = DonorClient(endpoint, job, Signer(key, key_id(public_bytes(key))))
        self._exits.push_async_callback(client.close)
        return client


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    async with contextlib.AsyncExitStack() as exits:
        yield Street(exits)


async def fetched(*clients: DonorClient, root: bytes = ROOT) -> tuple[bytes, dict[str, int]]:
    into = bytearray(len(PARAMETERS))
    download = Download(resource(root), memoryview(into))
    await download.fetch(clients)
    return bytes(into), download.given


async def test_a_worker_gives_what_it_holds_in_checked_parts(street: Street) -> None:
    donor, endpoint = await street.donor()
    donor.hold(ROOT, PARAMETERS)
    content, given = await fetched(street.visitor(endpoint))
    assert content == PARAMETERS
    assert given == {"w1": len(PARAMETERS)}


async def test_two_workers_share_the_giving(street: Street) -> None:
    clients = []
    for name in ("w1", "w2"):
        donor, endpoint = await street.donor(name)
        donor.hold(ROOT, PARAMETERS)
        clients.append(street.visitor(endpoint))
    content, given = await fetched(*clients)
    assert content == PARAMETERS
    assert sum(given.values()) == len(PARAMETERS)


async def test_a_worker_that_gives_wrong_bytes_costs_a_span_and_no_more(street: Street) -> None:
    liar, at_liar = await street.donor("liar")
    liar.hold(ROOT, OTHER)
    donor, at_donor = await street.donor("w1")
    donor.hold(ROOT, PARAMETERS)
    with pytest.raises(NoDonorError, match="liar"):
        await fetched(street.visitor(at_liar))
    content, given = await fetched(street.visitor(at_liar), street.visitor(at_donor))
    assert content == PARAMETERS
    assert given == {"w1": len(PARAMETERS)}


async def test_what_is_released_or_replaced_is_not_given_any_more(street: Street) -> None:
    donor, endpoint = await street.donor()
    client = street.visitor(endpoint)
    with pytest.raises(NoDonorError, match="does not have these parameters"):
        await fetched(client)
    donor.hold(ROOT, PARAMETERS)
    await fetched(client)
    donor.release()
    with pytest.raises(NoDonorError, match="does not have these parameters"):
        await fetched(client)
    donor.hold(bytes(32), OTHER)
    with pytest.raises(NoDonorError, match="does not have these parameters"):
        await fetched(client)


async def test_only_visitors_with_an_enrolled_key_are_given_anything(street: Street) -> None:
    donor, endpoint = await street.donor()
    donor.hold(ROOT, PARAMETERS)
    stranger = street.visitor(endpoint, is_enrolled=False)
    with pytest.raises(DonorRefusedError, match="NOT_MEMBER"):
        await stranger.get(resource().path)
    http = HttpClient(endpoint.address, client_context(endpoint.certificate))
    path = routes.job_path("toy", resource().path)
    without = await http.request("GET", path, timeout_s=5.0)
    forged = await http.request("GET", path, headers={routes.TOKEN: "0" * 64}, timeout_s=5.0)
    await http.close()
    assert (without.status, forged.status) == (403, 403)


async def test_nothing_but_the_parameters_of_its_job_is_there(street: Street) -> None:
    donor, endpoint = await street.donor()
    donor.hold(ROOT, PARAMETERS)
    with pytest.raises(DonorRefusedError, match="parameters of its job only"):
        await street.visitor(endpoint, job="other").get(resource().path)
    client = street.visitor(endpoint)
    for path in (routes.HEADS, routes.CHECKPOINTS, f"{routes.STATE}?{routes.DIGEST}={ROOT.hex()}"):
        with pytest.raises(DonorRefusedError, match="does not have"):
            await client.get(path)
    with pytest.raises(DonorRefusedError, match="ask for a range"):
        await client.get(resource().path)
    reply = await client.post(routes.ENTRIES, [b"x"], 5.0)
    assert reply.code == "WRONG_BASE"
