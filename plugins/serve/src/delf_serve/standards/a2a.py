"""The two endpoints of A2A, for its versions 1.0 and 0.3, whose messages ``a2a-sdk`` parses."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from delf_serve.call import Call
from delf_serve.operation import Operations
from delf_serve.problems import ProblemError

A2A: Final = Operations()
"""The operations of the A2A protocol."""
RPC: Final = "/a2a"
_CARD: Final = "/.well-known/agent-card.json"


@A2A.add("GET", _CARD, right="read")
async def agent_card(call: Call) -> Response:
    """Return the card that describes this agent to other agents."""
    _require_package()
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    from delf_serve.standards.a2a_tasks import card_of

    return JSONResponse(agent_card_to_dict(await card_of(call, RPC)))


@A2A.add("POST", RPC, right="read", request_media="*/*", any_query=True)
async def a2a_request(call: Call) -> Response:
    """Answer an A2A request of another agent."""
    _require_package()
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

    from delf_serve.standards.a2a_tasks import A2ATasks

    # Read the body here, because the library would read it without the server's limits.
    body = b"".join([chunk async for chunk in call.chunks()])

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    dispatcher = JsonRpcDispatcher(A2ATasks(call), enable_v0_3_compat=True)
    return await dispatcher.handle_requests(Request(call.http.scope, receive))


def _require_package() -> None:
    if find_spec("a2a") is None:
        raise ProblemError(
            501, "A2A needs the package a2a-sdk", "delf plugins install 'serve[a2a]'"
        )
