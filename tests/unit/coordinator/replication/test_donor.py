"""A donor and who visits it, over real sockets: what it gives, to whom, and how it ends."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator import routes
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.log_entry import LogHead
from pliska.coordinator.replication.donor import OPEN_MAX, OPEN_S, Donor
from pliska.coordinator.replication.donor_client import DonorClient, DonorRefusedError
from pliska.coordinator.replication.following import Place, place_of
from pliska.coordinator.replication.sealed import RANGE_BYTES_MAX, Sealed
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.state_manifest import StateManifest
from pliska.coordinator.training.training_state import TrainingState, tensor_bytes
from pliska.coordinator.visitors import VISIT_S, Visitors
from pliska.coordinator.wire import (
    CertificateError,
    Download,
    Reply,
    ReplyCode,
    Request,
    Resource,
    Response,
    Signer,
    hash_tree,
)
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.tls import client_context, self_signed, server_context
from pliska.discovery import Keyring, Role, key_id, public_bytes
from pliska.locks import connect

PARAMETERS = np.arange(700_000, dtype="<f4").tobytes()
PARAMETERS_ROOT = hash_tree.root(hash_tree.leaves(memoryview(PARAMETERS)), len(PARAMETERS))


class Kept:
    """A coordinator that holds some rounds and serves them."""

    def __init__(self, leader: Any) -> None:
        self.leader = leader
        self.now = 100.0
        self.parameters_asked = 0
        self.keyring = Keyring(connect("memory:"))
        self.archive = Archive(leader.storage, leader.job)
        visitors = Visitors("tiny", self.keyring, lambda: self.now, secrets.token_bytes)
        self.donor = Donor(self.archive, visitors, self._parameters, lambda: self.now)
        self.clients: list[DonorClient] = []

    async def _parameters(self, digest: bytes) -> bytes | None:
        self.parameters_asked += 1
        return PARAMETERS if digest == PARAMETERS_ROOT else None

    async def handle(self, request: Request) -> Response:
        answer = await self.donor.answer(request.path.rpartition("/")[2], request)
        return answer or Response(404)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        certificate = self_signed(["127.0.0.1"], datetime.now(UTC))
        self.http = HttpServer(self.handle, server_context(certificate))
        await self.http.start()
        self.endpoint = Endpoint("c1", "127.0.0.1", self.http.port, certificate.certificate_pem, "")
        try:
            yield
        finally:
            for client in self.clients:
                await client.close()
            await self.http.close()

    def client(self, role: Role = Role.COORDINATOR, *, is_enrolled: bool = True) -> DonorClient:
        key = Ed25519PrivateKey.generate()
        identity = key_id(public_bytes(key))
        if is_enrolled:
            self.keyring.enroll(f"{role}-{len(self.clients)}", role, public_bytes(key))
        client = DonorClient(self.endpoint, "tiny", Signer(key, identity))
        self.clients.append(client)
        return client


@pytest.fixture
async def kept(lead: Any, tiny_job: Any, tmp_path: Path) -> AsyncIterator[Kept]:
    leader = lead(tiny_job(), LocalStorage(tmp_path / "storage"))
    for _ in range(5):
        leader.run_round()
        if leader.model.step == 3:
            leader.checkpoint()
    donor = Kept(leader)
    async with donor.serving():
        yield donor


def path(kind: str, place: Place, **more: int) -> str:
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return f"{kind}?version={place.version}&digest={place.digest.hex()}{query}"


async def test_records_are_given_along_the_chain(kept: Kept) -> None:
    client = kept.client()
    content = memoryview(await client.get(path(routes.HEADS, place_of(kept.leader.head), count=3)))
    place = place_of(kept.leader.head)
    versions = []
    while content:
        length = int.from_bytes(content[:4])
        head = LogHead.from_bytes(content[4 : 4 + length], place.digest)
        versions.append(head.commit.record.version)
        place = Place(place.version - 1, head.commit.record.previous)
        content = content[4 + length :]
    assert versions == [5, 4, 3]


async def test_an_aggregate_a_state_and_parameters_are_fetched_and_checked(kept: Kept) -> None:
    client = kept.client()
    head = kept.leader.head
    aggregate = kept.archive.log.read(5, head.digest).aggregate
    assert await fetched(
        client,
        path(routes.AGGREGATE, place_of(head)),
        head.record.aggregate_digest,
        aggregate.nbytes,
    ) == bytes(tensor_bytes(aggregate))

    (line,) = (await client.get(routes.CHECKPOINTS)).decode().splitlines()
    version, record = line.split()
    place = Place(int(version), bytes.fromhex(record))
    folder = kept.archive.checkpoints.places()[0]
    checkpoint, state = kept.archive.checkpoints.read(folder)
    manifest = StateManifest.from_bytes(
        await client.get(path(routes.MANIFEST, place)), checkpoint.state_digest
    )
    payload = await fetched(client, path(routes.STATE, place), manifest.root, manifest.payload_len)
    tensors = manifest.tensors_of(memoryview(bytearray(payload)))
    assert TrainingState(tensors, manifest.settings_table()).digest() == state.digest()

    worker = kept.client(Role.WORKER)
    wanted = path(routes.PARAMETERS, Place(9, PARAMETERS_ROOT))
    assert await fetched(worker, wanted, PARAMETERS_ROOT, len(PARAMETERS)) == PARAMETERS
    assert kept.parameters_asked == 1, "many ranges of one snapshot"


async def fetched(client: DonorClient, where: str, root: bytes, length: int) -> bytes:
    into = bytearray(length)
    await Download(Resource(where, root, length), memoryview(into)).fetch([client])
    return bytes(into)


async def test_workers_read_parameters_and_nothing_else(kept: Kept) -> None:
    worker = kept.client(Role.WORKER)
    for kind in (routes.HEADS, routes.CHECKPOINTS, routes.MANIFEST):
        with pytest.raises(DonorRefusedError, match="NOT_MEMBER"):
            await worker.get(path(kind, place_of(kept.leader.head)))
    for kind in (routes.AGGREGATE, routes.STATE):
        resource = Resource(path(kind, place_of(kept.leader.head)), bytes(32), 4)
        with pytest.raises(DonorRefusedError, match="NOT_MEMBER"):
            await worker.read(resource, 0, memoryview(bytearray(4)))


async def test_a_stranger_is_not_let_in(kept: Kept) -> None:
    stranger = kept.client(is_enrolled=False)
    with pytest.raises(DonorRefusedError, match="NOT_MEMBER, nobody enrolled this key"):
        await stranger.get(routes.CHECKPOINTS)
    async with HttpClient(kept.endpoint.address, client_context(kept.endpoint.certificate)) as http:
        response = await http.request(
            "GET", routes.job_path("tiny", routes.CHECKPOINTS), timeout_s=5.0
        )
    assert Reply.from_json(response.body).code is ReplyCode.NOT_MEMBER


async def test_a_visitor_whose_time_is_over_proves_its_key_again(kept: Kept) -> None:
    client = kept.client()
    await client.get(routes.CHECKPOINTS)
    kept.now += VISIT_S
    assert await client.get(routes.CHECKPOINTS)
    kept.now += VISIT_S
    resource = Resource(path(routes.AGGREGATE, place_of(kept.leader.head)), bytes(32), 4)
    await client.read(resource, 0, memoryview(bytearray(4)))
    kept.keyring.revoke(client._signer.key_id, "stolen")
    kept.now += VISIT_S
    with pytest.raises(DonorRefusedError, match="KEY_REVOKED"):
        await client.get(routes.CHECKPOINTS)


@pytest.mark.parametrize(
    "change",
    [
        lambda place: replace(place, version=4),
        lambda place: replace(place, digest=b"\7" * 32),
    ],
)
async def test_what_is_not_there_is_refused_with_a_reason(
    kept: Kept, change: Callable[[Place], Place]
) -> None:
    client = kept.client()
    place = change(place_of(kept.leader.head))
    for kind in (routes.AGGREGATE, routes.STATE, routes.PARAMETERS):
        with pytest.raises(DonorRefusedError, match="WRONG_BASE"):
            await client.read(Resource(path(kind, place), b"", 4), 0, memoryview(bytearray(4)))
    with pytest.raises(DonorRefusedError, match="nothing is stored"):
        await client.get(path(routes.HEADS, place))
    with pytest.raises(DonorRefusedError, match="WRONG_BASE"):
        await client.get(path(routes.MANIFEST, place))


@pytest.mark.parametrize("query", ["", "?digest=abc", f"?digest={'a' * 64}&version=-1"])
async def test_a_malformed_request_is_refused(kept: Kept, query: str) -> None:
    with pytest.raises(DonorRefusedError, match="WRONG_BASE"):
        await kept.client().get(f"{routes.HEADS}{query}")


@pytest.mark.parametrize(
    "bounds",
    ["", "bytes=0-", "bytes=5-4", f"bytes=0-{RANGE_BYTES_MAX}", "bytes=99999999-99999999", "x"],
)
async def test_a_range_is_asked_for_and_bounded(kept: Kept, bounds: str) -> None:
    client = kept.client()
    where = path(routes.PARAMETERS, Place(9, PARAMETERS_ROOT))
    with pytest.raises(DonorRefusedError, match="ask for a range"):
        await client._request("GET", where, {"range": bounds})


async def test_resources_that_nobody_reads_are_closed(kept: Kept) -> None:
    client = kept.client()
    wanted = Resource(path(routes.PARAMETERS, Place(9, PARAMETERS_ROOT)), b"", 4)
    await client.read(wanted, 0, memoryview(bytearray(4)))
    kept.now += OPEN_S - 1
    await client.read(wanted, 0, memoryview(bytearray(4)))
    assert kept.parameters_asked == 1
    kept.now += OPEN_S
    await client.read(wanted, 0, memoryview(bytearray(4)))
    assert kept.parameters_asked == 2
    for version in range(1, OPEN_MAX + 1):
        kept.now += 1.0
        other = Resource(path(routes.PARAMETERS, Place(version, PARAMETERS_ROOT)), b"", 4)
        await client.read(other, 0, memoryview(bytearray(4)))
    assert len(kept.donor._open) == OPEN_MAX


async def test_a_checkpoint_is_spared_while_it_is_read(kept: Kept) -> None:
    client = kept.client()
    folder = kept.archive.checkpoints.places()[0]
    checkpoint = kept.archive.checkpoints.checkpoint(folder)
    place = Place(3, checkpoint.record_digest)
    assert kept.donor.spared() == frozenset()
    await client.read(Resource(path(routes.STATE, place), b"", 4), 0, memoryview(bytearray(4)))
    assert kept.donor.spared() == {3}
    kept.now += OPEN_S
    assert kept.donor.spared() == frozenset()


async def test_a_donor_whose_file_is_gone_says_so(kept: Kept) -> None:
    client = kept.client()
    where = path(routes.AGGREGATE, place_of(kept.leader.head))
    resource = Resource(where, b"", kept.leader.model.dimension * 4)
    half = memoryview(bytearray(20))
    await client.read(resource, 32, half)
    kept.archive.log.shrink(5, kept.leader.head.digest)
    with pytest.raises(DonorRefusedError, match="WRONG_BASE"):
        await client.read(resource, 32, half)
    assert CheckpointStore(kept.leader.storage, "tiny").places()


def test_a_sealed_resource_reads_across_leaves_and_payload() -> None:
    payload = bytes(range(200))
    sealed = Sealed.of_bytes(payload)
    whole = sealed.leaves + payload
    assert sealed.length == len(whole)
    for start in range(0, len(whole), 7):
        for count in (1, 30, 50, 500):
            assert bytes(sealed.read(start, count)) == whole[start : start + count]


async def test_a_donor_whose_certificate_cannot_be_read_is_one_that_does_not_answer(
    kept: Kept,
) -> None:
    client = kept.client()
    damaged = DonorClient(replace(kept.endpoint, certificate="-"), "tiny", client._signer)
    with pytest.raises(CertificateError):
        await damaged.get(routes.CHECKPOINTS)
    await damaged.close()
    into = bytearray(len(PARAMETERS))
    resource = Resource(
        path(routes.PARAMETERS, Place(9, PARAMETERS_ROOT)), PARAMETERS_ROOT, len(into)
    )
    await Download(resource, memoryview(into)).fetch([damaged, client])
    assert into == PARAMETERS


async def test_many_first_readers_open_a_resource_once(kept: Kept) -> None:
    client = kept.client()
    wanted = Resource(path(routes.PARAMETERS, Place(9, PARAMETERS_ROOT)), b"", 4)
    await asyncio.gather(
        *(client.read(wanted, 4 * each, memoryview(bytearray(4))) for each in range(8))
    )
    assert kept.parameters_asked == 1
