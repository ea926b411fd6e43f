"""Accuracy on MNIST per rule, attack, f and data split, under simulated Byzantine workers.

    PLISKA_MNIST=DIR python benchmarks/robustness.py --out results          # minutes
    PLISKA_MNIST=DIR python benchmarks/robustness.py --out results --paper  # many hours

DIR holds the four files of MNIST. `--paper` takes the settings of the heat maps
in ByzFL's documentation: 10 honest workers and f = 1 to 4 liars, their
convolutional network, 800 steps, batch 25, learning rate 0.1, momentum 0.9 at
the workers, 3 seeds; gamma is the share of data that is dealt evenly, the rest
is sorted by label. Every option of the grid narrows it: `--paper --f 2 --seeds 0`.
Writes results/accuracy.csv, a line a run, and results/heatmap.png: the accuracy of
each rule under each attack, averaged over the seeds, and the worst of these.
"""

import argparse
import csv
import itertools
import os
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from pliska.aggregation import (
    AggregationError,
    AttackName,
    Memory,
    Rule,
    attack_named,
    flipped_labels,
    rule_named,
)
from pliska.aggregation.commands import entry_of
from pliska.trainer.demo.idx import find_idx, read_idx

QUICK_RULES = (
    "mean",
    "trimmed-mean",
    "multi-krum",
    "geometric-median",
    "centered-clipping",
    "nnm | trimmed-mean",
    "arc | nnm | multi-krum",
)
QUICK_ATTACKS = ("sign-flip:scale=10", "alie:z=1.5", "ipm", "mimic", "label-flip")
PAPER_RULES = ("clipping:tau=2 | nnm | trimmed-mean", "clipping:tau=2 | nnm | geometric-median")
PAPER_ATTACKS = ("sign-flip", "ipm-optimised", "alie-optimised")
DELAY = 20
"""Rounds by which the attack `delayed` is late."""
WORST = "worst of the attacks"
DARK_MAX = 0.6
"""Accuracies up to this are drawn dark, and written in white."""
CLEAN = 100
"""Examples of the trusted batch, for rules that ask for a reference."""


@dataclass(frozen=True)
class Training:
    """What all runs have in common."""

    honest: int
    steps: int
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    network: str


@dataclass(frozen=True)
class Run:
    """One line of the table."""

    rule: str
    attack: str
    f: int
    gamma: float
    seed: int
    accuracy: float


Data = tuple[Tensor, Tensor, Tensor, Tensor]
Column = tuple[int, float]
"""f and gamma."""


def main() -> None:
    options = parsed()
    directory = os.environ.get("PLISKA_MNIST")
    if directory is None:
        raise SystemExit("PLISKA_MNIST must name the directory with the four files of MNIST")
    training = Training(
        honest=options.honest,
        steps=options.steps,
        batch=25,
        lr=0.1,
        momentum=0.9,
        weight_decay=1e-4,
        network="convolutional" if options.paper else options.network,
    )
    torch.set_num_threads(1)  # the tensors are small: threads cost more than they give
    data = mnist(Path(directory))
    options.out.mkdir(parents=True, exist_ok=True)
    grid = list(
        itertools.product(options.rules, options.attacks, options.f, options.gamma, options.seeds)
    )
    runs = []
    with (options.out / "accuracy.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(field.name for field in fields(Run))
        for rule, attack, f, gamma, seed in track(grid, description="training"):
            accuracy = round(train(data, training, rule, attack, f, gamma, seed), 4)
            runs.append(Run(rule, attack, f, gamma, seed, accuracy))
            table.writerow(astuple(runs[-1]))
            stream.flush()
    draw(runs, options.out / "heatmap.png")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("robustness"), help="directory to write")
    parser.add_argument("--paper", action="store_true", help="ByzFL's settings and grid")
    parser.add_argument("--rules", nargs="+", help="such as 'nnm | multi-krum'")
    parser.add_argument("--attacks", nargs="+", help="such as alie:z=1.5, or label-flip")
    parser.add_argument("--f", nargs="+", type=int)
    parser.add_argument("--gamma", nargs="+", type=float, help="share of data dealt evenly")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--honest", type=int, default=10)
    parser.add_argument("--network", choices=NETWORKS, default="perceptron")
    options = parser.parse_args()
    quick = (QUICK_RULES, QUICK_ATTACKS, (2,), (0.0, 1.0), (0,), 150)
    paper = (PAPER_RULES, PAPER_ATTACKS, (1, 2, 3, 4), (0.0, 0.33, 0.66, 1.0), (0, 1, 2), 800)
    names = ("rules", "attacks", "f", "gamma", "seeds", "steps")
    for name, value in zip(names, paper if options.paper else quick, strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def mnist(directory: Path) -> Data:
    """Return training images and labels, then test images and labels."""
    parts: list[Tensor] = []
    for stem in ("train", "t10k"):
        images = torch.from_numpy(read_idx(find_idx(directory, f"{stem}-images-idx3-ubyte"), 3))
        labels = torch.from_numpy(read_idx(find_idx(directory, f"{stem}-labels-idx1-ubyte"), 1))
        parts += [(images[:, None].float() / 255 - 0.1307) / 0.3081, labels.long()]
    return parts[0], parts[1], parts[2], parts[3]


def split(labels: Tensor, workers: int, gamma: float, generator: torch.Generator) -> list[Tensor]:
    """Deal a share gamma of the examples evenly and the rest in order of their labels."""
    lot = torch.randperm(len(labels), generator=generator)
    even, rest = lot[: int(gamma * len(lot))], lot[int(gamma * len(lot)) :]
    by_label = rest[labels[rest].argsort(stable=True)]
    pairs = (
        zip(even.chunk(workers), by_label.chunk(workers), strict=True)
        if 0 < gamma < 1
        else ((part, part[:0]) for part in (even if gamma else by_label).chunk(workers))
    )
    return [torch.cat(pair) for pair in pairs]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutional() -> nn.Module:
    """ByzFL's cnn_mnist."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


NETWORKS = {"perceptron": perceptron, "convolutional": convolutional}


class Gradients:
    """Gradients of a network, of several batches at once, as rows."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.shapes = {name: each.shape for name, each in network.named_parameters()}

    def start(self) -> Tensor:
        return torch.cat([each.detach().reshape(-1) for each in self.network.parameters()])

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([shape.numel() for shape in self.shapes.values()])
        return {
            name: part.view(self.shapes[name])
            for name, part in zip(self.shapes, parts, strict=True)
        }

    def rows(self, vector: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return [n, d] for images [n, batch, ...] and labels [n, batch]."""

        def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            return nn.functional.cross_entropy(
                functional_call(self.network, parameters, (image,)), label
            )

        found = vmap(grad(loss), in_dims=(None, 0, 0))(self.named(vector), images, labels)
        return torch.cat([found[name].flatten(1) for name in self.shapes], dim=1)

    def accuracy(self, vector: Tensor, images: Tensor, labels: Tensor) -> float:
        with torch.no_grad():
            outputs = functional_call(self.network, self.named(vector), (images,))
        return float((outputs.argmax(dim=1) == labels).float().mean())


def rule_of(text: str, f: int) -> Rule:
    """Read 'clipping:tau=2 | nnm | krum'."""
    *before, last = (entry_of(part.strip()) for part in text.split("|"))
    name = str(last.pop("name"))
    return rule_named(name, f=f, pre=before, **last)


def train(
    data: Data, training: Training, rule_text: str, attack: str, f: int, gamma: float, seed: int
) -> float:
    """Train with f liars among honest + f workers; return the test accuracy at the end."""
    images, labels, test_images, test_labels = data
    generator = torch.Generator().manual_seed(seed)
    rule = rule_of(rule_text, f)
    torch.manual_seed(seed)
    gradients = Gradients(NETWORKS[training.network]())
    vector = gradients.start()
    shards = split(labels, training.honest, gamma, generator)
    forge = Liars(attack, rule, generator)
    momenta = torch.zeros(training.honest, len(vector))
    liars_momenta = torch.zeros(f, len(vector))
    memory: Memory | None = None
    for step in range(training.steps):
        picks = [
            shard[torch.randint(len(shard), (training.batch,), generator=generator)]
            for shard in shards
        ]
        batch = torch.stack(picks)
        momenta.lerp_(gradients.rows(vector, images[batch], labels[batch]), 1 - training.momentum)
        if attack == "label-flip":
            wrong = gradients.rows(vector, images[batch[:f]], flipped_labels(labels[batch[:f]], 10))
            liars_momenta.lerp_(wrong, 1 - training.momentum)
            lies = liars_momenta
        else:
            lies = forge(momenta, f)
        clean = torch.randint(len(labels), (CLEAN,), generator=generator)
        given: dict[str, Any] = {"seed": seed * training.steps + step}
        if "reference" in rule.uses:
            given["reference"] = gradients.rows(vector, images[clean][None], labels[clean][None])[0]
        if "memory" in rule.uses:
            given["memory"] = memory
        try:
            result = rule(torch.cat([lies, momenta]), **given)
        except AggregationError:
            return 0.1  # no step can be made: as good as guessing
        memory = result.memory
        vector = vector - training.lr * (result.vector + training.weight_decay * vector)
        if not vector.isfinite().all():
            return 0.1
    return gradients.accuracy(vector, test_images, test_labels)


class Liars:
    """An attack with its memory of earlier rounds, for the one that is late."""

    def __init__(self, attack: str, rule: Rule, generator: torch.Generator) -> None:
        entry = entry_of(attack)
        self.name = str(entry.pop("name"))
        self.parameters: dict[str, Any] = entry
        if AttackName(self.name).knows_rule:
            self.parameters["rule"] = rule
        self.generator = generator
        self.past: deque[Tensor] = deque(maxlen=DELAY + 1)

    def __call__(self, honest: Tensor, count: int) -> Tensor:
        if self.name == "delayed":
            self.past.append(honest.clone())
            self.parameters["past"] = self.past[0]
        return attack_named(self.name, **self.parameters)(honest, count, self.generator)


def panels(runs: Sequence[Run]) -> dict[str, dict[tuple[str, Column], float]]:
    """Return by attack, the worst of all first, the mean accuracy of each rule and column."""
    found: dict[str, dict[tuple[str, Column], list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        found[run.attack][run.rule, (run.f, run.gamma)].append(run.accuracy)
    means = {
        attack: {cell: sum(each) / len(each) for cell, each in cells.items()}
        for attack, cells in found.items()
    }
    cells = dict.fromkeys(cell for each in means.values() for cell in each)
    least = {cell: min(each[cell] for each in means.values()) for cell in cells}
    return {WORST: least} | means


def draw(runs: Sequence[Run], file: Path) -> None:
    """Draw a panel an attack: a line a rule, a column a pair of f and gamma."""
    from matplotlib.figure import Figure

    drawn = panels(runs)
    rules = list(dict.fromkeys(run.rule for run in runs))
    columns = sorted({(run.f, run.gamma) for run in runs})
    size = (3 + 0.8 * len(columns) * len(drawn), 1.5 + 0.45 * len(rules))
    figure = Figure(figsize=size, layout="constrained")
    row = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for axes, (attack, cells) in zip(row, drawn.items(), strict=True):
        grid = [[cells[rule, column] for column in columns] for rule in rules]
        axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axes.set_yticks(range(len(rules)), rules)
        axes.set_xticks(range(len(columns)), [f"f={f}\n\u03b3={gamma:g}" for f, gamma in columns])
        for y, line in enumerate(grid):
            for x, accuracy in enumerate(line):
                colour = "black" if accuracy > DARK_MAX else "white"
                axes.text(x, y, f"{accuracy:.2f}", ha="center", va="center", color=colour)
        axes.set_title(attack, fontsize="medium")
    figure.suptitle("test accuracy")
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
