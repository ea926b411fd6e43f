"""One log entry as it arrives at a standby: from its first byte to an entry that proves itself.

In steps, so that the record is judged before the aggregate is read. Whether the
entry may be kept is decided by `following`; `standby` keeps it.
"""

import asyncio
from collections import deque

import torch

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.annex import ANNEX_BYTES_MAX, Annex
from pliska.coordinator.records.commit import RECORD_BYTES_MAX, Commit
from pliska.coordinator.records.log_entry import LENGTH_BYTES, LogEntry
from pliska.coordinator.wire import Body, DigestError, SchemaError, TooLargeError, hash_tree
from pliska.coordinator.wire.limits import CHUNKS_UNVERIFIED_MAX
from pliska.coordinator.wire.signing import KeyLookup


async def receive_record(body: Body, job: str, key_lookup: KeyLookup) -> Commit:
    """Read the signed record at the beginning of an entry, and check its signature.

    Raises:
        RefusedError: The body is no entry, or its record is not of a coordinator of this job.
        StoreError: The lookup failed.
    """
    signed = await _part(body, RECORD_BYTES_MAX, "a commit record")
    try:
        return await asyncio.to_thread(Commit.verified, signed, job, key_lookup)
    except DamagedStateError as error:
        raise SchemaError(str(error)) from error


async def receive_entry(body: Body, commit: Commit, dimension: int) -> LogEntry:
    """Read annex and aggregate behind a record, hashing chunks while later ones arrive.

    Args:
        body: As `receive_record` left it.
        commit: What it returned.
        dimension: Of the job's model: d.

    Raises:
        SchemaError: The aggregate is not float32 [d].
        DigestError: Annex or aggregate are not those that the record names.
        RefusedError: The body ended or stalled.
    """
    annex_bytes = await _part(body, ANNEX_BYTES_MAX, "an annex")
    try:
        annex = Annex.from_bytes(annex_bytes, commit.record.annex_digest)
    except DamagedStateError as error:
        raise DigestError(str(error)) from error
    if body.remaining != 4 * dimension:
        raise SchemaError(f"the aggregate has {body.remaining} bytes, not {4 * dimension}")
    payload = bytearray(4 * dimension)
    leaves = await _receive_leaves(body, memoryview(payload))
    if hash_tree.root(leaves, len(payload)) != commit.record.aggregate_digest:
        raise DigestError("the aggregate is not the one that the record names")
    return LogEntry(commit, torch.frombuffer(payload, dtype=torch.float32), annex)


async def _receive_leaves(body: Body, landing: memoryview) -> list[bytes]:
    loop = asyncio.get_running_loop()
    hashing: deque[asyncio.Future[bytes]] = deque()
    leaves: list[bytes] = []
    for chunk in hash_tree.chunks(landing):
        await body.read_into(chunk)
        if len(hashing) == CHUNKS_UNVERIFIED_MAX:
            leaves.append(await hashing.popleft())
        hashing.append(loop.run_in_executor(None, hash_tree.leaf, chunk))
    return leaves + list(await asyncio.gather(*hashing))


async def _part(body: Body, bytes_max: int, what: str) -> bytes:
    """Read a part that has its length before it."""
    length_bytes = bytearray(LENGTH_BYTES)
    await body.read_into(memoryview(length_bytes))
    length = int.from_bytes(length_bytes)
    if length > bytes_max:
        raise TooLargeError(what, size=length, limit=bytes_max)
    part = bytearray(length)
    await body.read_into(memoryview(part))
    return bytes(part)
