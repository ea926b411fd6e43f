"""Where a demonstration keeps what it makes: one directory, nothing outside it.

DIR/store/        the embedded coordination store, the registry and the coordinators' key
DIR/storage/      update log, checkpoints and models of the jobs
DIR/keys/         the workers' private keys
DIR/jobs/         the three job files
DIR/logs/         what each process printed
DIR/report.json   DIR/accuracy.png
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pliska.discovery import Keyring, Role, new_private_key, public_bytes, write_private_key
from pliska.locks import connect
from pliska.trainer.demo.errors import DemoUsageError
from pliska.trainer.demo.jobs import DemoJob


@dataclass(frozen=True, slots=True)
class Site:
    """The places of one demonstration below `directory`, an absolute path."""

    directory: Path

    @classmethod
    def at(cls, directory: Path) -> "Site":
        """Make the directory.

        Raises:
            DemoUsageError: It cannot be made, or something is in it.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            is_empty = not any(directory.iterdir())
        except OSError as error:
            raise DemoUsageError(f"{directory} cannot be used: {error.strerror}") from error
        if not is_empty:
            raise DemoUsageError(f"{directory} is not empty: name a new directory, or empty it")
        return cls(directory.absolute())

    @property
    def store(self) -> str:
        """Address of the coordination store."""
        return f"embedded:{self.directory / 'store'}"

    @property
    def storage(self) -> Path:
        """Where the coordinators keep log, checkpoints and models."""
        return self.directory / "storage"

    @property
    def logs(self) -> Path:
        """What each process printed."""
        return self.directory / "logs"

    @property
    def report(self) -> Path:
        """The facts for programs."""
        return self.directory / "report.json"

    @property
    def chart(self) -> Path:
        """The picture."""
        return self.directory / "accuracy.png"

    def key_file(self, worker: str) -> Path:
        """The private key of a worker."""
        return self.directory / "keys" / f"{worker}.pem"

    def job_file(self, job: DemoJob) -> Path:
        """The job file of a run."""
        return self.directory / "jobs" / f"{job.name}.toml"

    def model_file(self, job: DemoJob) -> Path:
        """The last version of a finished run, as a safetensors file."""
        models = self.storage / "jobs" / job.name / "models"
        return models / f"{job.rounds:012d}.safetensors"

    def write_jobs(self, jobs: Iterable[DemoJob]) -> None:
        """Write the job files."""
        for job in jobs:
            path = self.job_file(job)
            path.parent.mkdir(exist_ok=True)
            path.write_text(job.text, encoding="utf-8")

    def enrol_workers(self, workers: Iterable[str]) -> None:
        """Make a key for each worker and enrol it, as `pliska key new` and `enroll` do."""
        with closing(connect(self.store)) as backend:
            keyring = Keyring(backend)
            for worker in workers:
                private_key, path = new_private_key(), self.key_file(worker)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                write_private_key(path, private_key)
                keyring.enroll(worker, Role.WORKER, public_bytes(private_key))
