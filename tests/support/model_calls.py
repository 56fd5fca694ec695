"""Tests of requests and answers for every model plugin, on a server that speaks its protocol."""

import asyncio
import base64
import json

import pytest

from delf.errors import ModelConfigurationError
from delf.messages import (
    FilePart,
    ImagePart,
    ModelRequest,
    ModelTool,
    ToolResult,
    Usage,
    assistant,
    results,
    system,
    user,
)
from delf.providers import Providers
from delf.specs import Provider
from delf_model_providers.families import SUPPORTED_PROVIDERS
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
PROVIDERS = {
    "openai": ("gpt-4o-mini", "/v1"),
    "openai-responses": ("gpt-4o-mini", "/v1"),
    "anthropic": ("claude-sonnet-4-5", ""),
    "google": ("gemini-2.5-flash", "/v1beta"),
}


def at(server, provider, **config):
    model, path = PROVIDERS[provider]
    url = server.root_url + path
    return {"model": model, "base_url": url, "provider": provider, "api_key": "key-1", **config}


def events(*calls):
    """A streamed answer with these pieces of calls."""
    pieces = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
    pieces.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"


def words(*texts):
    """A streamed answer with these pieces of text."""
    pieces = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    pieces.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"


def piece(name=None, arguments="", **more):
    return {**more, "function": {"name": name, "arguments": arguments}}


def _camel_case(part):
    """Return a part with the names that Google's JSON has; litellm writes those of its Python."""
    names = {"inline_data": "inlineData", "mime_type": "mimeType"}
    if not isinstance(part, dict):
        return part
    return {names.get(name, name): _camel_case(item) for name, item in part.items()}


ADD = ModelTool(name="add", description="Add.", parameters={"type": "object", "properties": {}})
THOUGHT = {"type": "thinking", "thinking": "Let me add.", "signature": "c2lnbmVk"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
COUNTED = {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}
COUNTED["completion_tokens_details"] = {"reasoning_tokens": 5}
CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [THOUGHT, {"type": "text", "text": "I add."}, USE],
    "stop_reason": "tool_use",
    "usage": {
        "input_tokens": 9,
        "output_tokens": 8,
        "output_tokens_details": {"thinking_tokens": 5},
    },
}
CLAUDE_FRAMES = [
    {"type": "message_start", "message": {**CLAUDE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": THOUGHT | {"signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I add."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": USE},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": CLAUDE["usage"]},
    {"type": "message_stop"},
]
CLAUDE_FRAMES[1]["content_block"] = {"type": "thinking", "thinking": "", "signature": ""}
CLAUDE_FRAMES[2]["delta"] = {"type": "thinking_delta", "thinking": THOUGHT["thinking"]}
CLAUDE_FRAMES[3]["delta"] = {"type": "signature_delta", "signature": THOUGHT["signature"]}
GEMINI_CALL = {"functionCall": {"name": "add", "args": {}}, "thoughtSignature": "c2lnbmVk"}
GEMINI = {
    "candidates": [
        {"content": {"role": "model", "parts": [GEMINI_CALL]}, "finishReason": "STOP", "index": 0}
    ],
    "usageMetadata": {
        "promptTokenCount": 9,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 17,
    },
}
FUNCTION = {"name": "add", "arguments": "{}"}
DEEPSEEK_CALL = {"id": "c1", "type": "function", "index": 0, "function": FUNCTION}
WANTED_BACK = {
    "anthropic": (CLAUDE, CLAUDE_FRAMES),
    "google": (GEMINI, [GEMINI]),
    "openai": (
        {
            "id": "r1",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "",
                        "reasoning_content": "Let me add.",
                        "tool_calls": [DEEPSEEK_CALL],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": COUNTED,
        },
        [
            {"choices": [{"index": 0, "delta": {"reasoning_content": "Let me "}}]},
            {"choices": [{"index": 0, "delta": {"reasoning_content": "add."}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": [DEEPSEEK_CALL]}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
            {"choices": [], "usage": COUNTED},
        ],
    ),
}
"""Answers with reasoning before a call, whole and in pieces."""
REASONED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VjcmV0"}
ASKED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_700_000_000,
    "model": "gpt-5.6",
    "status": "completed",
    "output": [REASONED, ASKED],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 17,
    },
}
RESPONSE_FRAMES = [
    {"type": "response.output_item.done", "output_index": 0, "item": REASONED},
    {"type": "response.output_item.added", "output_index": 1, "item": ASKED | {"arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
    {"type": "response.output_item.done", "output_index": 1, "item": ASKED},
    {"type": "response.completed", "response": RESPONSE},
]
WANTED_BACK["openai-responses"] = (RESPONSE, RESPONSE_FRAMES)
SENT_BACK = {
    "anthropic": THOUGHT,
    "google": "c2lnbmVk",
    "openai": "Let me add.",
    "openai-responses": REASONED,
}
THINKING_MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "google": "gemini-3-pro-preview",
    "openai": "deepseek-v4-pro",
    "openai-responses": "gpt-5.6",
}


_RESULT = ["function_call_output"]


def sent_back(provider, body):
    """The reasoning before a call that a request sends back."""
    if provider == "openai":
        return body["messages"][1].get("reasoning_content")
    if provider == "openai-responses":
        assert [item["type"] for item in body["input"][-2:]] == ["function_call", *_RESULT]
        return body["input"][-3]
    if provider == "anthropic":
        content = body["messages"][1]["content"]
        assert content[-1]["type"] == "tool_use"
        return content[0]
    [part] = [
        p for p in body["contents"][1]["parts"] if "functionCall" in p or "function_call" in p
    ]
    return part.get("thoughtSignature")


def answered(reply):
    """The request after the call of a reply was made."""
    [call] = reply.calls
    result = ToolResult(id=call.id, name=call.name, text="2")
    messages = (user("Add."), assistant(reply.text, reply.calls), results([result]))
    return ModelRequest(messages=messages, tools=(ADD,))


class ModelCalls:
    """Give a fixture ``make_model``.

    Attributes:
        gives_back: The providers that get the reasoning before a call back with the call.
    """

    gives_back = tuple(WANTED_BACK)

    async def test_provider_with_the_protocol_of_another_has_its_own_address_key_and_price(
        self, openai_server, make_model, monkeypatch
    ):
        server = openai_server(["hello"])
        like = Provider(name="like", dialect="openai", url=server.base_url, keys=("LIKE_API_KEY",))
        module = type(make_model("gpt-4o", api_key="k")).__module__
        monkeypatch.setattr(
            f"{module}.SUPPORTED_PROVIDERS", Providers((*SUPPORTED_PROVIDERS.all, like))
        )
        environ = {"LIKE_API_KEY": "like-key", "OPENAI_API_KEY": "openai-key"}
        model = make_model("like/gpt-4o", environ=environ)
        assert await model.price() is None, "this is the price of OpenAI's model of that name"
        reply = await model.complete(ask())
        assert (reply.text, reply.cost_usd) == ("hello", None)
        (request,) = server.requests
        assert request.json["model"] == "gpt-4o"
        assert request.headers["authorization"] == "Bearer like-key"

    async def test_images_and_files_are_sent_in_provider_form(self, openai_server, make_model):
        server = openai_server(lambda _: "a")
        parts = (
            ImagePart(PNG, "image/png"),
            FilePart("notes.csv", b"a,b\n1,2\n", "text/csv"),
            FilePart("paper.pdf", b"%PDF-1.4", "application/pdf"),
        )
        request = ModelRequest(messages=(user("look", parts),))
        for provider in PROVIDERS:
            await make_model(**at(server, provider)).complete(request)
        openai, responses, claude, gemini = server.json
        data = base64.b64encode(PNG).decode()
        text, image, table, file = openai["messages"][0]["content"]
        assert text["text"] == "look"
        assert image["image_url"]["url"] == f"data:image/png;base64,{data}"
        assert "notes.csv" in table["text"]
        assert "1,2" in table["text"]
        assert file["file"]["filename"] == "paper.pdf"
        assert file["file"]["file_data"].startswith("data:application/pdf;base64,")
        parts = {part["type"]: part for part in responses["input"][0]["content"]}
        assert parts["input_image"]["image_url"] == f"data:image/png;base64,{data}"
        assert parts["input_file"]["filename"] == "paper.pdf"
        assert parts["input_file"]["file_data"].startswith("data:application/pdf;base64,")
        kinds = {part["type"]: part for part in claude["messages"][0]["content"]}
        assert kinds["image"]["source"]["data"] == data
        assert kinds["document"]["source"]["media_type"] == "application/pdf"
        inline = [_camel_case(part) for part in gemini["contents"][0]["parts"]]
        types = [part["inlineData"]["mimeType"] for part in inline if "inlineData" in part]
        assert types == ["image/png", "application/pdf"]

    @pytest.mark.parametrize("provider", PROVIDERS)
    async def test_complete_returns_text_and_usage(self, provider, openai_server, make_model):
        server = openai_server([Reply(text="print('hi')", usage=(100, 20, 50))])
        model = make_model(**at(server, provider))
        reply = await model.complete(ask())
        assert reply.text == "print('hi')"
        assert reply.model == PROVIDERS[provider][0]
        assert reply.usage == Usage(input_tokens=100, cached_tokens=50, output_tokens=20)
        assert 0 < reply.cost_usd < 0.01
        assert reply.finish_reason == "stop"

    @pytest.mark.parametrize("provider", PROVIDERS)
    async def test_half_of_a_character_is_replaced(self, provider, openai_server, make_model):
        server = openai_server(["one", "two"])
        model = make_model(**at(server, provider))
        request = ModelRequest(messages=(user("ä half \ud83d of"),))
        assert (await model.complete(request)).text == "one"
        assert (await read_stream(model, request))[1].text == "two"
        assert all("ä half ? of" in str(body) for body in server.json)

    @pytest.mark.parametrize("provider", PROVIDERS)
    @pytest.mark.parametrize("streamed", [False, True])
    async def test_offered_tools_are_called(self, provider, streamed, openai_server, make_model):
        arguments = '{"code": "print(1)"}'
        server = openai_server([Reply(calls=(("run", arguments),), usage=(9, 8, 0))])
        tool = ModelTool(name="run", description="Runs it.", parameters=CODE)
        request = ModelRequest(messages=(user("go"),), tools=(tool,), must_call=True)
        model = make_model(**at(server, provider))
        _, reply = (
            await read_stream(model, request) if streamed else (None, await model.complete(request))
        )
        [call] = reply.calls
        assert (call.name, json.loads(call.arguments)) == ("run", {"code": "print(1)"})
        assert "run" in str(server.json[0]["tools"])

    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("provider", PROVIDERS)
    async def test_reasoning_goes_back_with_its_call(
        self, provider, streamed, openai_server, make_model
    ):
        if provider not in self.gives_back:
            return  # the library leaves the reasoning out: its README says so
        whole, frames = WANTED_BACK[provider]
        pieces = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
        kind = {"Content-Type": "text/event-stream" if streamed else "application/json"}
        body = (pieces if streamed else json.dumps(whole)).encode()
        server = openai_server(lambda _: Reply(body=body, headers=kind))
        config = at(server, provider, settings={"reasoning_effort": "low"})
        model = make_model(**config | {"model": THINKING_MODELS[provider]})
        request = ModelRequest(messages=(user("Add."),), tools=(ADD,))
        reply = (
            (await read_stream(model, request))[1] if streamed else await model.complete(request)
        )
        assert reply.usage == Usage(input_tokens=9, output_tokens=8, reasoning_tokens=5)
        expected = SENT_BACK[provider]
        again = answered(reply)
        await (read_stream(model, again) if streamed else model.complete(again))
        assert sent_back(provider, server.json[-1]) == expected
        other = make_model(**config | {"model": f"{THINKING_MODELS[provider]}-2"})
        # As a fallback it would refuse what another model signed.
        await (read_stream(other, again) if streamed else other.complete(again))
        assert sent_back(provider, server.json[-1]) != expected
        if provider == "openai":  # DeepSeek refuses calls without the field
            assert sent_back(provider, server.json[-1]) == ""
        if provider == "anthropic":  # Claude refuses to think after calls without its thinking
            assert "thinking" not in server.json[-1]

    @pytest.mark.parametrize("provider", PROVIDERS)
    async def test_stream_yields_pieces_and_the_whole_reply(
        self, provider, openai_server, make_model
    ):
        server = openai_server([Reply(text="one two  three\nfour ünï 🙂", usage=(100, 20, 50))])
        pieces, reply = await read_stream(make_model(**at(server, provider)), ask())
        assert len(pieces) > 1
        assert "".join(pieces) == reply.text == "one two  three\nfour ünï 🙂"
        assert reply.usage == Usage(input_tokens=100, cached_tokens=50, output_tokens=20)
        assert reply.cost_usd > 0
        assert reply.finish_reason == "stop"

    async def test_request_reaches_an_openai_server(self, openai_server, make_model):
        server = openai_server(["ok"])
        messages = (system("rules"), user("question"), assistant("answer"), user("more"))
        model = make_model(base_url=server.base_url, api_key="key-1", headers={"X-Tenant": "acme"})
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

    async def test_settings_are_sent_to_a_compatible_server(self, openai_server, make_model):
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
        model = make_model(base_url=server.base_url, settings=settings)
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

    async def test_key_is_sent_only_to_its_provider(self, openai_server, make_model):
        server = openai_server(lambda _: "ok")
        keys = {provider: f"key-{number}" for number, provider in enumerate(PROVIDERS)}
        variables = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
        environ = dict.fromkeys(variables, "key-of-the-environment")
        for provider in PROVIDERS:
            options = at(server, provider, api_key=None)
            model = make_model(**options, providers=keys, environ=environ)
            await model.complete(ask())
            request = server.requests[-1]
            sent = f"{request.path} {dict(request.headers)} {request.body}"
            held = [*keys.values(), "key-of-the-environment"]
            assert [key for key in held if key in sent] == [keys[provider]]

    @pytest.mark.parametrize("stream", [False, True])
    async def test_unknown_model_has_no_price(self, stream, openai_server, make_model):
        server = openai_server(["a", "b"])
        model = make_model("nobody-knows-me", base_url=server.base_url)
        for _ in range(2):
            reply = (await read_stream(model, ask()))[1] if stream else await model.complete(ask())
            assert reply.cost_usd is None
            assert reply.usage.total_tokens == 18

    async def test_price_belongs_to_the_requested_model(self, openai_server, make_model):
        usage = (1_000_000, 1_000_000)
        server = openai_server([Reply(text="a", model="surprise", usage=usage)])
        reply = await make_model(**at(server, "openai")).complete(ask())
        assert reply.cost_usd == pytest.approx(0.15 + 0.60)
        assert reply.model == "gpt-4o-mini"

    async def test_cached_tokens_are_cheaper(self, openai_server, make_model):
        server = openai_server([Reply(usage=(1_000_000, 0, 1_000_000), text="a")])
        reply = await make_model(**at(server, "openai")).complete(ask())
        assert reply.cost_usd == pytest.approx(0.075)

    async def test_reply_without_usage_has_no_price(self, openai_server, make_model):
        server = openai_server([Reply(text="a", usage=None)])
        reply = await make_model(**at(server, "openai")).complete(ask())
        assert (reply.usage, reply.cost_usd) == (Usage(), None)

    async def test_empty_answer_is_accepted(self, openai_server, make_model):
        server = openai_server([Reply(text=""), Reply(text="")])
        model = make_model(base_url=server.base_url)
        assert (await model.complete(ask())).text == ""
        assert (await read_stream(model, ask()))[1].text == ""

    async def test_truncated_answer_is_marked(self, openai_server, make_model):
        cut = Reply(text="half an", finish_reason="length")
        server = openai_server([cut, cut])
        model = make_model(base_url=server.base_url)
        assert (await model.complete(ask())).finish_reason == "length"
        assert (await read_stream(model, ask()))[1].finish_reason == "length"

    async def test_stream_without_a_finish_reason_is_accepted(self, openai_server, make_model):
        server = openai_server([Reply(text="a b", finish_reason=None)])
        assert (await read_stream(make_model(base_url=server.base_url), ask()))[1].text == "a b"

    async def test_connections_are_reused(self, openai_server, make_model):
        server = openai_server(lambda _: "ok")
        model = make_model(base_url=server.base_url)
        for _ in range(5):
            await model.complete(ask())
            await read_stream(model, ask())
        assert server.connections <= 2

    async def test_model_serves_concurrent_calls(self, openai_server, make_model):
        server = openai_server(lambda request: Reply(text=request.prompt, delay=0.05))
        model = make_model(base_url=server.base_url)
        replies = await asyncio.gather(*(model.complete(ask(f"task {i}")) for i in range(50)))
        assert [reply.text.split("\n")[1] for reply in replies] == [f"task {i}" for i in range(50)]

    @pytest.mark.parametrize(
        "calls",
        [
            [piece("f", '{"a": 1}', index=0, id="x"), piece("g", '{"b": 2}', index=0, id="y")],
            [piece("f", '{"a": 1}', index=0), piece("g", '{"b": 2}', index=0)],
            [piece("f", {"a": 1}, index=0, id="x"), piece("g", {"b": 2}, index=1, id="y")],
            [
                *(piece("f", '{"a":', index=0, id="x"), piece(None, " 1}", index=0)),
                *(piece("g", '{"b":', index=0, id="y"), piece(None, " 2}", index=0)),
            ],
        ],
        ids=["one index", "one index without ids", "objects", "one index in pieces"],
    )
    async def test_parallel_calls_are_joined_despite_odd_numbering(
        self, calls, openai_server, make_model
    ):
        headers = {"Content-Type": "text/event-stream"}
        server = openai_server([Reply(body=events(*calls).encode(), headers=headers)])
        _, reply = await read_stream(make_model(base_url=server.base_url, api_key="k"), ask())
        found = [(call.name, json.loads(call.arguments)) for call in reply.calls]
        assert found == [("f", {"a": 1}), ("g", {"b": 2})]

    async def test_call_arguments_may_be_an_object(self, openai_server, make_model):
        message = {"tool_calls": [piece("f", {"a": 1}, id="x")]}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
        server = openai_server([Reply(body=body.encode())])
        reply = await make_model(base_url=server.base_url, api_key="k").complete(ask())
        assert [(c.name, json.loads(c.arguments)) for c in reply.calls] == [("f", {"a": 1})]

    @pytest.mark.parametrize("refuses", [False, True])
    @pytest.mark.parametrize("streams", ["always", "never"])
    async def test_server_that_always_or_never_streams_is_supported(
        self, streams, refuses, openai_server, make_model
    ):
        def answer(request):
            if refuses and request.json.get("stream", False) is not (streams == "always"):
                return Reply(status=400, error="stream must be set otherwise")
            if streams == "always":
                headers = {"Content-Type": "text/event-stream"}
                return Reply(body=words("a ", "b").encode(), headers=headers)
            message = {"role": "assistant", "content": "a b"}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            return Reply(body=json.dumps({"choices": choices}).encode())

        server = openai_server(answer)
        model = make_model(base_url=server.base_url, api_key="k")
        for _ in range(2):
            assert (await model.complete(ask())).text == "a b"
            pieces, reply = await read_stream(model, ask())
            assert (reply.text, "".join(pieces)) == ("a b", "a b")
        assert len(server.requests) <= 5  # it is asked the other way once

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("provider", PROVIDERS)
    async def test_provider_web_search_is_requested_and_priced(
        self, provider, stream, openai_server, make_model
    ):
        server = openai_server(["found", "found", "summed up"])
        tools = [{"tool_type": "web_search", "max_uses": 3}]
        model = make_model(**at(server, provider, settings={"server_side_tools": tools}))
        if stream:
            await read_stream(model, ask())
        else:
            await model.complete(ask())
        await model.complete(ModelRequest(messages=(user("a page"),), purpose="call"))
        await model.complete(ModelRequest(messages=(user("sum up"),), purpose="summarize"))
        for asked in server.json[:2]:
            if provider == "openai":
                assert asked["web_search_options"] == {}
            elif provider == "openai-responses":
                assert [tool["type"] for tool in asked["tools"]] == ["web_search"]
            elif provider == "anthropic":
                (tool,) = asked["tools"]
                assert tool["type"].startswith("web_search_")
                assert (tool["name"], tool["max_uses"]) == ("web_search", 3)
            else:
                assert asked["tools"] == [{"googleSearch": {}}]
        assert not {"tools", "web_search_options", "server_side_tools"} & set(server.json[2])

    async def test_unsupported_search_option_is_refused(self, openai_server, make_model):
        server = openai_server(lambda _: "found")
        limited = [{"tool_type": "web_search", "allowed_domains": ["example.org"]}]
        for provider in ("openai", "google"):
            with pytest.raises(ModelConfigurationError, match=r"only anthropic and .* know allow"):
                make_model(**at(server, provider, settings={"server_side_tools": limited}))
        with pytest.raises(
            ModelConfigurationError, match=r"openai-responses/gpt-4o-mini.*gpt-5-search-api"
        ) as caught:
            make_model(model="gpt-4o-mini", settings={"server_side_tools": ["web_search"]})
        assert "websearch" in caught.value.hint
        make_model(model="gpt-5-search-api", settings={"server_side_tools": ["web_search"]})
        for provider in ("anthropic", "openai-responses"):
            model = make_model(**at(server, provider, settings={"server_side_tools": limited}))
            await model.complete(ask())
        asked = [sent["tools"][0] for sent in server.json]
        assert asked[0]["allowed_domains"] == ["example.org"]
        assert asked[1]["filters"] == {"allowed_domains": ["example.org"]}
