"""Derived seeds."""

from pliska.coordinator.wire.seed import derive_seed


def test_the_same_facts_give_the_same_seed_in_every_process_and_version() -> None:
    assert derive_seed("batch", 7, 3, "w1") == 2624921831897177797


def test_facts_that_run_together_give_different_seeds() -> None:
    assert derive_seed(1, 11) != derive_seed(11, 1)
    assert derive_seed("1", "1w") != derive_seed("11", "w")


def test_a_seed_fits_a_signed_64_bit_integer() -> None:
    assert all(0 <= derive_seed("x", number) < 2**63 for number in range(100))
