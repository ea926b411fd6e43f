"""Drawing batches."""

from pliska.coordinator.batches import batch_indices


def test_a_batch_is_the_same_in_every_life_of_a_worker() -> None:
    first = batch_indices(7, 3, "w1", 32, 1000)
    assert first.tolist() == batch_indices(7, 3, "w1", 32, 1000).tolist()
    assert len(set(first.tolist())) == 32


def test_batches_differ_between_workers_rounds_and_seeds() -> None:
    draws = {
        tuple(batch_indices(seed, round_number, worker, 8, 1000).tolist())
        for seed in (1, 2)
        for round_number in (1, 2)
        for worker in ("w1", "w2")
    }
    assert len(draws) == 8


def test_a_batch_larger_than_the_training_set_is_the_whole_set() -> None:
    assert sorted(batch_indices(0, 1, "w", 10, 4).tolist()) == [0, 1, 2, 3]
