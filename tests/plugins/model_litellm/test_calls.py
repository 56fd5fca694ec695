"""Requests and answers, as every plugin of models has them, and what litellm makes of them."""

import asyncio

import pytest

from delf.errors import LLMExecutionError, ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import ModelRequest, system, user
from delf.protocols.context import PluginContext
from delf_model_litellm.model import LiteLLMModel
from support.model_calls import ModelCalls, at
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply


class TestCalls(ModelCalls):
    gives_back = ("openai", "anthropic", "google")

    async def test_stream_without_a_finish_reason_is_accepted(self, openai_server, make_model):
        """litellm reports the end of such a stream in the same way as a lost connection."""
        server = openai_server([Reply(text="a b", finish_reason=None)])
        with pytest.raises(LLMExecutionError, match="broke off after 3 characters") as caught:
            await read_stream(make_model(base_url=server.base_url), ask())
        assert caught.value.message.endswith("Stream ended before a finish_reason was received")

    async def test_request_omits_unknown_parameters(self, openai_server, make_model):
        settings = {"temperature": 0.2, "top_k": 40, "presence_penalty": 0.1, "max_tokens": 12}
        server = openai_server(["a", "b", "c"])
        for provider in ("anthropic", "google"):
            await make_model(**at(server, provider, settings=settings)).complete(ask())
        claude, gemini = server.json
        assert (claude["temperature"], claude["top_k"], claude["max_tokens"]) == (0.2, 40, 12)
        assert "presence_penalty" not in claude
        config = gemini["generationConfig"]
        assert (config["temperature"], config["top_k"], config["max_output_tokens"]) == (
            0.2,
            40,
            12,
        )
        reasoning = at(server, "openai", settings=settings) | {"model": "o3-mini"}
        await make_model(**reasoning).complete(ask())
        assert server.json[2]["max_completion_tokens"] == 12
        assert "temperature" not in server.json[2]

    async def test_reasoning_and_extra_fields_are_sent(self, openai_server, make_model):
        settings = {"reasoning_effort": "low", "temperature": 0.2, "extra": {"of_tomorrow": "x"}}
        server = openai_server(["a", "b", "c"])
        for provider, model in (
            ("openai", "o3-mini"),
            ("anthropic", "claude-sonnet-4-5"),
            ("google", "gemini-2.5-flash"),
        ):
            config = at(server, provider, settings=settings) | {"model": model}
            await make_model(**config).complete(ask())
        openai, claude, gemini = server.json
        assert (openai["reasoning_effort"], openai["of_tomorrow"]) == ("low", "x")
        assert claude["thinking"] == {"type": "enabled", "budget_tokens": 1024}
        assert (claude["of_tomorrow"], "temperature" in claude) == ("x", False)
        assert gemini["of_tomorrow"] == "x"
        assert gemini["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 1024

    @pytest.mark.parametrize(
        "name", ["api_base", "base_url", "api_key", "custom_llm_provider", "fallbacks", "client"]
    )
    async def test_extra_field_cannot_be_an_option_of_litellm(
        self, openai_server, make_model, name
    ):
        own, other = openai_server(["a"]), openai_server(["b"])
        settings = {"extra": {name: other.root_url}}
        config = at(own, "anthropic", settings=settings) | {"model": "claude-sonnet-4-5"}
        with pytest.raises(ModelConfigurationError, match=f"takes the field '{name}'"):
            await make_model(**config).complete(ask())
        assert (own.requests, other.requests) == ([], [])

    async def test_disabled_thinking_keeps_sampling_settings(self, openai_server, make_model):
        settings = {"thinking": {"type": "disabled"}, "temperature": 0.2}
        server = openai_server(["a"])
        config = at(server, "anthropic", settings=settings) | {"model": "claude-sonnet-4-5"}
        await make_model(**config).complete(ask())
        assert server.json[0]["temperature"] == 0.2
        assert server.json[0]["thinking"] == {"type": "disabled"}

    async def test_long_system_message_is_cached_for_anthropic(self, openai_server, make_model):
        server = openai_server(["a", "b"])
        model = make_model(**at(server, "anthropic"))
        await model.complete(ModelRequest(messages=(system("rule " * 1000), user("hi"))))
        await model.complete(ask())
        long, short = server.json
        assert long["system"][0]["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" not in str(short["system"])

    def test_model_works_in_several_event_loops(self, openai_server, make_model):
        server = openai_server(lambda _: "ok")
        model = LiteLLMModel(PluginContext(), LLMConfig("m", base_url=server.base_url))

        async def use():
            reply = await model.complete(ask())
            await model.aclose()
            await model.aclose()
            return reply.text

        assert [asyncio.run(use()) for _ in range(2)] == ["ok", "ok"]

    async def test_explicit_litellm_prefix_is_removed(self, openai_server, litellm_model):
        server = openai_server(["fine"])
        model = litellm_model("litellm/gpt-4o-mini", base_url=server.base_url)
        reply = await model.complete(ask())
        assert server.json[0]["model"] == "gpt-4o-mini"
        assert reply.model == "litellm/gpt-4o-mini"
        assert reply.cost_usd > 0
