"""The demonstration's task: a small network that reads handwritten digits.

`model` and `data` are what a job file names as `module:function`; they are an
ordinary user's code and know nothing of Pliska. The digits are the 1,797 that
scikit-learn ships, or MNIST from its IDX files.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import Dataset

from pliska.trainer.demo.errors import (
    DataFileError,
    DataFormatError,
    DemoUsageError,
    MissingExtraError,
)
from pliska.trainer.demo.idx import find_idx, read_idx

CLASSES = 10
PIXELS = {"digits": 8 * 8, "mnist": 28 * 28}
"""Inputs of one image by kind of source; `model` needs the same number."""

TEST_SAMPLES = 500
"""How many of scikit-learn's digits are kept for the test. MNIST has its own test set."""


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images kept as bytes, a quarter of what floats take: each process holds all of them.

    Attributes:
        pixels: uint8 [n, pixels].
        labels: int64 [n], in 0..9.
        brightest: The byte that stands for white.
    """

    def __init__(
        self, pixels: NDArray[np.uint8], labels: NDArray[np.int64], brightest: int
    ) -> None:
        self.pixels = torch.from_numpy(pixels)
        self.labels = torch.from_numpy(labels)
        self.brightest = brightest

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an image, or a slice of them, as float32 in 0..1, with its label."""
        return self.pixels[index].float() / self.brightest, self.labels[index]


def model(pixels: int = PIXELS["digits"], hidden: int = 128) -> nn.Module:
    """Return a network of one hidden layer, initialised from torch's global generator.

    It has no running statistics: those are not a sum of gradients and could
    not be aggregated. Its activations are bounded, so that a model which an
    attack drives uphill grows, but its gradients never overflow: the ruined run
    of the comparison goes on to its last round.

    Args:
        pixels: Inputs of one image, 64 for scikit-learn's digits, 784 for MNIST.
        hidden: Units of the hidden layer.

    Returns:
        A module float32 [batch, pixels] -> logits float32 [batch, 10].
    """
    return nn.Sequential(nn.Linear(pixels, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))


def data(source: str = "digits", seed: int = 0) -> tuple[Images, Images]:
    """Return the training and the test set.

    Args:
        source: `digits` for the images in scikit-learn, or `mnist:DIR` for the
            four files of MNIST in a directory, plain or gzipped.
        seed: Which of scikit-learn's digits are kept for the test; MNIST is
            split as it comes.

    Returns:
        Two datasets of (image float32 [pixels] in 0..1, label int64 in 0..9).

    Raises:
        DemoUsageError: The source is neither of the two.
        MissingExtraError: scikit-learn is not installed.
        DataFileError: A file is missing.
        DataFormatError: A file of MNIST is damaged or is not what its name says.
    """
    if source_kind(source) == "digits":
        return _scikit_learn_digits(seed)
    directory = Path(source.removeprefix("mnist:")).expanduser()
    return _mnist_part(directory, "train"), _mnist_part(directory, "t10k")


def source_kind(source: str) -> str:
    """Return `digits` or `mnist`.

    Raises:
        DemoUsageError: The source is neither.
    """
    if source == "digits":
        return "digits"
    if source.startswith("mnist:") and source != "mnist:":
        return "mnist"
    raise DemoUsageError(f"unknown data {source!r}: write digits, or mnist:DIR with MNIST's files")


def _scikit_learn_digits(seed: int) -> tuple[Images, Images]:
    rows = np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8)
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    pixels, labels = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    brightest = 16
    return (
        Images(pixels[TEST_SAMPLES:], labels[TEST_SAMPLES:], brightest),
        Images(pixels[:TEST_SAMPLES], labels[:TEST_SAMPLES], brightest),
    )


def _digits_file() -> Path:
    """Find the file that `sklearn.datasets.load_digits` reads, without importing scikit-learn.

    The import takes a second and 80 MB in each of the demonstration's two dozen processes.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise MissingExtraError("scikit-learn", "reading the handwritten digits")
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    if not path.is_file():
        raise DataFileError(
            f"this scikit-learn has no {path}: install the version in constraints.txt"
        )
    return path


def _mnist_part(directory: Path, part: str) -> Images:
    images_path = find_idx(directory, f"{part}-images-idx3-ubyte")
    labels_path = find_idx(directory, f"{part}-labels-idx1-ubyte")
    images = read_idx(images_path, axes=3)
    labels = read_idx(labels_path, axes=1)
    if images.shape[1:] != (28, 28):
        raise DataFormatError(
            f"{images_path} has images of {images.shape[1:]}, not of 28 x 28 pixels"
        )
    if len(images) != len(labels):
        raise DataFormatError(
            f"{images_path} has {len(images)} images and {labels_path} {len(labels)} labels"
        )
    if labels.max() >= CLASSES:
        raise DataFormatError(f"{labels_path} has the label {labels.max()}; digits are 0 to 9")
    brightest = 255
    return Images(images.reshape(len(images), -1), labels.astype(np.int64), brightest)
