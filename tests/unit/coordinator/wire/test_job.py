import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import Job, load_job, parse_job
from pliska.coordinator.wire.job_reader import JOB_FILE_BYTES_MAX
from pliska.coordinator.wire.limits import WORKERS_MAX

ROOT = Path(__file__).parents[4]

SAMPLE = """\
# A job with every key.
name = "sample"
seed = 7

[model]
factory = "mine.digits:model"   # module:function
arguments = { width = 64 }

[data]
factory = "mine.digits:data"
batch = 32
loss = "torch.nn.functional:cross_entropy"

[rule]
name = "multi-krum"
f = 2

[optimizer]
name = "sgd"
lr = 0.1

[rounds]
count = 60
workers = 8
quorum = 7
soft_deadline_s = 2.0
deadline_s = 10.0

[checkpoint]
every = 10
keep = 3

[evaluate]
every = 5
"""

MINIMAL = """\
name = "tiny"
model.factory = "mine:model"
data.factory = "mine:data"
rule.name = "mean"
optimizer = { name = "adam", lr = 1e-3, betas = [0.9, 0.99] }
rounds = { count = 1, workers = 1, quorum = 1 }
"""


def changed(old: str, new: str) -> str:
    assert SAMPLE.count(old) == 1, old
    return SAMPLE.replace(old, new)


def error_of(text: str) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        parse_job(text, "job.toml")
    return caught.value


def test_the_shipped_job_is_valid() -> None:
    path = ROOT / "jobs" / "digits.toml"
    job = load_job(path)
    assert (job.name, job.source) == ("digits", str(path))
    assert job.text == path.read_text()
    assert "name" not in {**job.rule.parameters, **job.optimizer.parameters}


def test_a_job_may_leave_out_what_has_a_default() -> None:
    job = parse_job(MINIMAL, "tiny.toml")
    assert job.seed == 0
    assert job.model.arguments == {}
    assert job.data.batch == 32
    assert job.data.loss == "torch.nn.functional:cross_entropy"
    assert job.optimizer.parameters == {"lr": 1e-3, "betas": [0.9, 0.99]}
    assert (job.rounds.soft_deadline_s, job.rounds.deadline_s) == (2.0, 10.0)
    assert (job.checkpoint.every, job.checkpoint.keep, job.evaluate.every) == (10, 3, 5)


def test_a_job_parses_again_from_the_text_it_carries() -> None:
    job = parse_job(SAMPLE, "first")
    again = parse_job(job.text, "first")
    assert again == job


@pytest.mark.parametrize("workers", [1000, WORKERS_MAX])
def test_a_crowd_of_workers_is_a_job(workers: int) -> None:
    crowded = SAMPLE.replace("workers = 8", f"workers = {workers}")
    rounds = parse_job(crowded.replace("quorum = 7", f"quorum = {workers}"), "sample.toml").rounds
    assert (rounds.workers, rounds.quorum) == (workers, workers)


def test_more_workers_than_there_may_be_are_refused_with_the_most() -> None:
    crowded = SAMPLE.replace("workers = 8", f"workers = {WORKERS_MAX + 1}")
    with pytest.raises(JobFileError, match=f"workers.*whole number from 1 to {WORKERS_MAX}"):
        parse_job(crowded, "sample.toml")


def test_the_line_of_a_key_can_be_asked_for() -> None:
    job = parse_job(SAMPLE, "job.toml")
    lines = SAMPLE.splitlines()
    assert lines[job.line_of("rule.f") - 1].startswith("f = 2")
    assert lines[job.line_of("optimizer.lr") - 1] == "lr = 0.1"
    assert lines[job.line_of("rule.absent") - 1] == "[rule]"


@pytest.mark.parametrize(
    ("old", "new", "message", "advice"),
    [
        ('name = "sample"', 'name = "Digits!"', "name is 'Digits!'", "write 1 to 63"),
        ('name = "sample"', f'name = "{"d" * 64}"', f"name is '{'d' * 64}'", "write 1 to 63"),
        ("seed = 7", "seed = -1", "seed is -1", "write a whole number from 0"),
        ("seed = 7", "sead = 7", "sead is not a key of the job file", 'did you mean "seed"?'),
        ("seed = 7", "quorum = 7", "quorum is not a key of the job file", "belongs in [rounds]"),
        ("seed = 7", "zzz = 7", "zzz is not a key of the job file", "the keys here are name"),
        ("batch = 32", 'lr = "a"', "data.lr is not a key", "the keys here are factory"),
        (":model", ".model", "model.factory is ", 'write a function as "package.module:function"'),
        ("batch = 32", "batch = 0", "data.batch is 0", "write a whole number from 1"),
        ('name = "multi-krum"', "name = 2", "rule.name is a whole number", "write 1 to 63"),
        ("f = 2", "f = 2020-01-01", "rule.f holds a date or time", "write a text, a finite"),
        ('"sgd"', '"sgdd"', "optimizer.name is 'sgdd'", 'write one of "sgd", "adam", "adamw"'),
        ("lr = 0.1", "lr = nan", "optimizer.lr holds nan", "write a text, a finite number"),
        ("workers = 8", "workers = 0", "rounds.workers is 0", "write a whole number from 1 to"),
        (
            "quorum = 7",
            "quorum = 9",
            "rounds.quorum is 9, more than rounds.workers (8)",
            "write a whole number from 1 to 8",
        ),
        ("quorum = 7", "quorm = 7", "rounds.quorm is not a key", 'did you mean "quorum"?'),
        (
            "soft_deadline_s = 2.0",
            "soft_deadline_s = 10.5",
            "rounds.soft_deadline_s is 10.5, after rounds.deadline_s (10)",
            "write at most 10",
        ),
        ("keep = 3", "keep = 0", "checkpoint.keep is 0", "write a whole number from 1"),
        ("[evaluate]", "[evalaute]", "evalaute is not a key", 'did you mean "evaluate"?'),
        ("[checkpoint]", "[[checkpoint]]", "checkpoint is a list", "write [checkpoint]"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_to_write(
    old: str, new: str, message: str, advice: str
) -> None:
    text = changed(old, new)
    error = error_of(text)
    line = next(n for n, each in enumerate(text.splitlines(), 1) if new in each)
    assert (error.line, error.source) == (line, "job.toml")
    assert message in error.message
    assert advice in error.advice
    assert str(error) == f"job.toml:{error.line}: {error.message}; {error.advice}"
    assert error.exit_code == 2


def test_a_missing_key_is_looked_for_in_its_table() -> None:
    error = error_of(changed('factory = "mine.digits:data"', "# gone"))
    assert error.message == "data.factory is missing"
    assert SAMPLE.splitlines()[(error.line or 0) - 1] == "[data]"


def test_a_missing_table_is_named_by_its_first_required_key() -> None:
    assert error_of('name = "a"').message == "model.factory is missing"


def test_a_job_without_a_rule_is_no_mean() -> None:
    assert error_of(MINIMAL.replace('rule.name = "mean"', "")).message == "rule.name is missing"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[rule]", "[rule"),
        ("lr = 0.1", "lr = 0.1.2"),
        ("lr = 0.1", "lr = oops"),
        ("lr = 0.1", "name = 'twice'"),
        ("keep = 3", "keep 3"),
    ],
)
def test_a_syntax_error_is_named_with_its_line(old: str, new: str) -> None:
    text = changed(old, new)
    error = error_of(text)
    assert new in text.splitlines()[(error.line or 0) - 1]
    assert error.message.startswith("this is not TOML: ")


def test_an_unfinished_text_is_reported_at_its_end() -> None:
    error = error_of(SAMPLE + 'x = """\n\n')
    assert error.line == len(SAMPLE.splitlines()) + 2


def test_hostile_texts_are_refused_with_an_error_of_ours() -> None:
    for text in ("a = " + "[" * 20_000, "a = " + "9" * 5000, "a = {" * 9000, "\0", "a." * 9000):
        assert error_of(text).exit_code == 2


def test_a_text_at_the_size_limit_is_read_and_one_byte_more_is_not() -> None:
    padding = JOB_FILE_BYTES_MAX - len(SAMPLE.encode())
    assert parse_job(SAMPLE + "#" * padding, "job.toml").name == "sample"
    assert error_of(SAMPLE + "#" * (padding + 1)).message == "the job file is too long"


@given(st.text(max_size=200))
def test_random_text_is_a_job_or_a_job_file_error(text: str) -> None:
    with contextlib.suppress(JobFileError):
        assert isinstance(parse_job(text, "x"), Job)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"none\.toml: cannot read the job file: No such file"):
        load_job(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "a"\n# caf\xe9\n')
    with pytest.raises(JobFileError, match=r"latin\.toml:2: this is not UTF-8"):
        load_job(tmp_path / "latin.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * (JOB_FILE_BYTES_MAX + 1))
    with pytest.raises(JobFileError, match="too long"):
        load_job(tmp_path / "long.toml")


def test_reading_a_job_imports_neither_torch_nor_the_users_code() -> None:
    program = (
        "import sys; from pliska.coordinator.wire.job import load_job;"
        "load_job('jobs/digits.toml');"
        "print([name for name in sys.modules if name in ('torch', 'pliska.trainer')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
