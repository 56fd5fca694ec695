"""Requests and answers, against a server that speaks the provider's protocol."""

import asyncio
import base64
import json

import pytest

from delf.llm import LLMConfig
from delf.messages import (
    FilePart,
    ImagePart,
    ModelRequest,
    ModelTool,
    Usage,
    assistant,
    system,
    user,
)
from delf.protocols.model import ModelContext
from delf_model_litellm.model import LiteLLMModel
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
PROVIDERS = {
    "openai": ("gpt-4o-mini", "/v1"),
    "anthropic": ("claude-sonnet-4-5", ""),
    "google": ("gemini-2.5-flash", "/v1beta"),
}


def at(server, provider, **config):
    model, path = PROVIDERS[provider]
    url = server.root_url + path
    return {"model": model, "base_url": url, "provider": provider, "api_key": "key-1", **config}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_complete(provider, openai_server, litellm_model):
    server = openai_server([Reply(text="print('hi')", usage=(100, 20, 50))])
    model = litellm_model(**at(server, provider))
    reply = await model.complete(ask())
    assert reply.text == "print('hi')"
    assert reply.model == PROVIDERS[provider][0]
    assert reply.usage == Usage(input_tokens=100, cached_tokens=50, output_tokens=20)
    assert 0 < reply.cost_usd < 0.01
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_tools(provider, streamed, openai_server, litellm_model):
    arguments = '{"code": "print(1)"}'
    server = openai_server([Reply(calls=(("run", arguments),), usage=(9, 8, 0))])
    tool = ModelTool(name="run", description="Runs it.", parameters=CODE)
    request = ModelRequest(messages=(user("go"),), tools=(tool,), must_call=True)
    model = litellm_model(**at(server, provider))
    _, reply = (
        await read_stream(model, request) if streamed else (None, await model.complete(request))
    )
    [call] = reply.calls
    assert (call.name, json.loads(call.arguments)) == ("run", {"code": "print(1)"})
    assert "run" in str(server.json[0]["tools"])


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_stream(provider, openai_server, litellm_model):
    server = openai_server([Reply(text="one two  three\nfour ünï 🙂", usage=(100, 20, 50))])
    pieces, reply = await read_stream(litellm_model(**at(server, provider)), ask())
    assert len(pieces) > 1
    assert "".join(pieces) == reply.text == "one two  three\nfour ünï 🙂"
    assert reply.usage == Usage(input_tokens=100, cached_tokens=50, output_tokens=20)
    assert reply.cost_usd > 0
    assert reply.finish_reason == "stop"


async def test_what_an_openai_server_receives(openai_server, litellm_model):
    server = openai_server(["ok"])
    messages = (system("rules"), user("question"), assistant("answer"), user("more"))
    model = litellm_model(base_url=server.base_url, api_key="key-1", headers={"X-Tenant": "acme"})
    await model.complete(ModelRequest(messages=messages))
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer key-1"
    assert request.headers["x-tenant"] == "acme"
    assert request.json["model"] == "test-model"
    assert "stream" not in request.json
    assert [(m["role"], m["content"]) for m in request.json["messages"]] == [
        ("system", "rules"),
        ("user", "question"),
        ("assistant", "answer"),
        ("user", "more"),
    ]


async def test_settings_reach_a_compatible_server(openai_server, litellm_model):
    server = openai_server(["ok"])
    settings = {
        "temperature": 0.2,
        "top_p": 0.9,
        "top-k": 40,
        "max-tokens": 12,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.3,
        "stop": ["END"],
        "seed": 7,
        "timeout": 20,
    }
    model = litellm_model(base_url=server.base_url, settings=settings)
    await model.complete(ask(settings={"temperature": 0.9}))
    sent = server.json[0]
    expected = {
        "temperature": 0.9,
        "top_p": 0.9,
        "top_k": 40,
        "max_tokens": 12,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.3,
        "stop": ["END"],
        "seed": 7,
    }
    assert {name: sent.get(name) for name in expected} == expected
    assert "timeout" not in sent


async def test_what_a_provider_does_not_know_is_left_out(openai_server, litellm_model):
    settings = {"temperature": 0.2, "top_k": 40, "presence_penalty": 0.1, "max_tokens": 12}
    server = openai_server(["a", "b", "c"])
    for provider in ("anthropic", "google"):
        await litellm_model(**at(server, provider, settings=settings)).complete(ask())
    claude, gemini = server.json
    assert (claude["temperature"], claude["top_k"], claude["max_tokens"]) == (0.2, 40, 12)
    assert "presence_penalty" not in claude
    config = gemini["generationConfig"]
    assert (config["temperature"], config["top_k"], config["max_output_tokens"]) == (0.2, 40, 12)
    reasoning = at(server, "openai", settings=settings) | {"model": "o3-mini"}
    await litellm_model(**reasoning).complete(ask())
    assert server.json[2]["max_completion_tokens"] == 12
    assert "temperature" not in server.json[2]


async def test_images_and_files(openai_server, litellm_model):
    server = openai_server(["a", "b", "c"])
    parts = (
        ImagePart(PNG, "image/png"),
        FilePart("notes.csv", b"a,b\n1,2\n", "text/csv"),
        FilePart("paper.pdf", b"%PDF-1.4", "application/pdf"),
    )
    request = ModelRequest(messages=(user("look", parts),))
    for provider in PROVIDERS:
        await litellm_model(**at(server, provider)).complete(request)
    openai, claude, gemini = server.json
    data = base64.b64encode(PNG).decode()
    text, image, table, file = openai["messages"][0]["content"]
    assert text["text"] == "look"
    assert image["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert "notes.csv" in table["text"]
    assert "1,2" in table["text"]
    assert file["file"]["filename"] == "paper.pdf"
    assert file["file"]["file_data"].startswith("data:application/pdf;base64,")
    kinds = {part["type"]: part for part in claude["messages"][0]["content"]}
    assert kinds["image"]["source"]["data"] == data
    assert kinds["document"]["source"]["media_type"] == "application/pdf"
    inline = [p["inline_data"] for p in gemini["contents"][0]["parts"] if "inline_data" in p]
    assert [part["mime_type"] for part in inline] == ["image/png", "application/pdf"]


async def test_a_long_system_message_is_cached_by_anthropic(openai_server, litellm_model):
    server = openai_server(["a", "b"])
    model = litellm_model(**at(server, "anthropic"))
    await model.complete(ModelRequest(messages=(system("rule " * 1000), user("hi"))))
    await model.complete(ask())
    long, short = server.json
    assert long["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(short["system"])


async def test_the_key_reaches_each_provider_and_no_other(openai_server, litellm_model):
    server = openai_server(lambda _: "ok")
    environ = {
        "OPENAI_API_KEY": "key-openai",
        "ANTHROPIC_API_KEY": "key-anthropic",
        "GOOGLE_API_KEY": "key-google",
    }
    for provider in PROVIDERS:
        model = litellm_model(**at(server, provider, api_key=None), environ=environ)
        await model.complete(ask())
        request = server.requests[-1]
        sent = f"{request.path} {dict(request.headers)} {request.body}"
        assert {key for key in environ.values() if key in sent} == {f"key-{provider}"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_model_has_no_price(stream, openai_server, litellm_model):
    server = openai_server(["a", "b"])
    model = litellm_model("nobody-knows-me", base_url=server.base_url)
    for _ in range(2):
        reply = (await read_stream(model, ask()))[1] if stream else await model.complete(ask())
        assert reply.cost_usd is None
        assert reply.usage.total_tokens == 18


async def test_the_price_is_of_the_model_that_was_asked(openai_server, litellm_model):
    usage = (1_000_000, 1_000_000)
    server = openai_server([Reply(text="a", model="surprise", usage=usage)])
    reply = await litellm_model(**at(server, "openai")).complete(ask())
    assert reply.cost_usd == pytest.approx(0.15 + 0.60)
    assert reply.model == "gpt-4o-mini"


async def test_cached_tokens_are_cheaper(openai_server, litellm_model):
    server = openai_server([Reply(usage=(1_000_000, 0, 1_000_000), text="a")])
    reply = await litellm_model(**at(server, "openai")).complete(ask())
    assert reply.cost_usd == pytest.approx(0.075)


async def test_no_usage_is_no_price(openai_server, litellm_model):
    server = openai_server([Reply(text="a", usage=None)])
    reply = await litellm_model(**at(server, "openai")).complete(ask())
    assert (reply.usage, reply.cost_usd) == (Usage(), None)


async def test_an_empty_answer_is_an_answer(openai_server, litellm_model):
    server = openai_server([Reply(text=""), Reply(text="")])
    model = litellm_model(base_url=server.base_url)
    assert (await model.complete(ask())).text == ""
    assert (await read_stream(model, ask()))[1].text == ""


async def test_a_cut_answer_says_so(openai_server, litellm_model):
    cut = Reply(text="half an", finish_reason="length")
    server = openai_server([cut, cut])
    model = litellm_model(base_url=server.base_url)
    assert (await model.complete(ask())).finish_reason == "length"
    assert (await read_stream(model, ask()))[1].finish_reason == "length"


async def test_a_server_that_gives_no_finish_reason_but_ends_its_stream(
    openai_server, litellm_model
):
    server = openai_server([Reply(text="a b", finish_reason=None)])
    assert (await read_stream(litellm_model(base_url=server.base_url), ask()))[1].text == "a b"


async def test_connections_are_kept(openai_server, litellm_model):
    server = openai_server(lambda _: "ok")
    model = litellm_model(base_url=server.base_url)
    for _ in range(5):
        await model.complete(ask())
        await read_stream(model, ask())
    assert server.connections <= 2


async def test_many_calls_at_once(openai_server, litellm_model):
    server = openai_server(lambda request: Reply(text=request.prompt, delay=0.05))
    model = litellm_model(base_url=server.base_url)
    replies = await asyncio.gather(*(model.complete(ask(f"task {i}")) for i in range(50)))
    assert [reply.text.split("\n")[1] for reply in replies] == [f"task {i}" for i in range(50)]


def test_one_model_in_several_event_loops(openai_server, litellm_model):
    server = openai_server(lambda _: "ok")
    model = LiteLLMModel(LLMConfig("m", base_url=server.base_url), ModelContext())

    async def use():
        reply = await model.complete(ask())
        await model.aclose()
        await model.aclose()
        return reply.text

    assert [asyncio.run(use()) for _ in range(2)] == ["ok", "ok"]
