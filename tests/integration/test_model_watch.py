"""`pliska model watch` as programs use it: killed, interrupted, gone on with from its last line."""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from services.shell import WAIT_MAX_S, Shell

END_MAX_S = 30.0


class Watcher:
    """A running `pliska model watch -o json` whose lines are read one by one."""

    def __init__(self, shell: Shell, *words: object) -> None:
        self.process = shell.start("model", "watch", *words, "-o", "json")

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = json.loads(self.process.stdout.readline())
        assert line.pop("schema_version") == 1
        return dict(line)

    def end(self, how: int) -> tuple[int, str]:
        """Send a signal; return the exit code and what it said."""
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=END_MAX_S)
        return self.process.returncode, said


@pytest.fixture
def watchers(shell: Shell) -> Iterator[list[Watcher]]:
    """Processes that do not outlive the test."""
    started: list[Watcher] = []
    yield started
    for watcher in started:
        watcher.process.kill()
        watcher.process.communicate()


def begin(watchers: list[Watcher], shell: Shell, *words: object) -> Watcher:
    watchers.append(Watcher(shell, *words))
    return watchers[-1]


def test_whoever_is_killed_goes_on_from_its_last_line_without_loss_or_repetition(
    shell: Shell, watchers: list[Watcher]
) -> None:
    shell.prepare(1, 2, prod=[1])
    watcher = begin(watchers, shell)
    first = watcher.line()
    assert first["event"] == "watching"
    shell.prepare(3, prod=[2])
    seen = [watcher.line()]
    watcher.process.kill()
    shell.prepare(prod=[3])
    rest = begin(watchers, shell, "--from", seen[-1]["cursor"])
    assert rest.line() == {"cursor": seen[-1]["cursor"], "event": "watching"}
    seen += [rest.line() for _ in range(4)]
    shell.prepare(prod=[1])
    seen += [rest.line() for _ in range(2)]
    assert [each["event"] for each in seen] == ["version", *("ended", "alias") * 3]
    assert [each["to"] for each in seen if each["event"] == "alias"] == [2, 3, 1]
    assert len({each["cursor"] for each in seen}) == len(seen)
    assert rest.end(signal.SIGINT) == (0, "")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_as_a_matter_of_course(
    shell: Shell, watchers: list[Watcher], how: signal.Signals
) -> None:
    watcher = begin(watchers, shell)
    assert watcher.line() == {"cursor": "0", "event": "watching"}
    assert watcher.end(how) == (0, "")


def test_it_ends_when_nobody_reads_any_more(shell: Shell, watchers: list[Watcher]) -> None:
    watcher = begin(watchers, shell, "digits@prod")
    watcher.line()
    assert watcher.process.stdout is not None
    watcher.process.stdout.close()
    assert watcher.process.wait(timeout=END_MAX_S) == 0, "though nothing happened that it could say"
    assert watcher.process.stderr is not None
    assert watcher.process.stderr.read() == ""


def test_a_pipe_that_closes_while_it_has_much_to_say_is_no_error(shell: Shell) -> None:
    shell.prepare(*range(1, 9), prod=[1, 2] * 40)
    watcher = shell.start("model", "watch", "--from", "0")
    head = subprocess.Popen(
        ["/usr/bin/head", "-n", "2"], stdin=watcher.stdout, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    watcher.stdout.close()
    lines, _ = head.communicate(timeout=WAIT_MAX_S)
    assert [line.split()[1] for line in lines.splitlines()] == ["event=watching", "event=version"]
    assert watcher.wait(timeout=END_MAX_S) == 0
    assert watcher.stderr is not None
    with watcher.stderr:
        assert watcher.stderr.read() == ""
