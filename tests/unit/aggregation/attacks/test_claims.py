import torch

from pliska.aggregation import claimed_masses, flipped_labels


def test_label_flip_turns_the_order_of_classes_round() -> None:
    assert flipped_labels(torch.tensor([0, 3, 9]), 10).tolist() == [9, 6, 0]


def test_only_liars_claim_more() -> None:
    masses = {"a": 1.0, "b": 2.0}
    assert claimed_masses(masses, {"b"}, factor=10) == {"a": 1, "b": 20}
    assert masses == {"a": 1.0, "b": 2.0}
