"""A worker's side door: it gives the parameters that it computes on to workers that join.

So a large model does not reach a hundred joiners through its coordinators alone.
The server is the coordinators' (TLS 1.3, visits with an enrolled key); where it
listens goes to the leader with the worker's signed hello.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pliska.coordinator.client import Endpoint, JobDirectory
from pliska.coordinator.replication.parameter_donor import ParameterDonor
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.tls import self_signed, server_context


@dataclass(frozen=True, slots=True)
class Door:
    """Where a worker is to give its parameters.

    Attributes:
        host: That others reach it by.
        bind: That it listens on.
        port: 0 for any free one.
    """

    host: str
    bind: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class Donation:
    """An open door.

    Attributes:
        endpoint: Where it is; goes into the hello.
        donor: What is given there.
    """

    endpoint: Endpoint
    donor: ParameterDonor


@asynccontextmanager
async def donate(
    door: Door | None, name: str, key_id: str, directory: JobDirectory
) -> AsyncIterator[Donation | None]:
    """Keep a worker's door open; None where it has none.

    Raises:
        ListenError: The address is taken or not this machine's.
        CertificateError: `door.host` is no host name or address.
    """
    if door is None:
        yield None
        return
    donor = ParameterDonor(directory.job, directory.keyring)
    certificate = self_signed([door.host], datetime.now(UTC))
    server = HttpServer(donor.handle, server_context(certificate), door.bind, door.port)
    await server.start()
    try:
        endpoint = Endpoint(name, door.host, server.port, certificate.certificate_pem, key_id)
        yield Donation(endpoint, donor)
    finally:
        await server.close()
