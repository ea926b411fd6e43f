import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.download import SPAN_BYTES, Download, Resource, SpanPlan
from pliska.coordinator.wire.errors import NoDonorError, ReplyLostError
from pliska.coordinator.wire.limits import CHUNK_BYTES

PAYLOAD = random.Random(3).randbytes(5 * SPAN_BYTES + 12_345)
LEAVES = b"".join(hash_tree.leaves(memoryview(PAYLOAD)))
ROOT = hash_tree.root(hash_tree.leaves(memoryview(PAYLOAD)), len(PAYLOAD))
RESOURCE = Resource("state?version=3", ROOT, len(PAYLOAD))


@dataclass
class MemoryDonor:
    """Gives what it holds, and breaks off after so many reads."""

    name: str
    content: bytes = LEAVES + PAYLOAD
    reads_max: int = 10**6
    reads: list[tuple[int, int]] = field(default_factory=list)

    async def read(self, resource: Resource, offset: int, into: memoryview) -> None:
        assert resource == RESOURCE or not self.content
        await asyncio.sleep(0)
        if len(self.reads) >= self.reads_max:
            raise ReplyLostError("the connection broke")
        self.reads.append((offset, len(into)))
        into[:] = self.content[offset : offset + len(into)]


def lying(name: str, position: int) -> MemoryDonor:
    content = bytearray(LEAVES + PAYLOAD)
    content[position] ^= 1
    return MemoryDonor(name, bytes(content))


def download() -> tuple[Download, bytearray]:
    into = bytearray(len(PAYLOAD))
    return Download(RESOURCE, memoryview(into)), into


async def test_several_donors_share_the_work() -> None:
    loading, into = download()
    donors = [MemoryDonor("c1"), MemoryDonor("c2"), MemoryDonor("c3")]
    await loading.fetch(donors)
    assert into == PAYLOAD
    assert all(donor.reads for donor in donors)
    fetched = sum(count for donor in donors for offset, count in donor.reads if offset)
    assert fetched == len(PAYLOAD)


async def test_a_donor_that_goes_away_is_replaced_at_the_same_span() -> None:
    loading, into = download()
    await loading.fetch([MemoryDonor("c1", reads_max=3), MemoryDonor("c2")])
    assert into == PAYLOAD


async def test_what_arrived_before_all_donors_died_is_not_fetched_again() -> None:
    loading, into = download()
    with pytest.raises(NoDonorError, match="c1: the connection broke"):
        await loading.fetch([MemoryDonor("c1", reads_max=4)])
    missing = loading.missing_bytes
    assert 0 < missing < len(PAYLOAD)
    second = MemoryDonor("c2")
    await loading.fetch([second])
    assert into == PAYLOAD
    assert sum(count for offset, count in second.reads if offset) == missing


@pytest.mark.parametrize("position", [3, len(LEAVES) + 2 * SPAN_BYTES + 7])
async def test_a_donor_that_lies_is_left_out_and_nothing_of_it_is_kept(position: int) -> None:
    loading, into = download()
    with pytest.raises(NoDonorError, match=r"c1: .*(not the one|chunk \d+)"):
        await loading.fetch([lying("c1", position)])
    wrong = position - len(LEAVES)
    if wrong > 0:
        start = wrong // SPAN_BYTES * SPAN_BYTES
        assert not any(into[start : start + SPAN_BYTES])
    await loading.fetch([lying("c3", position), MemoryDonor("c2")])
    assert into == PAYLOAD


async def test_nobody_to_ask_is_an_error() -> None:
    loading, _ = download()
    with pytest.raises(NoDonorError, match="nobody is there to ask"):
        await loading.fetch([])


async def test_a_payload_of_no_bytes_needs_only_its_leaves() -> None:
    root = hash_tree.root([], 0)
    await Download(Resource("empty", root, 0), memoryview(bytearray())).fetch(
        [MemoryDonor("c1", b"")]
    )


@settings(max_examples=30, deadline=None)
@given(length=st.integers(0, 4 * SPAN_BYTES + CHUNK_BYTES), seed=st.integers(0, 10**6))
def test_a_plan_hands_out_every_byte_until_it_has_arrived(length: int, seed: int) -> None:
    plan, chance = SpanPlan(length), random.Random(seed)
    got: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []
    while not plan.is_done:
        span = plan.take()
        if span is not None:
            taken.append(span)
            continue
        chance.shuffle(taken)
        span = taken.pop()
        if chance.random() < 0.5:
            plan.give_back(span)
        else:
            plan.arrived(span)
            got.append(span)
    assert plan.take() is None
    assert plan.missing_bytes == 0
    assert sorted(got) == [
        (start, min(start + SPAN_BYTES, length)) for start in range(0, length, SPAN_BYTES)
    ]
