"""Reasoning and fields of the provider: effort, thinking, service tier, and whatever comes next."""

import json

import pytest

from delf.errors import ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import ModelRequest, ModelTool, ToolCall, ToolResult, assistant, results, user
from plugins.model_http.vendors import Claude, Gemini
from support.model_calls import at
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply

ADD = ModelTool(name="add", description="Add.", parameters={"type": "object", "properties": {}})
THOUGHT = {"type": "thinking", "thinking": "Let me add.", "signature": "c2lnbmVk"}
USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
WHOLE = {"content": [THOUGHT, USE], "stop_reason": "tool_use", "usage": {"input_tokens": 1}}
EMPTY = {"type": "thinking", "thinking": "", "signature": ""}
FRAMES = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": EMPTY},
    *(
        {"type": "content_block_delta", "index": 0, "delta": delta}
        for delta in (
            {"type": "thinking_delta", "thinking": "Let me "},
            {"type": "thinking_delta", "thinking": "add."},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        )
    ),
    {"type": "content_block_start", "index": 1, "content_block": USE},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
]
OPUS = "claude-opus-4-8"
SONNET = "claude-sonnet-4-5"


def answered(call: ToolCall) -> ModelRequest:
    """The request after a call was made."""
    result = ToolResult(id=call.id, name=call.name, text="2")
    messages = (user("Add."), assistant("", (call,)), results([result]))
    return ModelRequest(messages=messages, tools=(ADD,))


@pytest.fixture
def sent(openai_server, http_model):
    """Returns the body of a request with some settings."""

    async def send(provider, model, settings, request=None):
        server = openai_server(["a"])
        config = at(server, provider, settings=settings) | {"model": model}
        await http_model(**config).complete(request or ask())
        return server.json[-1]

    return send


@pytest.mark.parametrize(
    ("provider", "model", "effort", "expected"),
    [
        ("openai", "gpt-5.5", "high", {"reasoning_effort": "high"}),
        ("anthropic", SONNET, "medium", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("anthropic", OPUS, "low", {"output_config": {"effort": "low"}}),
        ("anthropic", OPUS, "low", {"thinking": {"type": "adaptive"}}),
    ],
)
async def test_reasoning_effort_is_sent_in_provider_terms(sent, provider, model, effort, expected):
    body = await sent(provider, model, {"reasoning_effort": effort})
    assert {name: body[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-3-pro", "low", {"thinkingLevel": "low"}),
    ],
)
async def test_gemini_reasoning_effort_matches_the_official_types(sent, model, effort, expected):
    body = await sent("google", model, {"reasoning_effort": effort, "temperature": 0.5})
    assert body["generationConfig"] == {"temperature": 0.5, "thinkingConfig": expected}
    Gemini(**body)


async def test_no_reasoning_effort_disables_thinking(sent):
    assert "thinking" not in await sent("anthropic", SONNET, {"reasoning_effort": "none"})


async def test_thinking_request_omits_incompatible_parameters(sent):
    settings = {"thinking": {"type": "enabled", "budget_tokens": 5000}, "temperature": 0.2}
    request = ModelRequest(messages=(user("Add."),), tools=(ADD,), must_call=True)
    body = await sent("anthropic", SONNET, settings, request)
    assert body["thinking"] == settings["thinking"]
    assert body["max_tokens"] == 16_384 + 5000
    assert not {"temperature", "tool_choice"} & body.keys()
    Claude(body=body)


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_block_is_sent_back_with_its_call(openai_server, http_model, stream):
    frames = "".join(f"data: {json.dumps(frame)}\n\n" for frame in FRAMES)
    server = openai_server(lambda _: Reply(body=(frames if stream else json.dumps(WHOLE)).encode()))
    model = http_model(**at(server, "anthropic", settings={"reasoning_effort": "low"}))
    request = ModelRequest(messages=(user("Add."),), tools=(ADD,))
    reply = (await read_stream(model, request))[1] if stream else await model.complete(request)
    (call,) = reply.calls
    assert json.loads(call.token) == [THOUGHT]
    await (read_stream(model, answered(call)) if stream else model.complete(answered(call)))
    assert server.json[-1]["messages"][1]["content"] == [THOUGHT, USE]


async def test_foreign_signature_is_not_sent_as_thinking(sent):
    call = ToolCall(id="t1", name="add", arguments="{}", token="not of anthropic")
    body = await sent("anthropic", SONNET, {}, answered(call))
    assert body["messages"][1]["content"] == [USE]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
async def test_extra_fields_are_merged_into_requests(sent, provider):
    extra = {"verbosity": "low", "generationConfig": {"mediaResolution": "LOW"}}
    body = await sent(provider, "a-model", {"extra": extra, "temperature": 0.5})
    assert (body["verbosity"], "extra" in body) == ("low", False)
    expected = {"temperature": 0.5} if provider == "google" else {}
    assert body["generationConfig"] == {"mediaResolution": "LOW", **expected}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_service_tier_is_sent(sent, provider):
    body = await sent(provider, "a-model", {"service_tier": "auto"})
    assert body["service_tier"] == "auto"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"extra": {"model": "x"}}, "delf sets the field 'model'"),
        ({"extra": {"messages": []}}, "delf sets the field 'messages'"),
        ({"extra": "x"}, "a table of the provider's fields"),
        ({"thinking": True}, "a table of the provider's fields"),
        ({"reasoning_effort": 3}, "a text"),
        ({"reasonning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_unsendable_settings_are_refused(settings, problem):
    with pytest.raises(ModelConfigurationError, match=problem):
        LLMConfig("gpt-5.5", settings=settings)
