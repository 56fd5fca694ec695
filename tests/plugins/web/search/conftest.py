import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from delf_web import WebSearch
from support.plugin_site import site as plugin_site  # noqa: F401 - a fixture
from support.raw_http import RawServer, Reply, raw_server

OPENAI: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1780000000,
    "status": "completed",
    "model": "gpt-5.5",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "required",
    "tools": [{"type": "web_search"}],
    "top_p": 1.0,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {
                "type": "search",
                "query": "lakes",
                "sources": [
                    {"type": "url", "url": "https://a.test/ladoga"},
                    {"type": "url", "url": "https://c.test/lakes"},
                ],
            },
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "The lakes:\n- Ladoga is the largest. ([a.test](https://a.test/ladoga))",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "start_index": 36,
                            "end_index": 69,
                            "url": "https://a.test/ladoga",
                            "title": "Lake Ladoga",
                        }
                    ],
                }
            ],
        },
    ],
    "usage": {
        "input_tokens": 8000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 200,
        "output_tokens_details": {"reasoning_tokens": 50},
        "total_tokens": 8200,
    },
}
ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "content": [
        {
            "type": "server_tool_use",
            "id": "srv_1",
            "name": "web_search",
            "input": {"query": "lakes"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srv_1",
            "content": [
                {
                    "type": "web_search_result",
                    "url": "https://a.test/ladoga",
                    "title": "Lake Ladoga",
                    "encrypted_content": "x",
                    "page_age": "3 days ago",
                },
                {
                    "type": "web_search_result",
                    "url": "https://c.test/lakes",
                    "title": "Lakes",
                    "encrypted_content": "y",
                    "page_age": None,
                },
            ],
        },
        {
            "type": "text",
            "text": "Ladoga is the largest.",
            "citations": [
                {
                    "type": "web_search_result_location",
                    "url": "https://a.test/ladoga",
                    "title": "Lake Ladoga",
                    "encrypted_index": "z",
                    "cited_text": "Ladoga is the largest lake of Europe",
                }
            ],
        },
    ],
    "usage": {
        "input_tokens": 8000,
        "output_tokens": 200,
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    },
}
GOOGLE: dict[str, Any] = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "Ladoga is the largest."}]},
            "finishReason": "STOP",
            "groundingMetadata": {
                "webSearchQueries": ["lakes"],
                "groundingChunks": [
                    {"web": {"uri": "https://a.test/ladoga", "title": "a.test"}},
                    {"web": {"uri": "https://c.test/lakes", "title": "c.test"}},
                ],
                "groundingSupports": [
                    {
                        "segment": {
                            "startIndex": 0,
                            "endIndex": 22,
                            "text": "Ladoga is the largest.",
                        },
                        "groundingChunkIndices": [0],
                    }
                ],
            },
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 7000,
        "toolUsePromptTokenCount": 1000,
        "candidatesTokenCount": 150,
        "thoughtsTokenCount": 50,
        "totalTokenCount": 8200,
    },
}
SEARXNG: dict[str, Any] = {
    "query": "lakes",
    "number_of_results": 2,
    "results": [
        {
            "url": "https://a.test/ladoga",
            "title": "Lake Ladoga",
            "content": "Ladoga is the largest lake of Europe",
            "engine": "duckduckgo",
            "engines": ["duckduckgo"],
            "score": 1.0,
            "category": "general",
        },
        {"url": "https://c.test/lakes", "title": "Lakes", "content": "", "engine": "bing"},
    ],
    "answers": [],
    "corrections": [],
    "infoboxes": [],
    "suggestions": [],
    "unresponsive_engines": [],
}
ANSWERS = {"openai": OPENAI, "anthropic": ANTHROPIC, "google": GOOGLE, "searxng": SEARXNG}
MODELS = {"openai": "gpt-5.5", "anthropic": "claude-sonnet-5", "google": "gemini-3.5-flash"}
KEY = "key-5ecret-77"

Open = Callable[..., WebSearch]


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as running:
        yield running


def answering(server: RawServer, shown: Any, status: int = 200) -> None:
    """Make the server give the same answer to every request."""
    body = shown if isinstance(shown, bytes) else json.dumps(shown).encode()
    server.answer = lambda seen: Reply(status, body)


@pytest.fixture
def open_search(server: RawServer) -> Open:
    """Makes a connection to the server, which answers like the search engine."""

    def make(engine: str, **settings: Any) -> WebSearch:
        answering(server, ANSWERS[engine])
        if engine == "searxng":
            return WebSearch(searxng=server.url, **settings)
        root = f"{server.url}/v1" if engine == "openai" else server.url
        options = {"llm": MODELS[engine], "api_key": KEY, "base_url": root, **settings}
        return WebSearch(**options)

    return make
