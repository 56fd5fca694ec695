"""The contract of models, against a server that speaks the provider's protocol."""

from __future__ import annotations

import json
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
    images = True

    @pytest.fixture
    def calling_model(self, openai_server):
        reply = Reply(calls=(("add", '{"a": 1, "b": 2}'),))
        return at(openai_server(lambda _: reply, api_key="sk-good-key"), "sk-good-key")

    @pytest.fixture
    def server(self, openai_server):
        return openai_server(lambda _: "Hello, grüß Gott 🦊!", api_key="sk-good-key")

    @pytest.fixture
    def model(self, server):
        return at(server, "sk-good-key")

    @pytest.fixture
    def sent_texts(self, server):
        return lambda: [json.dumps(body, ensure_ascii=False) for body in server.json]

    @pytest.fixture
    def echo_model(self, openai_server):
        return at(openai_server(lambda request: Reply(text=request.body.decode())), "sk-good-key")

    @pytest.fixture
    def cut_model(self, openai_server):
        reply = Reply(text="Hel", finish_reason="length")
        return at(openai_server(lambda _: reply), "sk-good-key")

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
