"""`pliska audit` and `pliska why` on what real processes have trained, lied and missed.

Seven workers: Mallory signs two gradients for the first round, w6 is too late in
the third, the others work. A coordinator in a process of its own writes it all
down; then everything is done with files alone.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from training.mallory import NAME, Mallory
from training.site import Site
from training.toy_job import toy_job
from typer.testing import CliRunner

from pliska.coordinator.client import CoordinatorClient
from pliska.coordinator.commands.main import assemble
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.tls import client_context
from pliska.discovery import public_bytes
from pliska.discovery.keys import public_text

PLISKA = Path(sys.executable).with_name("pliska")
HONEST = ("w1", "w2", "w3", "w4", "w5", "w6")
LATE_ROUND = 3
ROUNDS = 6
NOT_FOUND = 3


def run(site: Site, *words: object, code: int = 0) -> str:
    """Run the command in this process, and return what it prints, or why it refuses."""
    arguments = [str(word) for word in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(site.folder)
        patch.setenv("COLUMNS", "200")
        result = CliRunner().invoke(assemble(arguments), arguments)
    ended = getattr(result.exception, "exit_code", result.exit_code)
    assert ended == code, (words, result.output, result.exception)
    return str(result.exception) if code == NOT_FOUND else result.stdout


def fields(site: Site, *words: object, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(site, *words, "-o", "json", code=code))
    return document


@pytest.fixture
async def trained(site: Site) -> Site:
    """Train the job, and leave only files behind."""
    site.define(
        toy_job(
            count=ROUNDS,
            workers=7,
            quorum=5,
            rule='name = "multi-krum", f = 1',
            soft_deadline_s=4.0,
            more="[audit]\nkeep_rounds = 4\nrecompute = 0.5\n",
        )
    )
    await site.coordinator("c1")
    site.enroll(NAME)
    await site.leads("c1")
    leader = site.directory.leader()
    assert leader is not None
    endpoint = leader.endpoint
    http = HttpClient(f"{endpoint.host}:{endpoint.port}", client_context(endpoint.certificate))
    async with CoordinatorClient(endpoint, "toy") as client, http:
        mallory = Mallory(site, client, http)
        joined = await mallory.join()
        for name in HONEST[:-2]:
            site.worker(name)
        first, late = site.held_worker("w5", 1), site.held_worker("w6", LATE_ROUND)
        await mallory.next_round(joined)
        await site.status(lambda now: now.get("phase") == "collecting")
        replies = [await mallory.push(mallory.frame(mallory.payload(float(n)))) for n in (2, 3)]
        assert [each.code for each in replies] == [ReplyCode.ACCEPTED, ReplyCode.EQUIVOCATION]
        first.go_on.set()
        await site.committed(LATE_ROUND)
        late.go_on.set()
        assert set(await site.finished()) == {ROUNDS}
        await client.leave(joined)
    keys = run(site, "key", "list", "-o", "json", "--store", site.store)
    (site.folder / "keys.json").write_text(keys)
    return site


async def test_rounds_are_verified_replayed_proved_and_explained_from_files_alone(
    trained: Site,
) -> None:
    offline = ("--keys", "keys.json", "--storage", "storage")

    report = fields(trained, "audit", "verify", "toy", *offline)
    assert report["is_sound"]
    assert report["version"] == ROUNDS
    counts = {each["what"]: each["checked"] for each in report["checks"]}
    assert counts["commit records"] == ROUNDS
    assert counts["evidence"] == counts["convictions"] == 1
    online = ("--store", trained.store, "--storage", "storage")
    verifying = await asyncio.create_subprocess_exec(
        PLISKA, "audit", "verify", "toy", *online, cwd=trained.folder, stdout=PIPE
    )
    stdout, _ = await verifying.communicate()
    assert "toy is sound up to version 6" in stdout.decode()
    assert verifying.returncode == 0

    replayed = fields(trained, "audit", "replay", "toy", "--all", *offline)
    assert [(each["round"], each["is_equal"]) for each in replayed["rounds"]] == [
        (number, True) for number in range(ROUNDS - 3, ROUNDS + 1)
    ]
    run(trained, "audit", "replay", "toy", ROUNDS, *offline)
    run(trained, "audit", "replay", "toy", 1, *offline, code=3)
    run(trained, "audit", "replay", "toy", *offline, code=2)

    again = fields(trained, "audit", "recompute", "toy", ROUNDS, *offline)
    assert all(each["is_equal"] for each in again["gradients"])
    again = fields(trained, "audit", "recompute", "toy", 1, NAME, *offline)
    assert [each["is_equal"] for each in again["gradients"]] == [False]
    run(trained, "audit", "recompute", "toy", 1, "nobody", *offline, code=3)

    told = fields(trained, "why", "toy", LATE_ROUND, *offline)
    fates = {each["worker"]: each["fate"] for each in told["workers"]}
    assert fates["w6"] == "late"
    assert fates[NAME] == "quarantined"
    assert {fates[worker] for worker in HONEST[:-1]} <= {"counted", "outvoted"}
    late = next(each for each in told["workers"] if each["worker"] == "w6")
    assert f"s after round {LATE_ROUND} closed" in late["reason"]
    assert late["change"].startswith("arriving ")
    first = fields(trained, "why", "toy", 1, NAME, *offline)
    assert [each["fate"] for each in first["workers"]] == ["refused"]
    run(trained, "why", "toy", 1, "nobody", *offline, code=3)
    run(trained, "why", "toy", 99, *offline, code=3)


async def test_proofs_and_evidence_are_checked_with_keys_alone(trained: Site) -> None:
    offline = ("--keys", "keys.json", "--storage", "storage")
    (coordinator,) = [
        key["public_key"]
        for key in json.loads((trained.folder / "keys.json").read_text())["keys"]
        if key["role"] == "coordinator"
    ]
    cases = [("w1", 2, None), ("w6", LATE_ROUND, "late"), (NAME, LATE_ROUND, "quarantined")]
    for worker, number, fate in cases:
        words = ("audit", "prove", "toy", number, worker, "-o", f"{worker}.proof", *offline)
        assert "proof in" in run(trained, *words)
        key = public_text(public_bytes(trained.keys[worker]))
        keys = ("--key", f"coordinator={coordinator}", "--key", f"worker={key}")
        proved = fields(trained, "audit", "check", f"{worker}.proof", *keys)
        assert (proved["worker"], proved["round"]) == (worker, number)
        assert proved["fate"] == fate or fate is None
        assert proved["position"] == f"built on by version {number + 1}"
    # Somebody else's key instead of the coordinator's: nothing is proved.
    wrong = ("--key", f"coordinator={public_text(public_bytes(trained.keys['w2']))}")
    run(trained, "audit", "check", "w1.proof", *wrong, code=5)
    proof = trained.folder / "w1.proof"
    content = bytearray(proof.read_bytes())
    content[len(content) // 2] ^= 1
    proof.write_bytes(content)
    run(trained, "audit", "check", "w1.proof", "--keys", "keys.json", code=5)
    run(trained, "audit", "prove", "toy", 2, "nobody", "-o", "x", *offline, code=3)

    listed = fields(trained, "audit", "evidence", "toy", *offline, "--export", "evidence")
    (evidence,) = listed["evidence"]
    assert (evidence["kind"], evidence["offender"]) == ("equivocation", NAME)
    (file,) = (trained.folder / "evidence").iterdir()
    charged = fields(trained, "audit", "check", file, "--store", trained.store)
    assert (charged["proves"], charged["offender"], charged["round"]) == ("equivocation", NAME, 1)


async def test_one_byte_changed_anywhere_is_found_by_the_command(trained: Site) -> None:
    """Each kind of file once; `test_audit` of the coordinator does it for every file."""
    files = trained.folder / "storage/jobs/toy"
    kinds = ("log", "payloads", "evidence", "receipts", "checkpoints", "models", "definition")
    for kind in kinds:
        path = next(path for path in sorted((files / kind).rglob("*")) if path.is_file())
        content = path.read_bytes()
        altered = bytearray(content)
        altered[len(content) // 2] ^= 1
        path.write_bytes(altered)
        words = ("audit", "verify", "toy", "--keys", "keys.json", "--storage", "storage")
        report = fields(trained, *words, code=5)
        assert not report["is_sound"], path
        path.write_bytes(content)


async def test_what_a_lost_leader_wrote_down_is_told_by_others_or_found_in_its_files(
    site: Site,
) -> None:
    site.define(
        toy_job(
            count=ROUNDS,
            quorum=2,
            soft_deadline_s=0.5,
            more=f"[audit]\nkeep_rounds = {ROUNDS}\n",
        )
    )
    first, second = site.own_storage("c1"), site.own_storage("c2")
    killed = await site.coordinator("c1", storage=first)
    await site.leads("c1")
    await site.coordinator("c2", storage=second)
    await site.stands_by("c2")
    paces = [site.paced_worker(name) for name in ("w1", "w2")]
    late = site.held_worker("w3", 2)
    for pace in paces:
        pace.allow(2)
    await site.committed(2)
    late.go_on.set()
    await site.status(lambda now: "STALE_ROUND" in now["workers"][2]["replies"])
    for pace in paces:
        pace.allow(4)
    await site.committed(3)
    await site.processes.kill(killed)
    for pace in paces:
        pace.allow(ROUNDS)
    assert set(await site.finished()) == {ROUNDS}

    offline = ("--keys", "keys.json", "--storage")
    (site.folder / "keys.json").write_text(
        run(site, "key", "list", "-o", "json", "--store", site.store)
    )
    told = fields(site, "why", "toy", 2, "w3", *offline, second)
    assert [each["fate"] for each in told["workers"]] == ["late"]
    run(site, "audit", "prove", "toy", 2, "w3", *offline, second, "-o", "w3.proof")
    assert "late" in run(site, "audit", "check", "w3.proof", "--keys", "keys.json")
    assert "led round 2" in run(site, "audit", "replay", "toy", 2, *offline, second, code=NOT_FOUND)
    both = f"{second},{first}"
    replayed = fields(site, "audit", "replay", "toy", "--all", *offline, both)
    assert [(each["round"], each["is_equal"]) for each in replayed["rounds"]] == [
        (number, True) for number in range(1, ROUNDS + 1)
    ]
    for storage in (second, both):
        assert fields(site, "audit", "verify", "toy", *offline, storage)["is_sound"]
    run(site, "why", "toy", 2, *offline, f"{second},nowhere", code=NOT_FOUND)
