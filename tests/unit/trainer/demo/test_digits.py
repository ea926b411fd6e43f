"""The demonstration's task: what `model` and `data` return, and what they refuse."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from pliska.trainer.demo import digits
from pliska.trainer.demo.errors import (
    DataFileError,
    DataFormatError,
    DemoUsageError,
    MissingExtraError,
)


def write_mnist(directory: Path, images: int, labels: int, side: int = 28) -> None:
    """Write MNIST's four files with random content and the given number of items."""
    generator = np.random.default_rng(0)
    for part in ("train", "t10k"):
        pixels = generator.integers(0, 256, (images, side, side), dtype=np.uint8)
        header = b"\0\0\x08\x03" + np.array([images, side, side], dtype=">u4").tobytes()
        (directory / f"{part}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = b"\0\0\x08\x01" + np.array([labels], dtype=">u4").tobytes()
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(header + bytes(range(labels)))


def test_digits_are_those_of_scikit_learn_in_an_order_of_the_seed() -> None:
    train, test = digits.data("digits", seed=5)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(5).permutation(len(labels))
    got_images = torch.cat([test[:][0], train[:][0]])
    got_labels = torch.cat([test[:][1], train[:][1]])
    assert len(test) == digits.TEST_SAMPLES
    assert torch.equal(got_images, torch.from_numpy(images[order] / 16).float())
    assert torch.equal(got_labels, torch.from_numpy(labels[order]))


def test_another_seed_tests_on_other_digits() -> None:
    first, second = digits.data(seed=0)[1], digits.data(seed=1)[1]
    assert not torch.equal(first.pixels, second.pixels)


def test_image_and_slice_of_images_are_floats_from_0_to_1() -> None:
    train, _ = digits.data()
    image, label = train[3]
    images, labels = train[:10]
    assert image.dtype == images.dtype == torch.float32
    assert torch.equal(image, images[3])
    assert torch.equal(label, labels[3])
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    assert len(train) == 1797 - digits.TEST_SAMPLES


def test_mnist_is_read_from_its_files(tmp_path: Path) -> None:
    write_mnist(tmp_path, images=10, labels=10)
    train, test = digits.data(f"mnist:{tmp_path}")
    images, labels = test[:]
    assert train[:][0].shape == images.shape == (10, digits.PIXELS["mnist"])
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    assert labels.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("images", "labels", "side", "message"),
    [
        (10, 9, 28, "10 images and .* 9 labels"),
        (11, 11, 28, "has the label 10"),
        (10, 10, 27, "not of 28 x 28"),
    ],
)
def test_files_that_are_not_mnist_are_refused(
    tmp_path: Path, images: int, labels: int, side: int, message: str
) -> None:
    write_mnist(tmp_path, images, labels, side)
    with pytest.raises(DataFormatError, match=message):
        digits.data(f"mnist:{tmp_path}")


def test_missing_files_of_mnist_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="train-images-idx3-ubyte"):
        digits.data(f"mnist:{tmp_path}")


@pytest.mark.parametrize("source", ["", "mnist", "mnist:", "cifar", "digits:"])
def test_unknown_source_is_refused(source: str) -> None:
    with pytest.raises(DemoUsageError, match="write digits, or mnist:DIR"):
        digits.data(source)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pliska\[demo\]'"):
        digits.data("digits")


def test_model_maps_images_to_ten_logits_and_keeps_no_running_statistics() -> None:
    module = digits.model(pixels=64, hidden=8)
    assert module(torch.zeros(3, 64)).shape == (3, digits.CLASSES)
    assert not list(module.buffers())
