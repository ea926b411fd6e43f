"""The three jobs of the demonstration are job files that Pliska takes."""

from dataclasses import replace
from pathlib import Path

import pytest

from pliska.coordinator.wire.job import Job, load_job, parse_job
from pliska.trainer.demo.jobs import RunName, demo_jobs
from pliska.trainer.demo.options import DemoOptions

ROOT = Path(__file__).parents[4]


def parsed(options: DemoOptions) -> dict[RunName, Job]:
    return {job.run: parse_job(job.text, job.name) for job in demo_jobs(options)}


def test_robust_job_is_the_one_that_the_readme_runs_by_hand() -> None:
    by_hand = load_job(ROOT / "jobs" / "digits.toml")
    robust = parsed(DemoOptions(seed=by_hand.seed))[RunName.ROBUST]
    assert robust.model.arguments["hidden"] == by_hand.model.arguments["hidden"]
    neutral = {
        "name": "same",
        "text": "",
        "source": "",
        "model": by_hand.model,
        "data": replace(robust.data, arguments={}),
    }
    assert replace(robust, **neutral) == replace(by_hand, name="same", text="", source="")


@pytest.mark.parametrize("rule", ["multi-krum", "krum", "trimmed-mean", "coordinate-median"])
def test_runs_differ_in_name_and_rule_only(rule: str) -> None:
    jobs = parsed(DemoOptions(rule=rule))
    assert [job.rule.name for job in jobs.values()] == [rule, "mean", "mean"]
    assert [job.name for job in jobs.values()] == ["demo-robust", "demo-mean", "demo-clean"]
    robust = jobs[RunName.ROBUST]
    for job in jobs.values():
        assert (
            replace(robust, name=job.name, rule=job.rule, text=job.text, source=job.source) == job
        )


def test_clean_run_has_as_many_workers_and_no_attacker() -> None:
    robust, mean, clean = demo_jobs(DemoOptions())
    assert robust.byzantine == mean.byzantine == ("w7", "w8")
    assert clean.byzantine == ()
    assert robust.workers == mean.workers == clean.workers


def test_model_fits_the_images_of_mnist(tmp_path: Path) -> None:
    job = parsed(DemoOptions(data=f"mnist:{tmp_path}"))[RunName.ROBUST]
    assert job.model.arguments["pixels"] == 28 * 28
    assert job.data.arguments["source"] == f"mnist:{tmp_path}"


def test_path_with_quotes_stays_a_path(tmp_path: Path) -> None:
    hostile = f'{tmp_path}/"\n[rule]\nname = "mean'
    job = parsed(DemoOptions(data=f"mnist:{hostile}"))[RunName.ROBUST]
    assert job.data.arguments["source"] == f"mnist:{hostile}"
    assert job.rule.name == "multi-krum"


@pytest.mark.parametrize(("workers", "byzantine", "quorum"), [(8, 2, 7), (7, 2, 7), (20, 2, 19)])
def test_quorum_is_enough_for_the_rule(workers: int, byzantine: int, quorum: int) -> None:
    jobs = parsed(DemoOptions(workers=workers, byzantine=byzantine))
    assert jobs[RunName.ROBUST].rounds.quorum == quorum
