"""How often each example was read in each pass through the training data, told from the records."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Sized
from typing import cast

from pliska.coordinator.records.commit import CommitRecord
from pliska.coordinator.training.batches import batch_indices, batches_in_pass
from pliska.coordinator.training.training_module import load_data
from pliska.coordinator.wire.job import Job


def miscounts(job: Job, records: Sequence[CommitRecord]) -> Iterator[str]:
    """Say which examples were counted twice in a pass, or not, although nobody is to read them.

    Args:
        job: Its code can be imported here.
        records: All of them, oldest first.
    """
    training, _ = load_data(job)
    examples, size = len(cast("Sized", training)), job.data.batch
    batches = batches_in_pass(size, examples)
    counted: dict[int, Counter[int]] = defaultdict(Counter)
    for record in records:
        for each in record.contributions:
            if each.verdict != "refused":
                batch = batch_indices(job.seed, each.lease, size, examples)
                counted[each.lease // batches].update(batch.tolist())
    cursor = records[-1].cursor
    for number in range(max(counted, default=-1) + 1):
        owed = Counter(
            index
            for lease in range(number * batches, (number + 1) * batches)
            if not cursor.is_done(lease)
            for index in batch_indices(job.seed, lease, size, examples).tolist()
        )
        for index in range(examples):
            times = counted[number][index] + owed[index]
            if times != 1:
                yield f"example {index} is read {times} times in pass {number}"
