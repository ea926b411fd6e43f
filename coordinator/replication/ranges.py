"""Answers a request for a part of a resource: alike at a coordinator and at a worker that donates.

Ranges are asked for as `Range: bytes=first-last`, both counted from the first leaf
on (see `sealed`). Nothing is decided here about who may ask.
"""

import asyncio
import re

from pliska.coordinator.replication.sealed import RANGE_BYTES_MAX, Sealed
from pliska.coordinator.wire import Reply, ReplyCode, Request, Response

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")


async def answer_range(sealed: Sealed, request: Request) -> Response:
    """Give the part of a resource that a request names, cut at the resource's end.

    Raises:
        StorageError: What holds the payload is gone, or failed.
    """
    asked = _RANGE.fullmatch(request.headers.get("range", ""))
    start, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, 0)
    if not 0 < end - start <= RANGE_BYTES_MAX or start >= sealed.length:
        reason = f"ask for a range of 1 to {RANGE_BYTES_MAX} bytes within {sealed.length}"
        refused = Reply(code=ReplyCode.SCHEMA, reason=reason)
        return Response(416, {"content-type": "application/json"}, refused.to_json())
    content = await asyncio.to_thread(sealed.read, start, end - start)
    headers = {
        "content-type": "application/octet-stream",
        "content-range": f"bytes {start}-{start + len(content) - 1}/{sealed.length}",
    }
    return Response(206, headers, content)
