"""`delf mcp serve` under the suite of `@modelcontextprotocol/conformance`.

`make conformance` runs it, with a port of loopback.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import uvicorn

from delf import Agent, CallContext, tool
from delf.testing import ScriptedModel, TestHost
from delf_mcp.serving import Served

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"


def picture() -> dict[str, Any]:
    return {"type": "image", "media_type": "image/png", "data": PIXEL}


def resource(uri: str, media_type: str, content: str) -> dict[str, Any]:
    return {"type": "resource", "uri": uri, "media_type": media_type, "content": content}


@tool(effect="read", confirm=False)
def test_simple_text() -> str:
    """Text."""
    return "This is a simple text response for testing."


@tool(effect="read", confirm=False)
def test_image_content() -> dict[str, Any]:
    """A picture."""
    return picture()


@tool(effect="read", confirm=False)
def test_audio_content() -> dict[str, Any]:
    """A sound."""
    return {"type": "audio", "media_type": "audio/wav", "data": SOUND}


@tool(effect="read", confirm=False)
def test_embedded_resource() -> dict[str, Any]:
    """Return an embedded text resource."""
    return resource(
        "test://embedded-resource", "text/plain", "This is an embedded resource content."
    )


@tool(effect="read", confirm=False)
def test_multiple_content_types() -> list[Any]:
    """All of them."""
    return [
        "Multiple content types test:",
        picture(),
        resource(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ]


@tool(effect="read", confirm=False)
def test_error_handling() -> str:
    """Fails."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(effect="read", confirm=False)
def test_tool_with_progress(context: CallContext) -> str:
    """Says how it goes."""
    for part in ("begun", "half", "done"):
        context.say(part)
    return "It was long."


@tool(effect="irreversible")
def test_elicitation(message: str) -> str:
    """Does what somebody has to agree to."""
    return message


TOOLS = [
    test_tool_with_progress,
    test_elicitation,
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
]


def agent(**more: Any) -> Agent:
    model = ScriptedModel()
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    return Agent(tools=TOOLS, llm="scripted", host=host, **more)


if __name__ == "__main__":
    app = Served(agent).server().streamable_http_app(host="127.0.0.1")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
