"""A git repository, worked on by git's own plumbing: no index, no work tree, no shell.

Objects are added under their own hash, where nobody sees them until one reference
is created, so a crash leaves the repository as it was. Git is always given
argument lists, and what comes from outside stands where git takes no option.
It runs no hooks. Called by `git_publication`; knows nothing of models.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pliska.coordinator.registry.errors import (
    DestinationError,
    IntegrityError,
    NotFoundError,
    RegistryConflictError,
    RegistryUsageError,
)

TIMEOUT_S = 600.0
"""For one call of git; the longest one adds one tensor."""

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsync=objects,reference",
    "core.looseCompression=0",  # weights hardly shrink, and git packs later anyway
)
_OBJECT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_TREE_ENTRY = re.compile(rb"100644 blob ([0-9a-f]{40,64})\t([^\0]+)")


class GitRepository:
    """A bare or a working repository on this machine. Safe to use beside other users of it."""

    def __init__(self, directory: Path) -> None:
        """Find the repository.

        Raises:
            NotFoundError: There is no such directory, or no repository in it.
            DestinationError: There is no `git` program.
        """
        self.directory = directory
        if not directory.is_dir():
            raise NotFoundError(f"there is no directory {directory}")
        found = self._run(["rev-parse", "--absolute-git-dir"])
        if found.returncode != 0:
            raise NotFoundError(f"{directory} is no git repository: {_reason(found)}")

    def check_reference(self, reference: str) -> None:
        """Raise `RegistryUsageError` where git allows no reference of this name."""
        if self._run(["check-ref-format", reference]).returncode != 0:
            raise RegistryUsageError(f"git allows no reference {reference!r}")

    def references(self, prefix: str) -> dict[str, str]:
        """Return the references below `prefix` and the objects they point at, sorted."""
        listed = self._output(["for-each-ref", "--format=%(objectname) %(refname)", prefix])
        pairs = (line.split(" ", 1) for line in listed.decode("utf-8", "replace").splitlines())
        return {name: target for target, name in pairs}

    def create_reference(self, reference: str, target: str) -> None:
        """Make a new reference.

        Raises:
            RegistryConflictError: It exists.
        """
        done = self._run(["update-ref", "--", reference, target, ""])
        if done.returncode != 0:
            if reference in self.references(reference):
                raise RegistryConflictError(f"{self.directory}: {reference} exists already")
            raise self._failed("update-ref", done)

    def add_blob(self, content: bytes) -> str:
        """Add a file's content; one that is there already stays as it is."""
        return self._object(["hash-object", "-w", "--stdin"], content)

    def add_tree(self, files: Mapping[str, str], folders: Mapping[str, str]) -> str:
        """Add a folder of blobs and trees, each by name."""
        lines = [f"100644 blob {target}\t{name}\0" for name, target in files.items()]
        lines += [f"040000 tree {target}\t{name}\0" for name, target in folders.items()]
        return self._object(["mktree", "-z"], "".join(lines).encode())

    def add_commit(self, tree: str, parent: str | None, message: str, time_s: int) -> str:
        """Add a commit of a time in seconds since 1970; the same arguments make the same commit."""
        before = [] if parent is None else ["-p", parent]
        who = {"NAME": "Pliska", "EMAIL": "pliska@localhost", "DATE": f"@{time_s} +0000"}
        roles = {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in who.items()
        }
        return self._object(["commit-tree", *before, tree], message.encode(), roles)

    def files_below(self, commit: str, folder: str) -> dict[str, str]:
        """Return the plain files in a folder of a commit: name to blob; empty where it is not."""
        listed = self._output(["ls-tree", "-z", commit, f"{folder}/"])
        matched = (_TREE_ENTRY.fullmatch(line) for line in listed.split(b"\0"))
        return {
            each[2].decode("utf-8", "replace").removeprefix(f"{folder}/"): each[1].decode()
            for each in matched
            if each is not None
        }

    def read_file(self, commit: str, path: str, bytes_max: int) -> bytes:
        """Return a file of a commit. Raises as `read_blob`."""
        return self.read_blob(f"{commit}:{path}", bytes_max)

    def read_blob(self, blob: str, bytes_max: int) -> bytes:
        """Return a blob's bytes.

        Raises:
            IntegrityError: There is no such blob, or it is longer than `bytes_max`.
        """
        size = self._run(["cat-file", "-s", blob])
        if size.returncode != 0 or int(size.stdout) > bytes_max:
            raise IntegrityError(f"{self.directory}: {blob} is missing, or over {bytes_max} bytes")
        read = self._run(["cat-file", "blob", blob])
        if read.returncode != 0:
            raise IntegrityError(f"{self.directory}: {blob} cannot be read: {_reason(read)}")
        return read.stdout

    def _object(
        self, arguments: Sequence[str], content: bytes, more: Mapping[str, str] | None = None
    ) -> str:
        """Run what prints the name of one object."""
        name = self._output(arguments, content, more).decode("ascii", "replace").strip()
        if not _OBJECT.fullmatch(name):
            raise DestinationError(f"git {arguments[0]} answered {name[:80]!r}, not an object")
        return name

    def _output(
        self,
        arguments: Sequence[str],
        content: bytes = b"",
        more: Mapping[str, str] | None = None,
    ) -> bytes:
        done = self._run(arguments, content, more)
        if done.returncode != 0:
            raise self._failed(arguments[0], done)
        return done.stdout

    def _run(
        self,
        arguments: Sequence[str],
        content: bytes = b"",
        more: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[bytes]":
        try:
            return subprocess.run(  # noqa: S603 - a list of arguments, no shell
                self._command(arguments),
                env=_environment(more or {}),
                input=content,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise DestinationError("there is no program `git` on PATH; install it") from error
        except subprocess.TimeoutExpired as error:
            raise DestinationError(f"git {arguments[0]} took more than {TIMEOUT_S:g} s") from error

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        return ["git", "-C", os.fspath(self.directory), *settings, *arguments]

    def _failed(self, what: str, done: "subprocess.CompletedProcess[bytes]") -> DestinationError:
        return DestinationError(f"git {what} failed in {self.directory}: {_reason(done)}")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return ours without what would point git at another repository or index."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **inherited,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        **more,
    }


def _reason(done: "subprocess.CompletedProcess[bytes]") -> str:
    return done.stderr.decode("utf-8", "replace").strip()[-500:] or f"exit code {done.returncode}"
