"""Lets visitors in: a challenge, a signed visit, a token. Alike at coordinators and at workers.

Who counts as a visitor is `coordinator.visitors`; here it is spoken over the wire.
"""

from collections.abc import Mapping

from pliska.coordinator import routes
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.visitors import Visitors
from pliska.coordinator.wire import Reply, ReplyCode, Request, Response


async def receive(visitors: Visitors, action: str, request: Request) -> Response | None:
    """Answer one step of a visit; None where the action is none."""
    if action == routes.VISIT_CHALLENGE:
        return _accepted({routes.NONCE: visitors.challenge().hex()})
    if action != routes.VISIT:
        return None
    visitor = await visitors.visit(await request.body.read(routes.HELLO_BYTES_MAX))
    if isinstance(visitor, Refusal):
        return refused(visitor)
    return _accepted({routes.TOKEN: visitor.token})


def refused(refusal: Refusal) -> Response:
    """Turn somebody away."""
    return Response.of_reply(Reply(code=refusal.code, reason=refusal.reason))


def _accepted(headers: Mapping[str, str]) -> Response:
    response = Response.of_reply(Reply(code=ReplyCode.ACCEPTED))
    return Response(response.status, {**response.headers, **headers}, response.body)
