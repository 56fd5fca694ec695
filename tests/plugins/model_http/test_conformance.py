"""What is sent is what the providers define, and what comes is read as their own SDKs read it."""

import functools
import json
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from delf.errors import LLMExecutionError
from delf.messages import (
    FilePart,
    ImagePart,
    ModelRequest,
    ModelTool,
    ToolCall,
    ToolResult,
    assistant,
    results,
    system,
    user,
)
from support.model_calls import PNG, PROVIDERS, at
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply
from support.workspace import ROOT

SPECIFICATION = ROOT.parent / "shared" / "data" / "openapi" / "openai.yaml"
ADD = ModelTool(
    name="add",
    description="Adds.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "why": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
CALL = ToolCall(id="call_1", name="add", arguments='{"a": 1}', token="c2lnbmVk")
FILES = (
    ImagePart(PNG, "image/png"),
    FilePart("a.csv", b"a,b", "text/csv"),
    FilePart("a.pdf", b"%PDF", "application/pdf"),
    FilePart("a.jpg", b"jpg", "image/jpeg"),
)
BROUGHT = ToolResult(id="call_1", name="add", text="3")
REQUESTS = {
    "plain": ask(),
    "without rules": ModelRequest(messages=(user("hi"),)),
    "conversation": ModelRequest(
        messages=(system("rules " * 1000), system("be kind"), user("q"), assistant("a"), user("b"))
    ),
    "files": ModelRequest(messages=(user("look", FILES),)),
    "nothing said": ModelRequest(messages=(user("q"), assistant(""), user(" "))),
    "tools": ModelRequest(messages=(user("q"),), tools=(ADD,)),
    "a call is wanted": ModelRequest(messages=(user("q"),), tools=(ADD,), must_call=True),
    "calls": ModelRequest(
        messages=(user("q"), assistant("so", [CALL]), results([BROUGHT]), user("and?")),
        tools=(ADD,),
    ),
    "unknown characters": ModelRequest(messages=(user("ünï 🙂 \ud800 \x00 \u2028"),)),
}
SETTINGS = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 40,
    "max_tokens": 12,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.3,
    "stop": ["END"],
    "seed": 7,
    "timeout": 20,
}


@functools.cache
def chat_completions():
    """OpenAI's own schema of a request."""
    if not SPECIFICATION.exists():
        pytest.skip("needs ../shared/data/openapi")
    import yaml12

    spec = yaml12.read_yaml(str(SPECIFICATION))
    schema = {
        "$ref": "#/components/schemas/CreateChatCompletionRequest",
        "components": spec["components"],
    }
    return Draft202012Validator(schema)


def judge(provider, sent):
    """Fail where the provider would not know a field, or not take its value."""
    from . import vendors

    if provider == "openai":
        error = next(chat_completions().iter_errors(sent), None)
        assert error is None, error
    elif provider == "anthropic":
        kind = vendors.ClaudeStreams if sent.get("stream") else vendors.Claude
        checked = kind.model_validate({"body": sent}).body
        list(checked.get("tools", ()))  # an iterable is judged when it is read
        for message in checked["messages"]:
            for block in message["content"]:
                assert isinstance(block, dict), f"{block!r} is what an answer would hold"
    else:
        vendors.Gemini.model_validate(sent)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("settings", [{}, SETTINGS], ids=["", "settings"])
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_request_is_as_the_provider_defines_it(
    provider, kind, settings, stream, openai_server, http_model
):
    server = openai_server(["fine"])
    config = at(server, provider, settings=settings)
    if provider == "openai":  # what is left out for OpenAI itself is known by its address
        config |= {"settings": {k: v for k, v in settings.items() if k != "top_k"}}
    model = http_model(**config)
    if stream:
        await read_stream(model, REQUESTS[kind])
    else:
        await model.complete(REQUESTS[kind])
    judge(provider, server.json[0])


def test_the_judges_can_say_no():
    for provider in PROVIDERS:
        with pytest.raises((AssertionError, ValueError)):
            judge(provider, {"model": "m", "messages": [{"role": "nobody", "content": 1}]})
    with pytest.raises(AssertionError, match="unheard_of"):
        good = {"role": "user", "content": [{"type": "text", "text": "a", "unheard_of": 1}]}
        judge("anthropic", {"model": "m", "max_tokens": 1, "messages": [good]})


REPLIES = {
    "text": Reply(text="one two  three\nfour ünï 🙂", usage=(100, 20, 50, 5)),
    "cut": Reply(text="half an", finish_reason="length", usage=(9, 9)),
    "call": Reply(calls=(("add", '{"a": 1, "why": "ü"}'),), usage=(9, 9)),
    "text and calls": Reply(text="so it is", calls=(("add", "{}"), ("add", '{"a": 2}'))),
    "no usage": Reply(text="a", usage=None),
    "nothing": Reply(text=""),
}


async def by_sdk(provider, server, *, stream):
    """Text, calls, tokens in and out, and the reason to finish, as the SDK reads them."""
    from . import vendors

    name = PROVIDERS[provider][0]
    asked = [{"role": "user", "content": "hi"}]
    if provider == "openai":
        return await by_openai(
            vendors.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0),
            name,
            asked,
            stream,
        )
    if provider == "anthropic":
        async with vendors.AsyncAnthropic(
            base_url=server.root_url, api_key="k", max_retries=0
        ) as client:
            given = {"model": name, "max_tokens": 9, "messages": asked}
            if stream:
                async with client.messages.stream(**given) as events:
                    message = await events.get_final_message()
            else:
                message = await client.messages.create(**given)
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(b.name, b.input) for b in message.content if b.type == "tool_use"]
        used = message.usage
        tokens = (used.input_tokens + (used.cache_read_input_tokens or 0), used.output_tokens)
        return text, calls, tokens, message.stop_reason
    return await by_google(server, name, stream)


async def by_openai(client, name, asked, stream):
    async with client:
        if not stream:
            reply = await client.chat.completions.create(model=name, messages=asked)
            [choice] = reply.choices
            calls = [
                (c.function.name, json.loads(c.function.arguments))
                for c in choice.message.tool_calls or ()
            ]
            used = reply.usage
            tokens = (used.prompt_tokens, used.completion_tokens) if used else (0, 0)
            return choice.message.content or "", calls, tokens, choice.finish_reason
        text, found, tokens, reason = "", {}, (0, 0), None
        async for chunk in await client.chat.completions.create(
            model=name, messages=asked, stream=True, stream_options={"include_usage": True}
        ):
            if chunk.usage:
                tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
                for piece in choice.delta.tool_calls or ():
                    call = found.setdefault(piece.index, ["", ""])
                    call[0] += piece.function.name or ""
                    call[1] += piece.function.arguments or ""
        return text, [(n, json.loads(a)) for n, a in found.values()], tokens, reason


async def by_google(server, name, stream):
    from . import vendors

    http = httpx.AsyncClient()
    options = vendors.gemini.HttpOptions(base_url=server.root_url, httpx_async_client=http)
    client = vendors.genai.Client(api_key="k", http_options=options).aio
    async with http:
        return await read_google(client, name, stream)


async def read_google(client, name, stream):
    if stream:
        parts = [
            p async for p in await client.models.generate_content_stream(model=name, contents="hi")
        ]
    else:
        parts = [await client.models.generate_content(model=name, contents="hi")]
    pieces = [p for r in parts for c in r.candidates or () for p in (c.content.parts or ())]
    text = "".join(piece.text or "" for piece in pieces)
    calls = [(p.function_call.name, p.function_call.args) for p in pieces if p.function_call]
    used = parts[-1].usage_metadata
    out = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
    reason = parts[-1].candidates[0].finish_reason
    return text, calls, (used.prompt_token_count, out), reason.value


WORDS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "STOP": "stop"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_answers_are_read_as_the_sdk_reads_them(
    provider, kind, stream, openai_server, http_model
):
    reply = REPLIES[kind]
    server = openai_server([reply, reply])
    expected = await by_sdk(provider, server, stream=stream)
    model = http_model(**at(server, provider))
    read = (await read_stream(model, ask()))[1] if stream else await model.complete(ask())
    calls = [(call.name, json.loads(call.arguments)) for call in read.calls]
    tokens = (read.usage.input_tokens, read.usage.output_tokens)
    assert (read.text, calls, tokens) == expected[:3]
    reason = WORDS.get(expected[3], expected[3])
    if read.calls and provider == "google":
        reason = "tool_calls"  # Gemini says STOP
    assert read.finish_reason == {"MAX_TOKENS": "length"}.get(reason, reason)
    names = {"anthropic": "msg_1", "google": "gemini_1"}
    assert read.reply_id == names.get(provider, "chatcmpl-1")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 503, 529])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_errors_are_read_as_the_sdk_reads_them(provider, status, openai_server, http_model):
    from . import vendors

    said = "this is what was wrong"
    server = openai_server(
        lambda _: Reply(status=status, error=said, headers={"Retry-After": "99"})
    )
    with pytest.raises(vendors.ERRORS) as theirs:
        await by_sdk(provider, server, stream=False)
    with pytest.raises(LLMExecutionError) as ours:
        await http_model(**at(server, provider)).complete(ask())
    their_status = getattr(theirs.value, "status_code", None) or theirs.value.code
    assert ours.value.status == their_status == status
    assert said in str(theirs.value)
    assert said in ours.value.message


def test_the_catalogue_says_when_it_was_made():
    folder = Path(__import__("delf_model_http").__file__).parent
    known = json.loads((folder / "models.json").read_text("utf-8"))
    assert known["made"] >= "2026-11-22"
    assert all(
        entry["usd"][0] >= 0 for models in known["models"].values() for entry in models.values()
    )
