"""Requests are what the providers define, by their own schemas and types."""

import functools
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from delf.llm import LLMConfig
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
from delf.protocols.context import PluginContext
from delf_model_http.model import HttpModel
from delf_model_http.providers import PROVIDERS as DECLARED
from support.model_calls import PNG, PROVIDERS, at
from support.model_fixtures import ask, read_stream
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
    """Fail if the provider does not know a field, or does not accept its value."""
    from . import vendors

    if provider == "openai-responses":
        kind = vendors.ResponsesStream if sent.get("stream") else vendors.Responses
        list(kind.model_validate({"body": sent}).body["input"])
    elif provider == "openai":
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
async def test_requests_conform_to_the_provider_schema(
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


def test_conformance_checks_refuse_invalid_requests():
    for provider in PROVIDERS:
        with pytest.raises((AssertionError, ValueError)):
            judge(provider, {"model": "m", "messages": [{"role": "nobody", "content": 1}]})
    with pytest.raises(AssertionError, match="unheard_of"):
        good = {"role": "user", "content": [{"type": "text", "text": "a", "unheard_of": 1}]}
        judge("anthropic", {"model": "m", "max_tokens": 1, "messages": [good]})


def test_model_catalogue_has_a_date_and_valid_prices():
    folder = Path(__import__("delf_model_http").__file__).parent
    known = json.loads((folder / "models.json").read_text("utf-8"))
    assert known["made"] >= "2026-11-22"
    assert all(
        entry["usd"][0] >= 0 for models in known["models"].values() for entry in models.values()
    )


@pytest.mark.parametrize(
    "provider", [each for each in DECLARED if each.suggested], ids=lambda each: each.name
)
async def test_suggested_model_is_found_with_its_price(provider):
    context = PluginContext(environ={provider.keys[0]: "key"})
    assert await HttpModel(context, LLMConfig(provider.suggested)).price() is not None
