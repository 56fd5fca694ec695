"""Open sessions with both providers: calls, results, cuts, farewells, and what takes their place."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from delf import Agent, LLMConfig, tool
from delf.errors import ConfigurationError
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.testing import ScriptedModel, TestHost
from delf_strategy_stream.strategy import StreamStrategy
from support.live_servers import GeminiServer, LiveServer, Piece, RealtimeServer
from support.openai_server import OpenAIServer, Reply, Request

NAMES = ("Ann", "Bob", "Cem")
END = "All three are kept."


def shown(received: str) -> list[str]:
    """Return the names of stored values in the prompt."""
    return [name for name in NAMES if f"kept {name}" in received]


def in_markers(received: str) -> Sequence[Piece]:
    left = [name for name in NAMES if name not in shown(received)]
    if not left:
        return [END]
    call = f'{{"name": "keep", "args": {{"name": "{left[0]}"}}}}'
    look = '{"name": "look", "args": {}}'
    return [f"<think>Next.</think>Now {left[0]}.<execute>[{look}, {call}]</execute>"]


def in_calls(received: str) -> Sequence[Piece]:
    left = [name for name in NAMES if name not in shown(received)]
    return [f"Now {left[0]}.", ("look", {}), ("keep", {"name": left[0]})] if left else [END]


def over_http(notation: str) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        pieces = (in_calls if notation == "tools" else in_markers)(request.body.decode())
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        calls = [piece for piece in pieces if isinstance(piece, tuple)]
        import json

        return Reply(text=text, calls=tuple((n, json.dumps(args)) for n, args in calls))

    return reply


class World:
    """The tools, and a record of their calls."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    async def run(
        self, config: LLMConfig, notation: str, listeners: Sequence[Any] = (), **options: Any
    ) -> Any:
        @tool(effect="write", confirm=False)
        async def keep(name: str) -> str:
            """Keep a name."""
            self.kept.append(name)
            return f"kept {name}"

        @tool(effect="read", confirm=False)
        async def look() -> str:
            """Look around."""
            return "all is well \ud83d"  # half of a character, which a socket cannot send

        host = TestHost.discover(environ={})
        strategy = StreamStrategy(notation=notation, **options)
        async with Agent(tools=[keep, look], llm=config, host=host, strategy=strategy) as agent:
            return await agent.arun("Keep Ann, Bob and Cem.", 20, listeners=listeners)


both = pytest.mark.parametrize("kind", [RealtimeServer, GeminiServer])
notations = pytest.mark.parametrize("notation", ["markers", "tools"])


def answers_of(notation: str) -> Any:
    return in_calls if notation == "tools" else in_markers


def config_of(server: LiveServer, http: OpenAIServer | None = None) -> LLMConfig:
    if http is not None:
        settings = {"live_model": server.address}
        return LLMConfig("gpt-4o-mini", base_url=http.base_url, api_key="k", settings=settings)
    if isinstance(server, GeminiServer):
        return LLMConfig("gemini-live", base_url=server.root, api_key="k", provider="google")
    return LLMConfig("gpt-realtime", base_url=f"{server.root}/v1", api_key="k")


def ended(response: Any) -> list[str]:
    return [text for text in response.trace.warnings if "session" in text]


@both
@notations
async def test_task_runs_in_one_session(kind: Any, notation: str) -> None:
    world = World()
    async with kind(answers_of(notation)) as server:
        response = await world.run(config_of(server), notation)
        assert (response.text, world.kept) == (END, list(NAMES))
        assert server.connections == 1
        assert ended(response) == []
        assert response.trace.usage.total_tokens > 0
        words = str(server.requests)
        assert words.count("Keep Ann, Bob and Cem.") == 1
        headers = server.headers[0]
        assert "k" in headers.get("authorization", headers.get("x-goog-api-key", ""))


@both
@notations
async def test_replay_mode_opens_a_session_per_turn(kind: Any, notation: str) -> None:
    world = World()
    async with kind(answers_of(notation)) as server:
        response = await world.run(config_of(server), notation, mode="replay")
        assert (response.text, world.kept) == (END, list(NAMES))
        assert server.connections == 4


def cut_once(kind: str, nth: int = 1) -> Callable[[str], bool]:
    left = itertools.count(1)
    return lambda seen: seen == kind and next(left) == nth


async def kinds_of(kind: Any, notation: str) -> list[str]:
    async with kind(answers_of(notation)) as server:
        await World().run(config_of(server), notation)
        assert server.kinds
        return sorted(set(server.kinds))


@both
@notations
async def test_session_cut_at_any_event_finishes_the_task(kind: Any, notation: str) -> None:
    for event in await kinds_of(kind, notation):
        world, nth = World(), 2 if event.startswith("server") else 1
        async with kind(answers_of(notation), cut=cut_once(event, nth)) as server:
            response = await world.run(config_of(server), notation)
            assert (response.text, response.error, world.kept) == (END, None, list(NAMES)), event
            if server.kinds.count(event) >= nth and event != server.kinds[-1]:
                assert server.connections >= 2, event


@notations
async def test_repeatedly_cut_session_falls_back_to_requests(notation: str) -> None:
    world, seen = World(), list[Any]()

    def cut(kind: str) -> bool:
        return kind == "server response.output_text.done"

    with OpenAIServer(over_http(notation)) as http:
        async with RealtimeServer(answers_of(notation), cut=cut) as server:
            response = await world.run(config_of(server, http), notation, [seen.append])
            assert (response.text, world.kept) == (END, list(NAMES))
            assert server.connections == 2
            first, second = ended(response)
            assert "is opened again" in first
            assert "ended, and single requests are sent instead" in second
        assert http.requests


async def test_unavailable_session_is_reported_and_replaced_by_requests() -> None:
    world = World()
    with OpenAIServer(over_http("markers")) as http:
        async with RealtimeServer(in_markers, refuse=403) as server:
            response = await world.run(config_of(server, http), "markers")
            assert (response.text, world.kept) == (END, list(NAMES))
            first, second = ended(response)
            assert re.search(r"403|not allowed|no sessions today", first)
            assert "could not be opened, and it is tried once more" in first
            assert "could not be opened, and single requests are sent instead" in second


class Silent:
    """A session that sends its first pieces and then falls silent."""

    closed = 0

    def __init__(self, *pieces: ModelDelta) -> None:
        self.pieces = pieces

    async def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        for piece in self.pieces:
            yield piece
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        Silent.closed += 1
        await asyncio.Event().wait()


KEEP = '<execute>[{"name": "keep", "args": {"name": "Ann"}}]</execute>'


class Sessions(ScriptedModel):
    """A model with fixed sessions."""

    def __init__(self, *sessions: Any) -> None:
        super().__init__()
        self.sessions = list(sessions)

    async def connect(self) -> Any:
        session: Silent | Callable[[], Awaitable[Any]] | None = self.sessions.pop(0)
        return await session() if callable(session) else session


async def stream(model: ScriptedModel, **options: Any) -> tuple[Any, list[str]]:
    kept: list[str] = []

    @tool(effect="read", confirm=False)
    async def keep(name: str) -> str:
        """Keep a name."""
        kept.append(name)
        return f"kept {name}"

    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    strategy = StreamStrategy(session_seconds=0.01, **options)
    async with Agent(tools=[keep], llm="scripted", host=host, strategy=strategy) as agent:
        return await agent.arun("Keep Ann.", 20), kept


async def test_silent_session_falls_back_without_repeating_a_call() -> None:
    """The session falls silent at the beginning, after a call has begun, or when closed."""
    model = Sessions(Silent(ModelDelta(KEEP)), Silent())
    model.replies.append("Done.")
    response, kept = await stream(model)
    assert (response.text, response.error, kept) == ("Done.", None, ["Ann"])
    first, second = ended(response)
    assert "silent for 0.01 s" in second
    assert "is opened again" in first
    assert "single requests are sent instead" in second


async def test_session_that_does_not_open_falls_back_to_requests() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    model = Sessions(never, never)
    model.replies.append("Done.")
    response, _ = await stream(model)
    assert response.text == "Done."
    assert all("could not be opened" in text for text in ended(response))


async def test_resume_mode_requires_sessions() -> None:
    response, _ = await stream(Sessions(Silent(), Silent()), mode="resume")
    assert "silent for 0.01 s" in response.error
    assert "the task fails" in ended(response)[-1]
    with pytest.raises(ConfigurationError, match="has no sessions that stay open"):
        await stream(Sessions(None), mode="resume")
    with pytest.raises(ConfigurationError, match="mode"):
        StreamStrategy(mode="rezume")


async def test_session_continues_after_a_go_away_message() -> None:
    world = World()
    async with GeminiServer(in_calls, farewell=1) as server:
        response = await world.run(config_of(server), "tools")
        assert (response.text, world.kept) == (END, list(NAMES))
        assert server.connections == 4
        assert len(server.resumed) == 3
        assert str(server.requests).count("Keep Ann, Bob and Cem.") == 1
        assert ended(response) == []


async def test_unresumable_session_is_rebuilt_from_the_journal() -> None:
    world = World()
    async with GeminiServer(in_calls, farewell=1, resumable=False) as server:
        response = await world.run(config_of(server), "tools")
        assert (response.text, world.kept) == (END, list(NAMES))
        assert ended(response)
        assert str(server.requests).count("Keep Ann, Bob and Cem.") > 1


async def test_results_of_cancelled_calls_are_not_sent() -> None:
    world = World()
    async with GeminiServer(in_calls, cancels=1) as server:
        response = await world.run(config_of(server), "tools")
        assert (response.text, world.kept) == (END, list(NAMES))
        given = [
            each.id
            for message in server.requests
            if message.tool_response is not None
            for each in message.tool_response.function_responses
        ]
        assert server.cancelled
        assert not set(server.cancelled) & set(given)
        assert "that you cancelled was made" in str(server.requests)
