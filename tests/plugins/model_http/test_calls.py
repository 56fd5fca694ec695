"""Requests and answers, as every plugin of models has them, and what goes over the wire."""

import json

import pytest

from delf.errors import DelfError, LLMExecutionError, ModelConfigurationError
from delf.messages import (
    ImagePart,
    ModelDelta,
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


async def test_request_omits_unknown_parameters(openai_server, http_model):
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
async def test_reasoning_models_get_no_temperature(name, openai_server, http_model):
    settings = {"temperature": 0.2, "top_p": 0.1, "stop": ["x"], "max_tokens": 12, "seed": 7}
    server = openai_server(["a"])
    await http_model(**at(server, "openai", settings=settings) | {"model": name}).complete(ask())
    [sent] = server.json
    assert (sent["max_completion_tokens"], sent["seed"]) == (12, 7)
    assert not {"temperature", "top_p", "stop", "max_tokens"} & sent.keys()


async def test_claude_models_without_temperature_get_none(openai_server, http_model):
    server = openai_server(["a"])
    config = at(server, "anthropic", settings={"temperature": 0.2}) | {"model": "claude-opus-4-8"}
    await http_model(**config).complete(ask())
    assert "temperature" not in server.json[0]


async def test_anthropic_request_has_an_output_limit(openai_server, http_model):
    server = openai_server(lambda _: "a")
    for name in ("claude-opus-4-8", "claude-of-tomorrow"):
        await http_model(**at(server, "anthropic") | {"model": name}).complete(ask())
    assert [sent["max_tokens"] for sent in server.json] == [16_384, 8_192]


async def test_stable_prefix_is_marked_for_the_anthropic_cache(openai_server, http_model):
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


async def test_cache_writes_are_priced_higher(http_model):
    model = http_model("claude-sonnet-4-5", api_key="k")
    from delf_model_http import catalog
    from delf_model_http.answer import Tokens

    million = 1_000_000
    facts = catalog.facts("anthropic", "claude-sonnet-4-5")
    written = facts.cost(Tokens(input=million, written=million))
    assert (await model.price()).input < written == pytest.approx(3.75)


async def test_long_prompts_use_long_context_prices(openai_server, http_model):
    server = openai_server(
        [Reply(text="a", usage=(100_000, 0)), Reply(text="a", usage=(300_000, 0))]
    )
    model = http_model(**at(server, "google") | {"model": "gemini-2.5-pro"})
    short, long = (await model.complete(ask())).cost_usd, (await model.complete(ask())).cost_usd
    assert (short, long) == (pytest.approx(0.125), pytest.approx(0.75))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_calls_are_sent_back_in_provider_form(provider, openai_server, http_model):
    """Sent calls have the provider's own ids, and the fields that it requires to see again."""
    server = openai_server([Reply(calls=(("add", '{"a": 1}'),)), "3"])
    model = http_model(**at(server, provider))
    first = await model.complete(ask())
    brought = results([ToolResult(id=first.calls[0].id, name="add", text="3")])
    words = assistant(first.text, first.calls)
    await model.complete(ModelRequest(messages=(user("q"), words, brought)))
    sent = str(server.json[1])
    expected = {
        "openai": ["'tool_call_id': 'call_0'", "'id': 'call_0'", "'role': 'tool'"],
        "openai-responses": ["'call_id': 'call_0', 'name': 'add'", "'output': '3'"],
        "anthropic": ["'tool_use_id': 'toolu_0'", "'id': 'toolu_0'", "'input': {'a': 1}"],
        "google": ["'thoughtSignature': 'c2lnbmVk'", "'functionResponse'", "'args': {'a': 1}"],
    }
    assert all(part in sent for part in expected[provider]), sent
    assert "delf-" not in sent


async def test_arguments_that_are_not_json_are_sent_back_unchanged(openai_server, http_model):
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
async def test_request_path_fits_the_provider(provider, given, path, openai_server, http_model):
    server = openai_server(["a"])
    url = server.root_url + given
    await http_model("m", base_url=url, provider=provider, api_key="k").complete(ask())
    assert server.requests[0].path == path


async def test_own_headers_replace_default_headers(openai_server, http_model):
    server = openai_server(["a"])
    headers = {"authorization": "Basic YmFzaWM=", "User-Agent": "mine"}
    await http_model(base_url=server.base_url, api_key="k", headers=headers).complete(ask())
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["user-agent"]) == ("Basic YmFzaWM=", "mine")


def test_unsupported_provider_error_names_the_package(http_model):
    with pytest.raises(ModelConfigurationError, match="groq") as caught:
        http_model("groq/llama")
    assert "delf plugins install model-litellm" in caught.value.hint


async def test_always_streaming_server_is_supported(openai_server, make_model):
    server = openai_server([Reply(body=events(piece("f", '{"a": 1}', index=0, id="x")).encode())])
    reply = await make_model(base_url=server.base_url, api_key="k").complete(ask())
    assert [(c.name, c.arguments) for c in reply.calls] == [("f", '{"a": 1}')]


async def test_never_streaming_server_is_supported(openai_server, make_model):
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


@pytest.mark.parametrize("name", ["stream-8b", "STREAM"])
async def test_model_named_stream_is_asked_once_and_streams(name, openai_server, make_model):
    server = openai_server([Reply(status=400, error=f"no such setting of {name}"), "hi there"])
    model = make_model(name, base_url=server.base_url, api_key="k")
    with pytest.raises(LLMExecutionError, match="no such setting"):
        await read_stream(model, ask())
    texts, _ = await read_stream(model, ask())
    assert "".join(texts) == "hi there"
    assert [request.json.get("stream") for request in server.requests] == [True, True]


def _stream(*pieces, end="data: [DONE]\n\n"):
    return "".join(f"data: {p if isinstance(p, str) else json.dumps(p)}\n\n" for p in pieces) + end


def _delta(reason=None, **delta):
    return {"choices": [{"delta": delta, "finish_reason": reason}]}


async def test_streamed_calls_are_joined_despite_odd_numbering(openai_server, http_model):
    first, second = {"index": 1, "id": "x"}, {"index": 2, "id": "y"}
    body = events(
        piece("add", '{"a"', **first), piece(None, ": 1}", index=1), piece("add", '{"a": 2}', **second),
    )  # fmt: skip
    late = events(piece(None, "", index=0, id="x"), piece("add", '{"a": 1}', index=0))
    server = openai_server([Reply(body=body.encode()), Reply(body=late.encode())])
    model = http_model(**at(server, "openai"))
    _, reply = await read_stream(model, ask())
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("add", '{"a": 1}'),
        ("add", '{"a": 2}'),
    ]
    _, reply = await read_stream(model, ask())
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("x", "add", '{"a": 1}')
    ]


def _of_call(name=None, arguments=None, **fields):
    given = {"name": name, "arguments": arguments}
    return {"function": {k: v for k, v in given.items() if v is not None}, **fields}


@pytest.mark.parametrize(
    "pieces",
    [
        [_delta(tool_calls=[_of_call("add", '{"a"', id="x")]),
         _delta(tool_calls=[_of_call(None, ": 1}", id="x")])],
        [{"choices": [{"message": {"tool_calls": [_of_call("add", '{"a": 1}', id="x")]}}]}],
        [_delta(function_call={"name": "add", "arguments": '{"a"'}),
         _delta(function_call={"arguments": ": 1}"})],
        [_delta(tool_calls=[_of_call("add", {"a": 1}, index=None)])],
    ],
    ids=["its id alone", "a whole message", "the form before several", "an object"],
)  # fmt: skip
async def test_calls_in_other_servers_formats_are_read(pieces, openai_server, http_model):
    server = openai_server([Reply(body=_stream(*pieces, _delta("stop")).encode())])
    _, reply = await read_stream(http_model(**at(server, "openai")), ask())
    assert [(c.name, json.loads(c.arguments)) for c in reply.calls] == [("add", {"a": 1})]


async def test_call_without_finish_reason_is_emitted_as_a_whole(openai_server, http_model):
    body = _stream(_delta(tool_calls=[piece("add", '{"a": 1}', id="x")]))
    server = openai_server([Reply(body=body.encode())])
    pieces = [each async for each in http_model(**at(server, "openai")).stream(ask())]
    whole_calls = [each.whole for each in pieces if isinstance(each, ModelDelta) and each.whole]
    assert [call.name for call in whole_calls] == ["add"]


async def test_call_without_name_and_finish_reason_raises(openai_server, http_model):
    body = _stream(_delta(tool_calls=[piece(None, '{"a": 1}', id="x")]))
    server = openai_server(lambda _: Reply(body=body.encode()))
    with pytest.raises(LLMExecutionError, match="a call without a name"):
        await read_stream(http_model(**at(server, "openai")), ask())


@pytest.mark.parametrize(
    "body",
    [
        _stream(_delta(content="Hi"), "", " ", _delta("stop"), end="data:\n\ndata: [DONE] \n\n"),
        "\ufeff" + _stream(_delta(content="Hi"), _delta("stop")),
        "\ufeff"
        + json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}),
    ],
)
async def test_empty_stream_data_is_ignored(body, openai_server, http_model):
    server = openai_server([Reply(body=body.encode()), Reply(body=body.encode())])
    model = http_model(**at(server, "openai"))
    assert (await read_stream(model, ask()))[1].text == "Hi"
    assert (await model.complete(ask())).text == "Hi"


_OWN_WORDS = "the GPU fell off the bus"


@pytest.mark.parametrize(
    "body",
    [
        _stream(_delta(content="Hi"), {"error": {"message": _OWN_WORDS}}),
        _stream({"choices": [{"delta": {}, "error": {"message": _OWN_WORDS, "code": 502}}]}),
        _stream(
            _delta(content="Hi"),
            {"choices": [{"delta": {}, "finish_reason": "error", "message": _OWN_WORDS}]},
        ),
        _stream(_delta(content="Hi"), end=json.dumps({"error": {"message": _OWN_WORDS}}) + "\n\n"),
        _stream(_delta(content="Hi"), _OWN_WORDS),
        json.dumps({"choices": [{"error": {"message": _OWN_WORDS}, "message": {"content": ""}}]}),
    ],
)
async def test_error_inside_an_answer_keeps_its_message(body, openai_server, http_model):
    server = openai_server(lambda _: Reply(body=body.encode()))
    model = http_model(**at(server, "openai"))
    with pytest.raises(DelfError, match=_OWN_WORDS):
        await read_stream(model, ask())


async def test_script_inside_reasoning_is_the_answer_if_alone(openai_server, http_model):
    script = "First I look.\n```python\nprint(1)\n```"
    for field in ("reasoning_content", "reasoning"):
        body = _stream(_delta(**{field: script[:9]}), _delta(**{field: script[9:]}), _delta("stop"))
        whole = json.dumps(
            {"choices": [{"message": {"content": "", field: script}, "finish_reason": "stop"}]}
        )
        both = _stream(_delta(**{field: script}), _delta(content="Hi"), _delta("stop"))
        server = openai_server([Reply(body=text.encode()) for text in (body, whole, both)])
        model = http_model(**at(server, "openai"))
        texts, reply = await read_stream(model, ask())
        assert "".join(texts) == reply.text == script
        assert (await model.complete(ask())).text == script
        assert (await read_stream(model, ask()))[1].text == "Hi"


async def test_system_messages_are_folded_for_models_without_a_system_role(
    openai_server, http_model
):
    server = openai_server(lambda _: "a")
    request = ModelRequest(
        messages=(
            system("Be brief."),
            user("look", (ImagePart(PNG, "image/png"),)),
            system("Now."),
            user("go"),
        )
    )
    for role in ("user", "developer", None):
        settings = {"system_role": role} if role else {}
        await http_model(**at(server, "openai", settings=settings)).complete(request)
    merged, renamed, usual = (sent["messages"] for sent in server.json)
    assert [one["role"] for one in merged] == ["user", "user"]
    assert merged[0]["content"][0] == {"type": "text", "text": "Be brief."}
    assert merged[1]["content"] == "Now.\n\ngo"
    assert [one["role"] for one in renamed] == ["developer", "user", "developer", "user"]
    assert [one["role"] for one in usual] == ["system", "user", "system", "user"]
    assert not any("system_role" in sent for sent in server.json)
