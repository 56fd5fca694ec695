"""The contract of models, against a server that speaks the provider's protocol."""

from __future__ import annotations

import threading

import pytest

from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf.testing import ModelContract, PluginContract
from delf_model_litellm.model import LiteLLMModel
from delf_model_providers.retry import RetryPolicy
from support.openai_server import OpenAIServer, Reply


def at(server: OpenAIServer, key: str) -> LiteLLMModel:
    config = LLMConfig("test-model", base_url=server.base_url, api_key=key)
    return LiteLLMModel(PluginContext(), config, retry=RetryPolicy(jitter=lambda: 0.0))


class TestLiteLLM(ModelContract):
    secrets = ("sk-good-key", "sk-refused-key")
    slow = True
    calls = True

    @pytest.fixture
    def calling_model(self, openai_server):
        reply = Reply(calls=(("add", '{"a": 1, "b": 2}'),))
        return at(openai_server(lambda _: reply, api_key="sk-good-key"), "sk-good-key")

    @pytest.fixture
    def model(self, openai_server):
        return at(
            openai_server(lambda _: "Hello, grüß Gott 🦊!", api_key="sk-good-key"), "sk-good-key"
        )

    @pytest.fixture
    def failing_model(self, openai_server):
        return at(openai_server(api_key="sk-good-key"), "sk-refused-key")

    @pytest.fixture
    def slow_model(self, openai_server):
        release = threading.Event()
        yield at(openai_server([Reply(text="late", hold=release)] * 2), "sk-good-key")
        release.set()


class TestPackage(PluginContract):
    name = "model-litellm"
    offers = {"model": ["litellm"]}
    vendors = ("litellm", "openai", "httpx", "aiohttp")
