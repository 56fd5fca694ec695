"""The contract of models, in each of the three dialects."""

from __future__ import annotations

import json
import threading

import pytest

from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf.testing import ModelContract, PluginContract
from delf_model_http.model import HttpModel
from delf_model_providers.retry import RetryPolicy
from support.openai_server import OpenAIServer, Reply

CALL = Reply(calls=(("add", '{"a": 1, "b": 2}'),))


class InEachDialect(ModelContract):
    provider: str
    secrets = ("sk-good-key", "sk-refused-key")
    slow = True
    calls = True
    images = True

    def at(self, server: OpenAIServer, key: str = "sk-good-key") -> HttpModel:
        url = server.base_url if self.provider == "openai" else server.root_url
        config = LLMConfig("test-model", base_url=url, api_key=key, provider=self.provider)
        return HttpModel(PluginContext(), config, retry=RetryPolicy(jitter=lambda: 0.0))

    @pytest.fixture
    def server(self, openai_server):
        return openai_server(lambda _: "Hello, grüß Gott 🦊!", api_key="sk-good-key")

    @pytest.fixture
    def model(self, server):
        return self.at(server)

    @pytest.fixture
    def sent_texts(self, server):
        return lambda: [json.dumps(body, ensure_ascii=False) for body in server.json]

    @pytest.fixture
    def echo_model(self, openai_server):
        return self.at(openai_server(lambda request: Reply(text=request.body.decode())))

    @pytest.fixture
    def cut_model(self, openai_server):
        return self.at(openai_server(lambda _: Reply(text="Hel", finish_reason="length")))

    @pytest.fixture
    def calling_model(self, openai_server):
        return self.at(openai_server(lambda _: CALL))

    @pytest.fixture
    def failing_model(self, openai_server):
        return self.at(openai_server(api_key="sk-good-key"), "sk-refused-key")

    @pytest.fixture
    def slow_model(self, openai_server):
        release = threading.Event()
        yield self.at(openai_server([Reply(text="late", hold=release)] * 2))
        release.set()


class TestOpenAI(InEachDialect):
    provider = "openai"


class TestAnthropic(InEachDialect):
    provider = "anthropic"


class TestGoogle(InEachDialect):
    provider = "google"


class TestPackage(PluginContract):
    name = "model-http"
    offers = {"embedder": ["http"], "model": ["http"]}
    vendors = ("httpx", "httpcore", "anyio", "openai", "anthropic", "google")
