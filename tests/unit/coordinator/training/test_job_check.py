import sys
from pathlib import Path

import pytest

from pliska.coordinator.training.job_check import check_job
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import parse_job

TEXT = """\
name = "tiny"

[model]
factory = "tiny_task:model"
arguments = {}

[data]
factory = "tiny_task:data"
loss = "torch.nn.functional:cross_entropy"

[rule]
name = "multi-krum"
f = 2

[optimizer]
name = "sgd"
lr = 0.1

[rounds]
count = 9
workers = 8
quorum = 7
"""


@pytest.fixture(autouse=True)
def other_code(user_code: Path) -> None:
    (user_code / "misfit.py").write_text(
        "from torch import nn\n"
        "def wide(): return nn.Linear(9, 2)\n"
        "def image(): return nn.BatchNorm1d(3, track_running_stats=False)\n"
        "def loss(output, target): return output\n"
        "def constant(output, target): return 3\n"
    )
    sys.modules.pop("misfit", None)


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


def test_a_good_job_passes() -> None:
    check_job(parse_job(TEXT, "tiny.toml"))


@pytest.mark.parametrize(
    ("text", "line", "message", "advice"),
    [
        (changed("multi-krum", "multikrum"), 12, "no rule 'multikrum'", "write one of mean,"),
        (
            changed("f = 2", 'f = 2\npre = ["nmn"]'),
            14,
            "no pre-aggregator 'nmn'",
            "write one of nnm, bucketing,",
        ),
        (
            changed("multi-krum", "fltrust"),
            12,
            "fltrust compares with a trusted gradient, and a coordinator has none",
            "write another rule",
        ),
        (
            changed("multi-krum", "foolsgold"),
            12,
            "foolsgold remembers the gradients of every worker",
            "write another rule",
        ),
        (changed("f = 2", "g = 2"), 13, "multi-krum has no parameter 'g'", "write what"),
        (changed("f = 2", ""), 12, "multi-krum needs a value for 'f'", "write what"),
        (changed("f = 2", "f = -1"), 13, "f must be a whole number of at least 0", "write what"),
        (changed("f = 2", "f = 1.5"), 13, "f must be a whole number", "write what"),
        (
            changed("f = 2", "f = 3"),
            21,
            "rounds.workers is 8, but multi-krum with f = 3 needs n >= 2f + 3",
            "write at least 9, or lower rule.f",
        ),
        (
            changed("quorum = 7", "quorum = 6"),
            22,
            "rounds.quorum is 6, but multi-krum with f = 2 needs",
            "write at least 7, or lower rule.f",
        ),
        (
            changed("multi-krum", "smea").replace("workers = 8", "workers = 250"),
            21,
            "smea with n=250 and f=2 would try 31125 subsets of 248",
            "change rule.name or rule.f",
        ),
        (
            TEXT.replace("f = 2", "f = 0.2").replace("quorum = 7", "quorum = 5"),
            22,
            "rounds.quorum allows 6, but multi-krum with f = 2 needs n >= 2f + 3",
            "write at least",
        ),
        (
            TEXT + "[hybrid]\nbuffer = 7\n[asynchronous]\nbuffers = 6\n",
            26,
            "asynchronous.buffers is 6, but multi-krum with f = 2 needs n >= 2f + 3",
            "write at least 7",
        ),
        (
            TEXT.replace("f = 2", "f = 3").replace("multi-krum", "trimmed-mean")
            + "[asynchronous]\nbuffers = 1\n",
            24,
            "with f = 3 it needs n >= 3f + 1, more than rounds.workers (8)",
            "lower rule.f",
        ),
        (changed("lr = 0.1", "rl = 0.1"), 17, "sgd has no parameter 'rl'", "write 'lr'"),
        (changed("lr = 0.1", "lr = -0.1"), 17, "sgd's lr is -0.1", "write a number of at least 0"),
        (changed("tiny_task:model", "gone:model"), 4, "there is no module 'gone'", "start in"),
        (changed("tiny_task:data", "tiny_task:date"), 8, "has no 'date'", "such as data"),
        (changed("functional:cross_entropy", "functional:cross"), 9, "has no 'cross'", "name one"),
        (changed("arguments = {}", "arguments = { widht = 4 }"), 5, "do not fit", "model(width=5)"),
        (
            changed("tiny_task:model", "misfit:wide"),
            4,
            "the model cannot take the inputs of data.factory: RuntimeError: mat1 and mat2",
            "make the two fit each other",
        ),
        (
            changed("torch.nn.functional:cross_entropy", "misfit:loss"),
            9,
            "the loss of the model's output and a target fails: RuntimeError: grad can be",
            "name a function of (output, target)",
        ),
        (
            changed("torch.nn.functional:cross_entropy", "misfit:constant"),
            9,
            "AttributeError: 'int' object has no attribute 'backward'",
            "name a function",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_to_write(
    text: str, line: int, message: str, advice: str
) -> None:
    with pytest.raises(JobFileError) as caught:
        check_job(parse_job(text, "tiny.toml"))

    assert message in caught.value.message
    assert advice in caught.value.advice
    assert str(caught.value).startswith(f"tiny.toml:{line}: ")


def test_a_layer_that_needs_more_than_one_example_passes() -> None:
    check_job(parse_job(changed("tiny_task:model", "misfit:image"), "tiny.toml"))
