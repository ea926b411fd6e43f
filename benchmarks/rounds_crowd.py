"""As many workers as a job may have: the leader's memory, and how time grows with their number.

The leader is in a process of its own for each sample, with its real parts. The
workers are tasks of this process, each with its own key, token and
connection: they download each version and send a gradient for it, all at once, over
TLS. What they would compute is made beforehand. Leader and workers share the
machine's cores, as they would not.
"""

import asyncio
import json
import os
import secrets
import sys
import tempfile
import threading
import time
from asyncio.subprocess import PIPE
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from report import Figure, figure

from pliska.coordinator.client import CoordinatorClient, Endpoint, Membership, Version
from pliska.coordinator.free_memory import keep_large_pieces_apart
from pliska.coordinator.open_files import raise_file_limit
from pliska.coordinator.wire import (
    EMPTY,
    Float32Codec,
    GradientHeader,
    Reply,
    ReplyCode,
    SealedPayload,
    Signer,
    gradient_frame,
    seal,
)
from pliska.discovery import key_id, public_bytes
from pliska.trainer.heartbeat import keep_alive, poll_s

COUNTS = (125, 250, 500, 1000)
D = 1_000_000
RULES = {"trimmed-mean": 1, "multi-krum": 2}
"""The greatest power of n that a rule's time may grow with."""
SLACK = 1.25
SCRATCH_BYTES = 64 * 2**20
"""What a rule may take beside its rows, whatever their number and length."""
ROUNDS = 2
"""The first one, in which workers join and memory is new, is not timed."""
WORKER_LEASE_S = 45.0
"""What workers go by: so large a job's operator asks for more than the 10 s of few workers."""
GIVEN_UP_S = 600.0
"""No worker is given up: here one loop stands for all of them, and may be late."""
JOINING_AT_ONCE = 16
ROUND_TIMEOUT_S = 600.0

JOB = """
name = "wide"
model = {{ factory = "rounds_durability:model", arguments = {{ width = {width} }} }}
data = {{ factory = "rounds_durability:data", arguments = {{ width = {width} }} }}
rule = {{ name = "{rule}", f = {f} }}
optimizer = {{ name = "sgd", lr = 0.1 }}
checkpoint = {{ every = 1000000 }}
evaluate = {{ every = 1000000 }}
[rounds]
count = {rounds}
workers = {n}
quorum = {n}
soft_deadline_s = 2000.0
deadline_s = 3000.0
"""


@dataclass(frozen=True)
class Sample:
    """The rounds after the first one, as the leader's process saw them.

    Attributes:
        rounds_s: From commit to commit.
        closings_s: From the last gradient to the commit.
        processor_s: Processor time of the leader's process, by round.
        memory_bytes: The process's peak above what it had before the workers came.
    """

    rounds_s: list[float]
    closings_s: list[float]
    processor_s: list[float]
    memory_bytes: int


def figures(repeats: int) -> list[Figure]:
    """Measure each rule with each number of workers so often."""
    found = []
    for rule, power in RULES.items():
        samples = {n: [sample(rule, n) for _ in range(repeats)] for n in COUNTS}
        found += _table(rule, power, samples)
    return found


def _table(rule: str, power: int, samples: dict[int, list[Sample]]) -> list[Figure]:
    best = {n: [min(each.rounds_s) for each in samples[n]] for n in COUNTS}
    found = []
    for n in COUNTS:
        closings = [min(each.closings_s) for each in samples[n]]
        found += [
            figure(f"{rule}, n = {n}: a round", best[n], "s"),
            figure(f"{rule}, n = {n}: from the last gradient to the commit", closings, "s"),
        ]
    for fewer, more in pairwise(COUNTS):
        growth = [b / a for a, b in zip(best[fewer], best[more], strict=True)]
        most = (more / fewer) ** power * SLACK
        found.append(
            figure(
                f"{rule}: a round of {more} against one of {fewer}",
                growth,
                "times",
                f"at most {most:g}",
                lambda value, most=most: value <= most,
            )
        )
    for n in COUNTS:
        shares = [each.memory_bytes / allowed_bytes(n) for each in samples[n]]
        name = f"{rule}, n = {n}: memory, of the buffer, three models and a rule's 64 MiB"
        found.append(figure(name, shares, "", "at most 1", lambda share: share <= 1))
        surplus = [(each.memory_bytes - allowed_bytes(n)) / n / 1024 for each in samples[n]]
        found.append(figure(f"{rule}, n = {n}: memory above that, a worker", surplus, "KiB"))
    return found


def allowed_bytes(n: int, d: int = D) -> int:
    """Return what a leader may take for a job of n workers."""
    return 4 * d * (n + 3) + SCRATCH_BYTES


def sample(rule: str, n: int, d: int = D) -> Sample:
    """Run one job."""
    raise_file_limit(n)
    return asyncio.run(_sample(rule, n, d))


async def _sample(rule: str, n: int, d: int) -> Sample:
    leader = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "lead", rule, str(n), str(d), stdin=PIPE, stdout=PIPE
    )
    assert leader.stdout is not None
    try:
        endpoint = Endpoint.from_bytes(bytes.fromhex((await leader.stdout.readline()).decode()))
        manifest = (await leader.stdout.readline()).decode().strip()
        crowd = Crowd(endpoint, bytes.fromhex(manifest), n, d)
        working = asyncio.gather(*(crowd.work(number) for number in range(n)))
        told = asyncio.create_task(leader.stdout.readline())
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            working.result()
        line = await told
        await working
        await leader.wait()
        return Sample(**json.loads(line))
    finally:
        if leader.returncode is None:
            leader.kill()


class Crowd:
    """The workers of one job."""

    def __init__(self, endpoint: Endpoint, manifest_digest: bytes, n: int, d: int) -> None:
        self._endpoint = endpoint
        self._manifest_digest = manifest_digest
        numbers = np.random.default_rng(7).standard_normal(d + 64 * n, dtype=np.float32)
        # Gradients that differ from each other, and take no memory of their own.
        gradients = (numbers[64 * each : 64 * each + d] for each in range(n))
        self._sealed = [seal(Float32Codec(), each) for each in gradients]
        self._landing = memoryview(bytearray(4 * d))
        self._joining = asyncio.Semaphore(JOINING_AT_ONCE)
        self._joined = asyncio.Barrier(n)

    async def work(self, number: int) -> None:
        """Be one worker until the last version is there."""
        name = f"w{number}"
        async with self._joining:
            signer = signer_of(name)
            client = CoordinatorClient(self._endpoint, "wide")
            joined = await client.join(name, b"1" * 16, signer, EMPTY)
        assert isinstance(joined, Membership), joined
        joined = replace(joined, lease_s=WORKER_LEASE_S)
        living = asyncio.create_task(keep_alive(client, joined))
        try:
            await self._joined.wait()
            await self._train(client, joined, name, signer, self._sealed[number])
        finally:
            living.cancel()
            await client.close()

    async def _train(
        self,
        client: CoordinatorClient,
        joined: Membership,
        name: str,
        signer: Signer,
        sealed: SealedPayload,
    ) -> None:
        version, is_sent, seq = None, False, 0
        while True:
            after = -1 if version is None else version.version
            news = await client.model(
                joined, after, poll_s(joined), self._landing, wants_lease=not is_sent
            )
            assert not isinstance(news, Reply), news
            if isinstance(news, Version):
                version, is_sent = news, False
                if version.is_final:
                    await client.leave(joined)
                    return
            if is_sent or version is None or news.lease is None:
                continue
            seq += 1
            header = self._header(name, signer, joined, version, news.lease, seq, sealed)
            reply = await client.push(gradient_frame(signer.sign(header), sealed))
            assert reply.code is ReplyCode.ACCEPTED, reply
            is_sent = True

    def _header(
        self,
        name: str,
        signer: Signer,
        joined: Membership,
        version: Version,
        lease: int,
        seq: int,
        sealed: SealedPayload,
    ) -> GradientHeader:
        return GradientHeader(
            job="wide",
            epoch=joined.epoch,
            round=version.version + 1,
            mode_epoch=version.mode_epoch,
            base_version=version.version,
            base_digest=version.digest,
            worker=name,
            incarnation=b"1" * 16,
            key_id=signer.key_id,
            seq=seq,
            nonce=secrets.token_bytes(16),
            issued_at=time.time(),
            lease=lease,
            n_samples=2,
            codec=sealed.codec,
            manifest_digest=self._manifest_digest,
            payload_len=sealed.payload_len,
            chunk_len=sealed.chunk_len,
            payload_root=sealed.root,
        )


def signer_of(worker: str) -> Signer:
    """Return the signer that `Lead` has enrolled for this worker."""
    key = Ed25519PrivateKey.from_private_bytes(sha256(worker.encode()).digest())
    return Signer(key, key_id(public_bytes(key)))


async def _lead(folder: Path, rule: str, n: int, d: int) -> Sample:
    """Lead the job; print the address and the manifest's digest for the workers."""
    import torch
    from training.leadership import Lead

    from pliska.aggregation import rule_named
    from pliska.coordinator.training.model import TrainingModel
    from pliska.coordinator.wire.job import parse_job

    keep_large_pieces_apart()  # as a daemon does, too
    raise_file_limit(n)
    text = JOB.format(width=d // 2, rule=rule, f=n // 5, n=n, rounds=ROUNDS)
    job = parse_job(text, "wide.toml")
    TrainingModel.build(job).apply(torch.zeros(d))  # as a daemon does when it starts
    rule_named(rule, f=n // 5)(torch.randn(n, 1024))  # loads what compiles it, and that code
    lead = Lead(job, folder)
    for number in range(n):
        lead.signer(f"w{number}")
    rounds: list[float] = []
    closings: list[float] = []
    processor: list[float] = []
    async with lead.serving(worker_lease_s=GIVEN_UP_S):
        leader = lead.directory.leader()
        assert leader is not None
        driver, publisher = lead.leading.intake.driver, lead.leading.publisher
        async with lead.running() as running:
            before = memory_bytes("VmRSS")
            print(leader.endpoint.to_bytes().hex(), flush=True)
            print(lead.leading.intake.manifest.digest.hex(), flush=True)
            for version in range(1, ROUNDS + 1):
                began_at, began_s = time.perf_counter(), time.process_time()
                while publisher.published.version < version:
                    await publisher.newer_than(version - 1, ROUND_TIMEOUT_S)
                    if running.done():
                        running.result()
                if version > 1:
                    rounds.append(time.perf_counter() - began_at)
                    processor.append(time.process_time() - began_s)
                    closings.append(driver.closed_ago_s(version) or 0.0)
            await running
    lead.close()
    return Sample(rounds, closings, processor, memory_bytes("VmHWM") - before)


def memory_bytes(field: str) -> int:
    """Return one of the memory figures that the system keeps of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {field}")


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written there
    os._exit(1)


def main() -> None:
    """Print one sample: `RULE N [D]`; with `lead` before them, be its leader."""
    is_leader = sys.argv[1] == "lead"
    rule, count, *rest = sys.argv[2:] if is_leader else sys.argv[1:]
    n, d = int(count), int(rest[0]) if rest else D
    if is_leader:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(asdict(asyncio.run(_lead(Path(folder), rule, n, d)))))
        return
    measured = sample(rule, n, d)
    print(measured, f"{measured.memory_bytes / allowed_bytes(n, d):.3f} of the memory")


if __name__ == "__main__":
    main()
