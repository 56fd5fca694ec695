"""The servers that stand for OpenAI's and Google's sessions, driven by the vendors' own clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.certificates import tls
from support.live_servers import GeminiServer, RealtimeServer

pytestmark = pytest.mark.slow  # they import the vendors' clients

TOOL = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}


def answers(heard: str):
    return ["It is blue."] if "blue" in heard else ["Let me see.", ("look", {"at": "sky"})]


async def test_openais_client_drives_the_realtime_server() -> None:
    from openai import AsyncOpenAI  # here: one worker of three needs it

    async with (
        RealtimeServer(answers) as server,
        AsyncOpenAI(
            api_key="k", websocket_base_url=f"ws://127.0.0.1:{server.port}/v1"
        ).realtime.connect(model="gpt-realtime") as connection,
    ):
        await connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "tools": [TOOL]}
        )
        await connection.conversation.item.create(
            item={
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Which colour?"}],
            }
        )
        await connection.response.create()
        kinds, call = [], None
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.function_call_arguments.done":
                call = event
            if event.type == "response.done":
                break
        assert kinds[0] == "session.created"
        assert "response.output_text.delta" in kinds
        assert (call.name, call.arguments) == ("look", '{"at": "sky"}')
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
        await connection.conversation.item.create(item=output)
        await connection.response.create()
        said = ""
        async for event in connection:
            if event.type == "response.output_text.delta":
                said += event.delta
            if event.type == "response.done":
                assert event.response.usage.input_tokens > 0
                break
        assert said == "It is blue."


async def test_googles_client_drives_the_live_server(tmp_path: Path) -> None:
    from google import genai
    from google.genai import types

    of_server, of_client = tls(tmp_path)
    async with GeminiServer(answers, tls=of_server) as server:
        address = f"https://127.0.0.1:{server.port}"
        options = types.HttpOptions(base_url=address, async_client_args={"ssl": of_client})
        client = genai.Client(api_key="k", http_options=options)
        config = {
            "response_modalities": ["TEXT"],
            "tools": [{"function_declarations": [{"name": "look", "description": "Looks."}]}],
        }
        async with client.aio.live.connect(model="gemini-live", config=config) as session:
            await session.send_client_content(
                turns={"role": "user", "parts": [{"text": "Which colour?"}]}
            )
            said, call = "", None
            async for message in session.receive():
                said += message.text or ""
                if message.tool_call:
                    (call,) = message.tool_call.function_calls
                    break
            assert said == "Let me see."
            assert (call.name, call.args) == ("look", {"at": "sky"})
            await session.send_tool_response(
                function_responses=types.FunctionResponse(
                    id=call.id, name="look", response={"result": "blue"}
                )
            )
            said = ""
            async for message in session.receive():
                said += message.text or ""
            assert said == "It is blue."
