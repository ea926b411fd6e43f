"""Reading a body whose pieces the test hands out."""

import weakref
from types import SimpleNamespace
from typing import Any

from pliska.coordinator.wire.http_body import STANDARD, HttpBody


class Piece(bytearray):
    """Bytes that can be watched."""


class Stream:
    """Gives pieces, one a read, and says at each which of them are still in memory."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self._given: list[weakref.ref[Piece]] = []
        self.kept: list[int] = []

    async def readany(self) -> Piece:
        self.kept.append(sum(each() is not None for each in self._given))
        self._given.append(weakref.ref(self._pieces[0]))
        return self._pieces.pop(0)


def body_of(stream: Stream, length: int) -> HttpBody:
    request: Any = SimpleNamespace(headers={}, content_length=length, content=stream)
    return HttpBody(request, STANDARD)


async def test_a_piece_is_forgotten_once_it_is_read() -> None:
    stream = Stream([Piece(b"ab"), Piece(b"cde"), Piece(b"fg"), Piece(b"h")])
    body = body_of(stream, 8)
    first, second = bytearray(3), bytearray(5)
    await body.read_into(memoryview(first))
    await body.read_into(memoryview(second))
    assert (bytes(first), bytes(second)) == (b"abc", b"defgh")
    assert stream.kept == [0, 0, 0, 0]
    assert body.remaining == 0
