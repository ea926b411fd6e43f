"""The job file as the leader ran it, kept beside its log so that an audit needs no store.

`jobs/JOB/definition/DIGEST.toml`, named by the SHA-256 of its text. Files that
differ in their words only mean the same job.
"""

from hashlib import sha256

from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.job import Job, parse_job
from pliska.coordinator.wire.job_reader import JOB_FILE_BYTES_MAX


class KeptJob:
    """The kept definition of one job. Blocks on the disk."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the definition of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._job = job
        self._folder = f"jobs/{job}/definition/"

    def write(self, job: Job) -> None:
        """Keep a job's text, unless it is there already."""
        text = job.text.encode()
        name = f"{self._folder}{sha256(text).hexdigest()}.toml"
        if self._storage.size(name) is None:
            self._storage.write(name, [text])

    def names(self) -> list[str]:
        """Return the names of what is kept."""
        return self._storage.names(self._folder)

    def read(self) -> Job:
        """Read the job.

        Raises:
            NotKeptError: No leader has kept it here.
            DamagedStateError: The text is not the one that it is named by.
            JobFileError: The text is not a job that this version understands.
        """
        names = self.names()
        if not names:
            raise NotKeptError(
                f"no job file of {self._job} is kept in this storage: name one with --job-file"
            )
        return parse_job(self.text(names[0]), names[0])

    def text(self, name: str) -> str:
        """Read one of `names`.

        Raises:
            DamagedStateError: It is not the one that it is named by.
        """
        content = self._storage.read(name, JOB_FILE_BYTES_MAX)
        if name != f"{self._folder}{sha256(content).hexdigest()}.toml":
            raise DamagedStateError(f"{name}: its content is not the one that it is named by")
        return content.decode()
