"""Requests and answers, as every plugin of models has them, and what goes over the wire."""

import base64
import json

import pytest

from delf.errors import ModelConfigurationError
from delf.messages import (
    FilePart,
    ImagePart,
    ModelRequest,
    ToolCall,
    ToolResult,
    assistant,
    results,
    system,
    user,
)
from support.model_calls import PNG, PROVIDERS, ModelCalls, at, events, piece
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply


class TestCalls(ModelCalls):
    pass


async def test_what_a_provider_does_not_know_is_left_out(openai_server, http_model):
    settings = {
        "temperature": 0.2,
        "top_k": 40,
        "presence_penalty": 0.1,
        "max_tokens": 12,
        "seed": 7,
        "stop": "END",
    }
    server = openai_server(lambda _: "a")
    for provider in ("anthropic", "google"):
        await http_model(**at(server, provider, settings=settings)).complete(ask())
    claude, gemini = server.json
    assert (claude["temperature"], claude["top_k"], claude["max_tokens"]) == (0.2, 40, 12)
    assert claude["stop_sequences"] == ["END"]
    assert not {"presence_penalty", "seed", "stop"} & claude.keys()
    config = gemini["generationConfig"]
    assert (config["temperature"], config["topK"], config["maxOutputTokens"]) == (0.2, 40, 12)
    assert (config["stopSequences"], config["seed"]) == (["END"], 7)


@pytest.mark.parametrize("name", ["o3-mini", "o1", "gpt-5.5", "ft:gpt-5-mini:acme::1"])
async def test_reasoning_models_are_told_no_temperature(name, openai_server, http_model):
    settings = {"temperature": 0.2, "top_p": 0.1, "stop": ["x"], "max_tokens": 12, "seed": 7}
    server = openai_server(["a"])
    await http_model(**at(server, "openai", settings=settings) | {"model": name}).complete(ask())
    [sent] = server.json
    assert (sent["max_completion_tokens"], sent["seed"]) == (12, 7)
    assert not {"temperature", "top_p", "stop", "max_tokens"} & sent.keys()


async def test_claude_models_that_take_no_temperature_are_told_none(openai_server, http_model):
    server = openai_server(["a"])
    config = at(server, "anthropic", settings={"temperature": 0.2}) | {"model": "claude-opus-4-8"}
    await http_model(**config).complete(ask())
    assert "temperature" not in server.json[0]


async def test_anthropic_is_told_how_long_an_answer_may_be(openai_server, http_model):
    server = openai_server(lambda _: "a")
    for name in ("claude-opus-4-8", "claude-of-tomorrow"):
        await http_model(**at(server, "anthropic") | {"model": name}).complete(ask())
    assert [sent["max_tokens"] for sent in server.json] == [16_384, 8_192]


async def test_images_and_files(openai_server, http_model):
    server = openai_server(lambda _: "a")
    parts = (
        ImagePart(PNG, "image/png"),
        FilePart("notes.csv", b"a,b\n1,2\n", "text/csv"),
        FilePart("paper.pdf", b"%PDF-1.4", "application/pdf"),
    )
    request = ModelRequest(messages=(user("look", parts),))
    for provider in PROVIDERS:
        await http_model(**at(server, provider)).complete(request)
    openai, claude, gemini = server.json
    data = base64.b64encode(PNG).decode()
    text, image, table, file = openai["messages"][0]["content"]
    assert text["text"] == "look"
    assert image["image_url"]["url"] == f"data:image/png;base64,{data}"
    assert "1,2" in table["text"]
    assert file["file"]["file_data"].startswith("data:application/pdf;base64,")
    kinds = {part["type"]: part for part in claude["messages"][0]["content"]}
    assert kinds["image"]["source"]["data"] == data
    assert kinds["document"]["source"]["media_type"] == "application/pdf"
    inline = [p["inlineData"] for p in gemini["contents"][0]["parts"] if "inlineData" in p]
    assert [part["mimeType"] for part in inline] == ["image/png", "application/pdf"]


async def test_the_stable_prefix_is_marked_for_anthropic_and_the_same_for_all(
    openai_server, http_model
):
    server = openai_server(lambda _: "a")
    long = system("rule " * 1000)
    prefixes = []
    for provider in PROVIDERS:
        model = http_model(**at(server, provider))
        for question in ("one", "two"):
            await model.complete(ModelRequest(messages=(long, system("be kind"), user(question))))
        first, second = (request.body for request in server.requests[-2:])
        prefixes.append(first[: first.index(b"one")] == second[: second.index(b"two")])
        if provider == "anthropic":
            [rules, kind] = server.json[-1]["system"]
            assert rules["cache_control"] == {"type": "ephemeral"}
            assert "cache_control" not in kind
    await http_model(**at(server, "anthropic")).complete(ask())
    assert "cache_control" not in str(server.json[-1])
    assert prefixes.count(True) >= 2  # Anthropic's messages stand before its system prompt


async def test_tokens_that_are_written_to_the_cache_cost_more(http_model):
    model = http_model("claude-sonnet-4-5", api_key="k")
    from delf_model_http import catalog
    from delf_model_http.answer import Tokens

    million = 1_000_000
    facts = catalog.facts("anthropic", "claude-sonnet-4-5")
    written = facts.cost(Tokens(input=million, written=million))
    assert (await model.price()).input < written == pytest.approx(3.75)


async def test_long_calls_have_other_prices(openai_server, http_model):
    server = openai_server(
        [Reply(text="a", usage=(100_000, 0)), Reply(text="a", usage=(300_000, 0))]
    )
    model = http_model(**at(server, "google") | {"model": "gemini-2.5-pro"})
    short, long = (await model.complete(ask())).cost_usd, (await model.complete(ask())).cost_usd
    assert (short, long) == (pytest.approx(0.125), pytest.approx(0.75))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_calls_go_back_as_they_came(provider, openai_server, http_model):
    """With what the provider wants to see again, and under its own ids."""
    server = openai_server([Reply(calls=(("add", '{"a": 1}'),)), "3"])
    model = http_model(**at(server, provider))
    first = await model.complete(ask())
    brought = results([ToolResult(id=first.calls[0].id, name="add", text="3")])
    said = assistant(first.text, first.calls)
    await model.complete(ModelRequest(messages=(user("q"), said, brought)))
    sent = str(server.json[1])
    expected = {
        "openai": ["'tool_call_id': 'call_0'", "'id': 'call_0'", "'role': 'tool'"],
        "anthropic": ["'tool_use_id': 'toolu_0'", "'id': 'toolu_0'", "'input': {'a': 1}"],
        "google": ["'thoughtSignature': 'c2lnbmVk'", "'functionResponse'", "'args': {'a': 1}"],
    }
    assert all(part in sent for part in expected[provider]), sent
    assert "delf-" not in sent


async def test_arguments_that_are_no_json_go_back_as_they_were(openai_server, http_model):
    server = openai_server(lambda _: "a")
    call = ToolCall(id="1", name="add", arguments='{"a": ')
    for provider in PROVIDERS:
        await http_model(**at(server, provider)).complete(
            ModelRequest(messages=(user("q"), assistant("", [call])))
        )
    assert all('{"a": ' in json_text(sent) for sent in server.json)


def json_text(value):
    """All texts in a JSON value."""
    if isinstance(value, dict):
        return " ".join(json_text(item) for item in value.values())
    if isinstance(value, list):
        return " ".join(json_text(item) for item in value)
    return str(value)


async def test_reasoning_tokens_are_counted(openai_server, http_model):
    server = openai_server(lambda _: Reply(text="a b", usage=(100, 20, 50, 15)))
    for provider in ("openai", "google"):
        model = http_model(**at(server, provider))
        replies = [await model.complete(ask()), (await read_stream(model, ask()))[1]]
        assert [(r.usage.output_tokens, r.usage.reasoning_tokens) for r in replies] == [
            (20, 15)
        ] * 2


@pytest.mark.parametrize(
    ("provider", "given", "path"),
    [
        ("openai", "/v1", "/v1/chat/completions"),
        ("openai", "/api/v1/", "/api/v1/chat/completions"),
        ("openai", "/o?api-version=2", "/o/chat/completions?api-version=2"),
        ("anthropic", "", "/v1/messages"),
        ("anthropic", "/v1", "/v1/messages"),
        ("google", "", "/v1beta/models/m:generateContent"),
        ("google", "/v1", "/v1/models/m:generateContent"),
    ],
)
async def test_where_requests_go(provider, given, path, openai_server, http_model):
    server = openai_server(["a"])
    url = server.root_url + given
    await http_model("m", base_url=url, provider=provider, api_key="k").complete(ask())
    assert server.requests[0].path == path


async def test_own_headers_take_the_place_of_others(openai_server, http_model):
    server = openai_server(["a"])
    headers = {"authorization": "Basic YmFzaWM=", "User-Agent": "mine"}
    await http_model(base_url=server.base_url, api_key="k", headers=headers).complete(ask())
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["user-agent"]) == ("Basic YmFzaWM=", "mine")


def test_a_provider_that_it_does_not_speak_with(http_model):
    with pytest.raises(ModelConfigurationError, match="groq") as caught:
        http_model("groq/llama")
    assert "delf plugins install model-litellm" in caught.value.hint


async def test_a_server_that_always_streams(openai_server, make_model):
    server = openai_server([Reply(body=events(piece("f", '{"a": 1}', index=0, id="x")).encode())])
    reply = await make_model(base_url=server.base_url, api_key="k").complete(ask())
    assert [(c.name, c.arguments) for c in reply.calls] == [("f", '{"a": 1}')]


async def test_a_server_that_never_streams(openai_server, make_model):
    message = {"content": "hi there", "tool_calls": [piece("f", "{}", id="x")]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    choice = {"message": message, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    server = openai_server([Reply(body=body)])
    model = make_model(base_url=server.base_url, api_key="k")
    texts, reply = await read_stream(model, ask())
    assert "".join(texts) == reply.text == "hi there"
    assert [call.name for call in reply.calls] == ["f"]
    assert (reply.usage.input_tokens, reply.finish_reason) == (3, "stop")
