"""`pliska audit`: check a job's files, compute rounds again, prove what became of a gradient.

Data goes to stdout, messages to stderr. Exit codes: 0 as it should be, 2 usage,
3 not found or not kept, 5 something is not what was signed, 8 store unreachable.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from pliska.coordinator.audit.audit import verify_job
from pliska.coordinator.audit.document import DOCUMENT_BYTES_MAX, read_document
from pliska.coordinator.audit.proof import check as check_proof
from pliska.coordinator.audit.proof import prove as make_proof
from pliska.coordinator.audit.recompute import recompute
from pliska.coordinator.audit.replay import Replay, Run
from pliska.coordinator.commands.audit_rows import (
    EVIDENCE_COLUMNS,
    RECOMPUTE_COLUMNS,
    REPLAY_COLUMNS,
    document_fields,
    evidence_row,
    recomputed_row,
    replayed_row,
    report_fields,
)
from pliska.coordinator.commands.audit_source import (
    AuditSource,
    JobArgument,
    JobFileOption,
    KeysOption,
    RoundArgument,
    StorageOption,
)
from pliska.coordinator.errors import AuditUsageError, NotKeptError
from pliska.coordinator.records.audit_keys import KeyBook, key_given, read_keys
from pliska.coordinator.records.evidence import Evidence, digest_of, kind_of
from pliska.coordinator.wire.encoding import encode
from pliska.discovery import Keyring
from pliska.locks import connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

app = typer.Typer(no_args_is_help=True)

UNSOUND = 5
"""Exit code when something is not what was signed."""


@app.command(epilog="Example: pliska audit verify digits --keys keys.json --storage ./storage")
def verify(
    job: JobArgument,
    storage: StorageOption = None,
    keys: KeysOption = None,
    job_file: JobFileOption = None,
    store: StoreOption = DEFAULT_STORE,
    evidence: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where evidence goes against a coordinator that forked."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check every signature, link and digest of a job, from its first round to its newest.

    With --keys it needs nothing but files. Exit code 5: something is not what
    was signed.
    """
    source = AuditSource.open(job, store, storage, keys, job_file)
    reputation = None if source.job is None else source.job.reputation
    report = verify_job(source.storage, job, source.keys, source.head, reputation)
    fields = report_fields(report)
    if output is OutputFormat.JSON:
        show_json(fields)
    else:
        show_rows(output, "checks", ["what", "checked", "wrong"], fields["checks"])
        for check in report.checks.values():
            _say("problem", check.problems)
        _say("note", report.notes)
        verdict = "sound" if report.is_sound else "NOT SOUND"
        typer.echo(f"{job} is {verdict} up to version {report.version} {report.head.hex()[:16]}")
    if evidence is not None:
        _export(evidence, report.forks)
    if not report.is_sound:
        raise typer.Exit(UNSOUND)


@app.command(epilog="Example: pliska audit replay digits --all")
def replay(
    job: JobArgument,
    round_number: Annotated[
        int | None, typer.Argument(metavar="ROUND", min=1, help="Number of the round.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every round whose gradients are kept.")
    ] = False,
    storage: StorageOption = None,
    keys: KeysOption = None,
    job_file: JobFileOption = None,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compute a round again from its kept gradients and compare every digest.

    The same bits come out on the same type of device. Exit code 5: they do not;
    3: the gradients are not kept (any more).
    """
    if (round_number is None) == (not every):
        raise AuditUsageError("name one round, or --all")
    source = AuditSource.open(job, store, storage, keys, job_file)
    replaying = Replay(source.require_job(), source.storage)
    if round_number is None:
        runs = replaying.runs(source.chain().commits)
    else:
        before, commit, _ = source.commits_at(round_number)
        runs = (Run(before, [commit]),)
    rows = []
    for run in runs:
        for commit in run.commits:
            source.keys.commit(commit.signed, job)
        try:
            rows += [replayed_row(each) for each in replaying.rounds(run)]
        except NotKeptError as error:
            raise NotKeptError(f"{error}; {source.led_by(run.commits[0])}") from error
    if not rows:
        raise NotKeptError(
            f"no round's gradients are kept: audit.keep_rounds in the job file of {job} "
            "says how many rounds keep them"
        )
    show_rows(output, "rounds", REPLAY_COLUMNS, rows)
    if not all(row["is_equal"] for row in rows):
        raise typer.Exit(UNSOUND)


@app.command("recompute", epilog="Example: pliska audit recompute digits 12 w3")
def recompute_gradients(
    job: JobArgument,
    round_number: RoundArgument,
    worker: Annotated[
        str | None, typer.Argument(metavar="WORKER", help="Only this worker's.")
    ] = None,
    storage: StorageOption = None,
    keys: KeysOption = None,
    job_file: JobFileOption = None,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compute the gradients of a round again from the workers' batches: who sent another one?

    It needs the job's code and data. Exit code 5: somebody's is further away than
    audit.tolerance; how far can only be said of gradients that are kept.
    """
    source = AuditSource.open(job, store, storage, keys, job_file)
    _, commit, _ = source.commits_at(round_number)
    chain = source.chain().commits
    found = recompute(source.require_job(), source.storage, commit, chain, worker)
    rows = [recomputed_row(each) for each in found]
    if not rows:
        raise NotKeptError(f"no gradient of {worker or 'anybody'} counts in round {round_number}")
    show_rows(output, "gradients", RECOMPUTE_COLUMNS, rows)
    if any(row["is_lie"] for row in rows):
        raise typer.Exit(UNSOUND)


@app.command(epilog="Example: pliska audit prove digits 12 w3 -o w3-round12.proof")
def prove(
    job: JobArgument,
    round_number: RoundArgument,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Name of the worker.")],
    file: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the proof goes.")
    ],
    storage: StorageOption = None,
    keys: KeysOption = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write a proof of what became of WORKER's gradient, which needs no trust in anybody.

    Exit code 3: nothing is known of WORKER in that round.
    """
    source = AuditSource.open(job, store, storage, keys, None)
    _, commit, after = source.commits_at(round_number)
    annex = source.log.head(commit.record.version, commit.digest).annex
    receipts = source.receipts_at(commit, after)
    proof = make_proof(worker, commit, annex, after[0] if after else None, receipts)
    fate = check_proof(proof, source.keys)
    file.write_bytes(encode(proof))
    typer.echo(f"{worker}: {fate.outcome} in round {round_number}; proof in {file}")


@app.command(epilog="Example: pliska audit check w3.proof --keys keys.json")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A proof, or evidence.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=KEY",
            help="A key that counts: coordinator=KEY or worker=KEY, with a public key or its file.",
        ),
    ] = None,
    keys: KeysOption = None,
    store: Annotated[
        str | None, typer.Option(help="Address of a store whose keys count. Default: none.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check a proof or evidence by its signatures alone, and show what it proves.

    Exit code 5: it proves nothing.
    """
    book = _keys_of(key or [], keys, store)
    fields = document_fields(read_document(_read(file, DOCUMENT_BYTES_MAX)), book)
    if output is OutputFormat.JSON:
        show_json(fields)
    else:
        lines = [{"field": name, "value": value} for name, value in fields.items()]
        show_rows(output, "fields", ["field", "value"], lines)


@app.command("evidence", epilog="Example: pliska audit evidence digits --export ./evidence")
def list_evidence(
    job: JobArgument,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Copy the evidence there, for `pliska audit check`."),
    ] = None,
    storage: StorageOption = None,
    keys: KeysOption = None,
    store: StoreOption = DEFAULT_STORE,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what convicts workers and coordinators; each piece is checked first.

    Exit code 5: a piece of evidence proves nothing.
    """
    source = AuditSource.open(job, store, storage, keys, None)
    found = source.evidence()
    rows = [evidence_row(each, source.keys) for each in found]
    rows.sort(key=lambda row: (row["round"], row["digest"]))
    show_rows(output, "evidence", EVIDENCE_COLUMNS, rows)
    if export is not None:
        _export(export, found)


def _keys_of(given: Sequence[str], keys: Path | None, store: str | None) -> KeyBook:
    """Put together whose signatures count."""
    if keys is not None:
        return read_keys(keys)
    if store is not None:
        with closing(connect(store)) as backend:
            return KeyBook.of_enrolled(Keyring(backend).list())
    if not given:
        raise AuditUsageError("say whose signatures count: --key, --keys or --store")
    return KeyBook(key_given(text) for text in given)


def _read(file: Path, bytes_max: int) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(bytes_max + 1)
    except OSError as error:
        raise AuditUsageError(f"cannot read {file}: {error.strerror}") from error


def _export(folder: Path, pieces: Sequence[Evidence]) -> None:
    """Write evidence into files of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for evidence in pieces:
        file = folder / f"{kind_of(evidence)}-{digest_of(evidence).hex()[:16]}.evidence"
        file.write_bytes(encode(evidence))
        typer.echo(f"evidence in {file}", err=True)


def _say(what: str, lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(f"{what}: {line}")
