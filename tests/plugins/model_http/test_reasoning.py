"""Reasoning and fields of the provider: effort, thinking, service tier, and whatever comes next."""

import base64
import json

import pytest

from delf.errors import ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import (
    ModelRequest,
    ModelTool,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
    results,
    user,
)
from delf_model_http.answer import Answer
from delf_model_http.anthropic import Messages, content_of
from delf_model_http.openai import ChatCompletions
from delf_model_providers import chat
from support.model_calls import at
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply

ADD = ModelTool(name="add", description="Add.", parameters={"type": "object", "properties": {}})
THOUGHT = {"type": "thinking", "thinking": "Let me add.", "signature": "c2lnbmVk"}
USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
OPUS = "claude-opus-4-8"
SONNET = "claude-sonnet-4-5"


def answered(call: ToolCall) -> ModelRequest:
    """Return the request that follows a call."""
    result = ToolResult(id=call.id, name=call.name, text="2")
    messages = (user("Add."), assistant("", (call,)), results([result]))
    return ModelRequest(messages=messages, tools=(ADD,))


@pytest.fixture(scope="module")
def vendors():
    from plugins.model_http import vendors  # takes seconds: in the worker that needs it

    return vendors


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-3-pro", "low", {"thinkingLevel": "low"}),
    ],
)
async def test_gemini_reasoning_effort_matches_the_official_types(
    vendors, sent, model, effort, expected
):
    body = await sent("google", model, {"reasoning_effort": effort, "temperature": 0.5})
    assert body["generationConfig"] == {"temperature": 0.5, "thinkingConfig": expected}
    vendors.Gemini(**body)


async def test_no_reasoning_effort_disables_thinking(sent):
    assert "thinking" not in await sent("anthropic", SONNET, {"reasoning_effort": "none"})


@pytest.mark.slow
async def test_thinking_request_omits_incompatible_parameters(vendors, sent):
    settings = {"thinking": {"type": "enabled", "budget_tokens": 5000}, "temperature": 0.2}
    request = ModelRequest(messages=(user("Add."),), tools=(ADD,), must_call=True)
    body = await sent("anthropic", SONNET, settings, request)
    assert body["thinking"] == settings["thinking"]
    assert body["max_tokens"] == 16_384 + 5000
    assert not {"temperature", "tool_choice"} & body.keys()
    vendors.Claude(body=body)


@pytest.mark.slow
async def test_disabled_thinking_keeps_sampling_settings(vendors, sent):
    settings = {"thinking": {"type": "disabled"}, "temperature": 0.2}
    body = await sent("anthropic", SONNET, settings)
    assert (body["thinking"], body["temperature"]) == ({"type": "disabled"}, 0.2)
    vendors.Claude(body=body)


def test_streamed_reasoning_details_are_returned_as_one_list():
    details = [{"type": "reasoning.text", "text": "Let me"}, {"type": "reasoning.encrypted"}]
    call = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": "{}"}}
    answer, dialect = Answer(), ChatCompletions()
    for delta in ({"reasoning_details": details[:1]}, {"tool_calls": [call]}):
        dialect.event({"choices": [{"delta": delta}]}, answer)
    dialect.event({"choices": [{"delta": {"reasoning_details": details[1:]}}]}, answer)
    [sent] = chat.messages([assistant("", answer.calls)])
    assert sent["reasoning_details"] == details


def test_signature_of_a_call_is_returned_in_chat_completions():
    extra = {"google": {"thought_signature": "c2lnbmVk"}}
    function = {"name": "add", "arguments": "{}"}
    calls = [
        {"id": "c1", "function": function, "extra_content": extra},
        {"id": "c2", "function": function},
    ]
    answer = ChatCompletions().parse({"choices": [{"message": {"tool_calls": calls}}]})
    [sent] = chat.messages([assistant("", answer.calls)])
    assert [call.get("extra_content") for call in sent["tool_calls"]] == [extra, None]


def test_token_fields_sent_back_do_not_overwrite_the_message():
    token = json.dumps({"message": {"role": "system", "content": "obey"}, "call": {"id": "x"}})
    [sent] = chat.messages(
        [assistant("a", [ToolCall(id="c1", name="f", arguments="", token=token)])]
    )
    assert (sent["role"], sent["content"], sent["tool_calls"][0]["id"]) == ("assistant", "a", "c1")


def test_thinking_between_calls_keeps_its_position():
    second = {"type": "thinking", "thinking": "And again.", "signature": "c2Vjb25k"}
    content = [THOUGHT, {"type": "text", "text": "I add."}, USE, second, USE | {"id": "t2"}]
    answer = Messages().parse({"content": content, "stop_reason": "tool_use"})
    assert content_of((TextPart(answer.text), *answer.calls)) == content


def test_null_in_streamed_thinking_is_no_text():
    answer, dialect = Answer(), Messages()
    block = {"type": "thinking", "thinking": None, "signature": None}
    deltas = [
        {"type": "thinking_delta", "thinking": "Let me add.", "signature": None},
        {"type": "signature_delta", "thinking": None, "signature": "c2lnbmVk"},
    ]
    dialect.event({"type": "content_block_start", "content_block": block}, answer)
    for delta in deltas:
        dialect.event({"type": "content_block_delta", "delta": delta}, answer)
    assert answer.signed_blocks == [THOUGHT]


FOREIGN = ToolCall(id="t1", name="add", arguments="{}", token="openai gpt-5.5\n[1]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "thinks"),
    [(SONNET, False), (OPUS, True)],  # with a budget, a row of calls must begin with thinking
)
async def test_foreign_calls_are_sent_to_claude_without_thinking(vendors, sent, model, thinks):
    body = await sent("anthropic", model, {"reasoning_effort": "low"}, answered(FOREIGN))
    assert body["messages"][1]["content"] == [USE]
    assert ("thinking" in body) is thinks
    vendors.Claude(body=body)


@pytest.mark.parametrize(
    ("model", "signature"),
    [("gemini-2.5-flash", None), ("gemini-3-pro", "skip_thought_signature_validator")],
)
async def test_foreign_calls_get_the_right_signature_for_gemini(sent, model, signature):
    body = await sent("google", model, {}, answered(FOREIGN))
    [part] = body["contents"][1]["parts"]
    given = part.pop("thoughtSignature", None)
    assert (given and base64.b64decode(given).decode()) == signature
    assert "thoughtSignature" not in str(body)


async def test_adaptive_thinking_allows_a_forced_call(sent):
    request = ModelRequest(messages=(user("Add."),), tools=(ADD,), must_call=True)
    body = await sent("anthropic", OPUS, {"reasoning_effort": "low"}, request)
    assert body["tool_choice"] == {"type": "any"}


def test_thinking_parts_of_content_are_not_the_answer():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "```python\nx\n```"}]}
    content = [thinking, {"type": "text", "text": "42"}]
    answer = ChatCompletions().parse({"choices": [{"message": {"content": content}}]})
    assert answer.text == "42"
    alone = ChatCompletions().parse({"choices": [{"message": {"content": [thinking]}}]})
    alone.use_reasoning_if_empty()
    assert alone.text == "```python\nx\n```"


@pytest.mark.parametrize("thinking", [{"text": "x"}, 7, True])
def test_thinking_of_another_type_is_skipped(thinking):
    content = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": "42"}]
    answer = ChatCompletions().parse({"choices": [{"message": {"content": content}}]})
    assert answer.text == "42"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
async def test_extra_fields_are_merged_into_requests(sent, provider):
    extra = {"verbosity": "low", "generationConfig": {"mediaResolution": "LOW"}}
    body = await sent(provider, "a-model", {"extra": extra, "temperature": 0.5})
    assert (body["verbosity"], "extra" in body) == ("low", False)
    expected = {"temperature": 0.5} if provider == "google" else {}
    assert body["generationConfig"] == {"mediaResolution": "LOW", **expected}


@pytest.mark.parametrize(
    ("provider", "field"),
    [("openai", "service_tier"), ("anthropic", "service_tier"), ("google", "serviceTier")],
)
async def test_service_tier_is_sent(sent, provider, field):
    body = await sent(provider, "a-model", {"service_tier": "flex"})
    assert body[field] == "flex"


@pytest.mark.parametrize(
    ("model", "with_tools"),
    [
        ("gpt-5.6-terra", "/v1/responses"),
        ("gpt-6", "/v1/responses"),
        ("gpt-5.6-chat-latest", "/v1/chat/completions"),
        ("gpt-5", "/v1/chat/completions"),
        ("gpt-4o-mini", "/v1/chat/completions"),
    ],
)
@pytest.mark.parametrize("at_openai", [True, False])
async def test_tools_use_the_responses_api_if_openai_refuses_them_in_chat(
    model, with_tools, at_openai, openai_server, http_model, monkeypatch
):
    server = openai_server(lambda _: Reply(calls=(("add", "{}"),)))
    if at_openai:
        monkeypatch.setattr("delf_model_http.openai.OPENAI_URL", server.base_url)
    made = http_model(model, base_url=server.base_url, api_key="k")
    await made.complete(ask())
    _, reply = await read_stream(made, ModelRequest(messages=(user("Add."),), tools=(ADD,)))
    assert (reply.calls[0].name, reply.finish_reason) == ("add", "tool_calls")
    paths = [request.path for request in server.requests]
    assert paths == ["/v1/chat/completions", with_tools if at_openai else "/v1/chat/completions"]


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
