"""How a worker stays a member: every call tells the leader that it lives, and else a heartbeat.

A worker that polls needs none. One that computes sends them over the connection
that it has; only beside a gradient that takes long to send is there another one.
"""

import asyncio

from pliska.coordinator.client import CoordinatorClient, Membership, ProtocolError
from pliska.coordinator.wire import ReplyCode, TransportError

POLL_S_MAX = 10.0
"""Whatever the lease: what lies between may close connections on which nothing moves."""
POLLS_PER_LEASE = 4
"""A poll is over, and the next one begun, before a heartbeat is due."""
HEARTBEATS_PER_LEASE = 3


def poll_s(joined: Membership) -> float:
    """Return how long one request for a newer version is held open."""
    return min(POLL_S_MAX, joined.lease_s / POLLS_PER_LEASE)


async def keep_alive(client: CoordinatorClient, joined: Membership) -> None:
    """Send a heartbeat whenever nothing else was sent for a while; return when one fails."""
    silence_s = joined.lease_s / HEARTBEATS_PER_LEASE
    while True:
        await asyncio.sleep(silence_s - client.silent_s())
        if client.silent_s() < silence_s:
            continue
        try:
            reply = await client.heartbeat(joined)
        except (TransportError, ProtocolError):
            return
        if reply.code is not ReplyCode.ACCEPTED:
            return
