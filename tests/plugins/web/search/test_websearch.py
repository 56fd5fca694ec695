"""Searches by three providers and SearXNG: what is sent, and what is read."""

import copy
import json

import httpx
import pytest

from delf.environment import using_environ
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    EnvironmentKeyError,
    LLMExecutionError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.protocols.context import PluginContext
from delf.specs import Provider
from delf_web import WebSearch
from plugins.web.search.conftest import ANSWERS, ANTHROPIC, GOOGLE, KEY, MODELS, OPENAI, answering
from support.raw_http import Reply

every_engine = pytest.mark.parametrize("engine", ANSWERS)
every_model = pytest.mark.parametrize("engine", MODELS)


@every_engine
async def test_results_have_title_address_and_snippet(engine, open_search) -> None:
    found = await open_search(engine).search("largest lakes of Europe")
    assert [page["url"] for page in found["results"]] == [
        "https://a.test/ladoga",
        "https://c.test/lakes",
    ]
    first = found["results"][0]
    assert first["title"] in ("Lake Ladoga", "a.test")
    assert "Ladoga is the largest" in first["snippet"]
    if engine != "searxng":
        assert "Ladoga is the largest." in found["answer"]


@every_engine
async def test_search_returns_at_most_the_requested_results(engine, open_search) -> None:
    assert len((await open_search(engine, results=1).search("lakes"))["results"]) == 1


# -- as the vendors' own SDKs do ----------------------------------------------------------------


def sent(server, number: int = -1) -> dict:
    return json.loads(server.seen[number].body)


@pytest.mark.slow
async def test_openai_request_matches_its_sdk(open_search, server) -> None:
    from openai import AsyncOpenAI  # here: one worker of three needs it

    await open_search("openai", domains=["a.test"]).search("lakes")
    body = sent(server)
    async with AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0) as client:
        shown = await client.responses.create(**body)
    ours, theirs = server.seen
    assert (ours.path, sent(server, 0)) == (theirs.path, sent(server, 1))
    assert ours.header("Authorization") == theirs.header("Authorization") == f"Bearer {KEY}"
    assert body["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}]
    (note,) = shown.output[2].content[0].annotations
    assert (note.url, note.title) == ("https://a.test/ladoga", "Lake Ladoga")
    assert [s.url for s in shown.output[1].action.sources][1] == "https://c.test/lakes"
    assert shown.to_dict(mode="json", warnings=True)["usage"] == OPENAI["usage"]


@pytest.mark.slow
async def test_anthropic_request_matches_its_sdk(open_search, server) -> None:
    from anthropic import AsyncAnthropic

    await open_search("anthropic", domains=["a.test"]).search("lakes")
    body = sent(server)
    async with AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
        shown = await client.messages.create(**body)
    ours, theirs = server.seen
    assert (ours.path, sent(server, 0)) == (theirs.path, sent(server, 1))
    assert ours.header("x-api-key") == theirs.header("x-api-key") == KEY
    assert ours.header("anthropic-version") == theirs.header("anthropic-version")
    assert shown.content[1].content[0].title == "Lake Ladoga"
    assert shown.content[2].citations[0].cited_text == "Ladoga is the largest lake of Europe"
    assert shown.usage.server_tool_use.web_search_requests == 1


@pytest.mark.slow
async def test_gemini_request_matches_its_sdk(open_search, server) -> None:
    from google import genai
    from google.genai import types as gemini

    await open_search("google").search("lakes")
    body = sent(server)
    async with httpx.AsyncClient() as http:
        options = gemini.HttpOptions(base_url=server.url, httpx_async_client=http)
        models = genai.Client(api_key=KEY, http_options=options).aio.models
        tool = gemini.Tool(google_search=gemini.GoogleSearch())
        shown = await models.generate_content(
            model=MODELS["google"],
            contents=body["contents"][0]["parts"][0]["text"],
            config=gemini.GenerateContentConfig(tools=[tool]),
        )
    ours, theirs = server.seen
    assert ours.path == theirs.path
    theirs_body = sent(server, 1)
    assert body["contents"] == theirs_body["contents"]
    assert body["tools"] == theirs_body["tools"]
    assert ours.header("x-goog-api-key") == theirs.header("x-goog-api-key") == KEY
    grounds = shown.candidates[0].grounding_metadata
    assert grounds.grounding_chunks[0].web.uri == "https://a.test/ladoga"
    assert grounds.grounding_supports[0].segment.text == "Ladoga is the largest."


async def test_searxng_request_asks_for_json(open_search, server) -> None:
    await open_search("searxng", language="de", domains=["a.test"]).search("große Seen")
    assert server.last.target == ("/search?q=gro%C3%9Fe+Seen+site%3Aa.test&format=json&language=de")


# -- what may come ------------------------------------------------------------------------------


async def test_paused_turn_is_continued(open_search, server) -> None:
    search = open_search("anthropic")
    paused = {**ANTHROPIC, "stop_reason": "pause_turn", "content": ANTHROPIC["content"][:2]}
    replies = [paused, ANTHROPIC]
    server.answer = lambda seen: Reply(200, json.dumps(replies.pop(0)).encode())
    found = await search.search("lakes")
    assert found["answer"] == "Ladoga is the largest."
    assert [m["role"] for m in sent(server)["messages"]] == ["user", "assistant"]


async def test_failed_claude_search_raises(open_search, server) -> None:
    search = open_search("anthropic")
    shown = copy.deepcopy(ANTHROPIC)
    shown["content"][1]["content"] = {
        "type": "web_search_tool_result_error",
        "error_code": "max_uses_exceeded",
    }
    del shown["content"][2]
    answering(server, shown)
    with pytest.raises(ToolExecutionError, match="max_uses_exceeded"):
        await search.search("lakes")


async def test_blocked_gemini_prompt_raises(open_search, server) -> None:
    search = open_search("google")
    answering(server, {"promptFeedback": {"blockReason": "SAFETY"}})
    with pytest.raises(ToolExecutionError, match="SAFETY"):
        await search.search("lakes")


async def test_failed_openai_answer_raises(open_search, server) -> None:
    search = open_search("openai")
    answering(server, {**OPENAI, "status": "failed", "error": {"code": "x", "message": "sorry"}})
    with pytest.raises(ToolExecutionError, match="sorry"):
        await search.search("lakes")


async def test_answer_without_a_search_has_no_results(open_search, server) -> None:
    search = open_search("google")
    shown = copy.deepcopy(GOOGLE)
    del shown["candidates"][0]["groundingMetadata"]
    answering(server, shown)
    assert (await search.search("lakes"))["results"] == []


@every_engine
@pytest.mark.parametrize("shown", [b"<html>", b"[]", b"7", b'{"output": [7], "content": [7]}'])
async def test_malformed_answer_raises(engine, shown, open_search, server) -> None:
    search = open_search(engine)
    answering(server, shown)
    if engine == "searxng" and shown.startswith(b"{"):
        assert (await search.search("lakes"))["results"] == []
        return
    with pytest.raises((ToolExecutionError, LLMExecutionError)):
        await search.search("lakes")


def _with_null(value, field):
    """Return a copy of JSON data in which a field is null, wherever it occurs."""
    if isinstance(value, dict):
        return {k: None if k == field else _with_null(v, field) for k, v in value.items()}
    return [_with_null(item, field) for item in value] if isinstance(value, list) else value


@every_engine
@pytest.mark.parametrize(
    "field",
    ["url", "uri", "title", "snippet", "cited_text", "start_index", "segment", "sources", "web"],
)
async def test_null_field_of_an_answer_leaves_the_other_fields_readable(
    engine, field, open_search, server
) -> None:
    search = open_search(engine)
    answering(server, _with_null(ANSWERS[engine], field))
    found = await search.search("lakes")
    assert found["answer"] or found["results"] or (engine, field) == ("searxng", "url")


@pytest.mark.parametrize("shown", [{"results": [7]}, {"results": 7}, {"answers": [7]}])
async def test_malformed_searxng_answer_raises(shown, open_search, server) -> None:
    search = open_search("searxng")
    answering(server, shown)
    with pytest.raises(ToolExecutionError, match="not a search result"):
        await search.search("lakes")


async def test_result_with_an_invalid_url_is_of_no_domain(open_search, server) -> None:
    search = open_search("searxng", domains=["c.test"])
    answering(server, {"results": [{"url": "http://[c.test"}, {"url": "https://c.test/lakes"}]})
    assert [p["url"] for p in (await search.search("lakes"))["results"]] == ["https://c.test/lakes"]


async def test_endlessly_paused_answer_is_marked_as_incomplete(open_search, server) -> None:
    search = open_search("anthropic")
    answering(server, {**ANTHROPIC, "stop_reason": "pause_turn"})
    assert (await search.search("lakes"))["answer"].endswith("(The answer broke off here.)")


@every_model
@pytest.mark.parametrize(("status", "hint"), [(401, "check the key"), (429, "wait"), (404, "name")])
async def test_rejected_request_error_suggests_a_remedy(
    engine, status, hint, open_search, server
) -> None:
    search = open_search(engine)
    answering(server, {"error": {"message": f"no, {KEY}"}}, status)
    with pytest.raises(LLMExecutionError) as caught:
        await search.search("lakes")
    assert caught.value.status == status
    assert hint in (caught.value.hint or "")
    assert KEY not in caught.value.describe()


async def test_searxng_without_json_suggests_a_remedy(open_search, server) -> None:
    search = open_search("searxng")
    answering(server, b"Forbidden", 403)
    with pytest.raises(ConnectionUnavailableError) as caught:
        await search.search("lakes")
    assert "search.formats" in (caught.value.hint or "")


@every_engine
async def test_unreachable_host_raises(engine, open_search) -> None:
    where = {"searxng": "http://127.0.0.1:1"} if engine == "searxng" else {"llm": MODELS[engine]}
    if engine != "searxng":
        where |= {"base_url": "http://127.0.0.1:1/v1", "api_key": KEY}
    with pytest.raises((ConnectionUnavailableError, LLMExecutionError), match="reach"):
        await WebSearch(**where).search("lakes")


# -- settings -----------------------------------------------------------------------------------


@every_model
async def test_missing_search_key_error_names_the_variable(engine) -> None:
    with using_environ({}):
        search = WebSearch(llm=MODELS[engine])
        with pytest.raises(EnvironmentKeyError, match="_API_KEY"):
            await search.search("lakes")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"llm": "gpt-5.5", "searxng": "http://x"},
        {"llm": "groq/llama"},
        {"llm": "gemini-3.5-flash", "domains": ["a.test"]},
    ],
)
def test_contradictory_settings_are_refused_at_start(settings) -> None:
    with pytest.raises(ConnectionConfigurationError):
        WebSearch(**settings)


@pytest.mark.parametrize("engine", ["searxng", "openai"])
@pytest.mark.parametrize("query", ["", "  ", "x" * 3000, "half \ud83d"])
async def test_search_without_usable_words_is_refused(query, engine, open_search) -> None:
    with pytest.raises(ToolRefusedError):
        await open_search(engine).search(query)


async def test_results_of_other_domains_are_dropped(open_search) -> None:
    found = await open_search("searxng", domains=["c.test"]).search("lakes")
    assert [page["url"] for page in found["results"]] == ["https://c.test/lakes"]


@pytest.mark.parametrize("given", ["providers", "api_key_for"])
async def test_agent_keys_are_used_for_searches(given, open_search, server) -> None:
    search = open_search("openai", api_key=None)
    keys = {"openai": KEY} if given == "providers" else {f"{server.url}/v1": KEY}
    search.use_context(PluginContext(**{given: keys}))
    await search.search("lakes")
    assert server.last.header("Authorization") == f"Bearer {KEY}"


@pytest.mark.parametrize("model", ["acme-3", "acme/acme-3"])
async def test_search_asks_the_installed_provider_of_its_model(model, server, plugin_site) -> None:
    provider = Provider(
        name="acme",
        models=("acme-*",),
        keys=("ACME_KEY",),
        dialect="openai",
        url=f"{server.url}/v1",
    )
    plugin_site.add(
        "acme",
        f"""
from delf.hookspecs import hookimpl
from delf.specs import ModelSpec, Provider

@hookimpl
def delf_models():
    yield ModelSpec(name="acme", summary="Acme.", factory="acme:Model", providers=({provider!r},))
""",
    )
    answering(server, ANSWERS["openai"])
    with using_environ({"OPENAI_API_KEY": "of-openai", "ACME_KEY": KEY}):
        await WebSearch(llm=model).search("lakes")
    assert server.last.header("Authorization") == f"Bearer {KEY}"
    assert sent(server)["model"] == "acme-3"
