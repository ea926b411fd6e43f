"""On which line of a TOML text each key stands; `tomllib` parses but does not say.

Not a parser: the text must already have been accepted by `tomllib`. It walks
over headers, keys, strings, arrays and inline tables only far enough to tell
keys from values. The job file uses it to say where a mistake is.
"""

import re
import tomllib
from bisect import bisect_right

KeyPath = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_STRING = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\]|\\.)*"'''
    r"""|'{3}.*?'{3,5}|'[^']*'""",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class TomlLines:
    """The line of every key and table of a TOML text, counted from 1."""

    def __init__(self, text: str) -> None:
        """Walk over `text`, which `tomllib.loads` accepts."""
        self._text = text.replace("\r\n", "\n")
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", self._text))]
        self._lines: dict[KeyPath, int] = {}
        self._position = 0
        self._walk_document()

    def line_of(self, path: KeyPath) -> int:
        """The line where `path` first stands; that of its table when it is absent; else 1."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 1

    def _walk_document(self) -> None:
        table: KeyPath = ()
        self._skip(_BLANK)
        while self._position < len(self._text):
            if self._take("["):
                self._take("[")
                self._skip(_BLANK)
                table = self._walk_key(())
                self._skip(_BLANK)
                self._take("]")
                self._take("]")
            else:
                self._walk_pair(table)
            self._skip(_BLANK)

    def _walk_pair(self, table: KeyPath) -> None:
        path = self._walk_key(table)
        self._skip(_BLANK)
        self._take("=")
        self._skip(_BLANK)
        self._walk_value(path)

    def _walk_key(self, table: KeyPath) -> KeyPath:
        line = bisect_right(self._line_starts, self._position)
        path = table
        while True:
            path = (*path, _unquoted(self._skip(_KEY_PART)))
            self._lines.setdefault(path, line)
            if not self._skip(_DOT):
                return path

    def _walk_value(self, path: KeyPath) -> None:
        if self._take("["):
            self._walk_items("]", path)
        elif self._take("{"):
            self._walk_items("}", path)
        elif not self._skip(_STRING):
            self._skip(_SCALAR)

    def _walk_items(self, closing: str, path: KeyPath) -> None:
        """An array's values belong to `path` as a whole; a table's keys stand below it."""
        self._skip(_BLANK)
        while not self._take(closing):
            if closing == "}":
                self._walk_pair(path)
            else:
                self._walk_value(path)
            self._skip(_BLANK)
            self._take(",")
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._position)
        if found is None:
            return ""
        self._position = found.end()
        return found.group()

    def _take(self, character: str) -> bool:
        if not self._text.startswith(character, self._position):
            return False
        self._position += len(character)
        return True


def _unquoted(key: str) -> str:
    """The key that a bare or quoted spelling stands for."""
    return next(iter(tomllib.loads(f"{key} = 0"))) if key[:1] in ("'", '"') else key
