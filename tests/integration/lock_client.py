"""A process that does what its standard input says with a lock: run by test_locks_processes.py.

Usage: lock_client.py ADDRESS LEASE_S. One command a line, one JSON answer a line.
"""

import json
import os
import sys
import time
from typing import Any

from pliska.locks import (
    Backend,
    Election,
    FencedStore,
    ForkedProcessError,
    Grant,
    GrantLostError,
    LockError,
    Mutex,
    Session,
    connect,
)


class LockClient:
    def __init__(self, backend: Backend, session: Session) -> None:
        self._backend = backend
        self._session = session
        self._grant: Grant | None = None
        self._fenced = FencedStore(backend, "fenced")

    def acquire(self, name: str, timeout_s: str) -> dict[str, Any]:
        self._grant = Mutex(self._session, name).acquire(float(timeout_s))
        return {"token": self._grant.token, "at": time.monotonic()}

    def campaign(self, name: str, candidate_id: str) -> dict[str, Any]:
        self._grant = Election(self._session, name, candidate_id).campaign(30)
        return {"epoch": self._grant.token, "at": time.monotonic()}

    def look(self) -> dict[str, Any]:
        """What the very first look at the grant says."""
        assert self._grant is not None
        held = self._grant.held
        try:
            self._grant.check()
        except GrantLostError as error:
            return {"held": held, "lost": True, "reason": str(error)}
        return {"held": held, "lost": False}

    def write(self, name: str, value: str) -> dict[str, Any]:
        assert self._grant is not None
        self._fenced.write(name, value.encode(), self._grant.token)
        return {}

    def release(self) -> dict[str, Any]:
        assert self._grant is not None
        return {"released": self._grant.release()}

    def churn(self, name: str, seconds: str) -> dict[str, Any]:
        """Take and give the lock as often as possible."""
        tokens, deadline_s = [], time.monotonic() + float(seconds)
        mutex = Mutex(self._session, name)
        while time.monotonic() < deadline_s:
            with mutex.hold(timeout_s=20) as grant:
                tokens.append(grant.token)
        return {"tokens": tokens}

    def write_often(self, key: str, seconds: str) -> dict[str, Any]:
        """Write to the store in a tight loop, as fast as it takes it."""
        deadline_s, count, slowest_s = time.monotonic() + float(seconds), 0, 0.0
        while time.monotonic() < deadline_s:
            started_s = time.monotonic()
            self._backend.create(f"{key}/{os.getpid()}-{count}", b"")
            slowest_s = max(slowest_s, time.monotonic() - started_s)
            count += 1
        return {"count": count, "slowest_s": slowest_s}

    def fork(self) -> dict[str, Any]:
        """What a forked child may do with each handle."""
        assert self._grant is not None
        grant, mutex = self._grant, Mutex(self._session, "other")
        tries = {
            "get": lambda: self._backend.get("a"),
            "acquire": mutex.acquire,
            "held": lambda: grant.held,
            "token": lambda: grant.token,
            "release": grant.release,
            "check": self._session.check,
            "wait": lambda: self._backend.wait_for_change("a", self._backend.list("a").revision, 1),
        }
        reader, writer = os.pipe()
        if os.fork() == 0:
            refused = []
            for name, attempt in tries.items():
                try:
                    attempt()
                except ForkedProcessError:
                    refused.append(name)
            os.write(writer, json.dumps(refused).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as answers:
            refused = json.loads(answers.read())
        os.wait()
        return {"allowed": sorted(set(tries) - set(refused)), "held": grant.held}


def main() -> None:
    backend = connect(sys.argv[1])
    with Session.open(backend, float(sys.argv[2])) as session:
        client = LockClient(backend, session)
        answer({"session": session.id})
        for line in sys.stdin:
            command, *arguments = line.split()
            try:
                answer(getattr(client, command)(*arguments))
            except LockError as error:
                answer({"error": type(error).__name__})


def answer(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
