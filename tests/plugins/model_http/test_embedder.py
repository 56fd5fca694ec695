"""Embeddings by both protocols, against a server on loopback."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from delf.errors import EnvironmentKeyError, LLMExecutionError, ModelConfigurationError
from delf.protocols.context import PluginContext
from delf.providers import Providers
from delf.specs import Provider
from delf.testing import EmbedderContract
from delf_model_http.embedder import HttpEmbedder
from delf_model_providers.retry import RetryPolicy

KEY = "sk-test-4471"
WORDS = ["office", "city", "closes", "turin", "zoë", "tea", "six"]


class Server:
    """Speaks OpenAI's ``/embeddings`` and Gemini's ``batchEmbedContents``."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.fail: Callable[[int], tuple[int, dict[str, str], bytes] | None] = lambda number: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(size))
                outer.requests.append((self.path, dict(self.headers), body))
                failed = outer.fail(len(outer.requests))
                status, headers, content = failed or (200, {}, outer.answer(self.path, body))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def answer(self, path: str, body: Any) -> bytes:
        if path.endswith(":batchEmbedContents"):
            texts = [r["content"]["parts"][0]["text"] for r in body["requests"]]
            return json.dumps({"embeddings": [{"values": vector(t)} for t in texts]}).encode()
        data = [
            {"object": "embedding", "index": n, "embedding": vector(text)}
            for n, text in enumerate(body["input"])
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        whole = {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}
        return json.dumps(whole).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def vector(text: str) -> list[float]:
    return [3.0 * (word in text.lower()) for word in WORDS] + [0.1]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def context(tmp_path: Path) -> PluginContext:
    return PluginContext(data_dir=tmp_path, environ={"OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY})


QUICK = RetryPolicy(first_delay=0.0, max_delay=0.0)


class TestOpenAI(EmbedderContract):
    secrets = (KEY,)

    @pytest.fixture
    def embedder(self, server: Server, context: PluginContext) -> HttpEmbedder:
        return HttpEmbedder(context, embedding_base_url=f"{server.url}/v1", retry=QUICK)

    @pytest.fixture
    def failing_embedder(self, server: Server, embedder: HttpEmbedder) -> HttpEmbedder:
        server.fail = lambda _: (401, {}, b"the key sk-test-4471 is unknown")
        return embedder


class TestGemini(TestOpenAI):
    @pytest.fixture
    def embedder(self, server: Server, context: PluginContext) -> HttpEmbedder:
        return HttpEmbedder(
            context, "gemini-embedding-001", embedding_base_url=f"{server.url}/v1beta", retry=QUICK
        )


async def test_embedding_request_has_the_provider_form(
    server: Server, context: PluginContext
) -> None:
    one = HttpEmbedder(
        context,
        embedding_base_url=f"{server.url}/v1",
        embedding_api_key=KEY,
        embedding_dimensions=8,
    )
    await one.embed(["tea", ""], "query")
    await one.aclose()
    path, headers, body = server.requests[-1]
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "text-embedding-3-small",
        "input": ["tea", " "],
        "encoding_format": "float",
        "dimensions": 8,
    }
    assert one.model == "text-embedding-3-small:8"
    other = HttpEmbedder(
        context,
        "google/gemini-embedding-001",
        embedding_base_url=f"{server.url}/v1beta",
        embedding_api_key=KEY,
    )
    await other.embed(["tea"], "query")
    await other.aclose()
    path, headers, body = server.requests[-1]
    assert headers["x-goog-api-key"] == KEY
    assert body["requests"][0]["taskType"] == "RETRIEVAL_QUERY"
    assert body["requests"][0]["content"] == {"parts": [{"text": "tea"}]}


async def test_embedder_asks_the_installed_provider_of_its_model(
    server: Server, tmp_path: Path
) -> None:
    acme = Provider(
        name="acme",
        models=("acme-*",),
        keys=("ACME_KEY",),
        dialect="openai",
        url=f"{server.url}/v1",
    )
    context = PluginContext(
        data_dir=tmp_path,
        environ={"OPENAI_API_KEY": "of-openai", "ACME_KEY": KEY},
        installed_providers=Providers([acme]),
    )
    for model in ("acme-embed", "acme/acme-embed"):
        embedder = HttpEmbedder(context, model, retry=QUICK)
        await embedder.embed(["tea"])
        await embedder.aclose()
        path, headers, body = server.requests[-1]
        assert (path, headers["Authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
        assert body["model"] == "acme-embed"


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("acme:acme-embed", "write 'acme/acme-embed' in embedder or embedding_model"),
        ("google:text-embedding-004", "write 'google/text-embedding-004'"),
        ("anthropic/embed", "set embedding_base_url"),
    ],
)
async def test_embedder_refuses_a_model_of_another_provider(
    model: str, advice: str, server: Server, tmp_path: Path
) -> None:
    acme = Provider(name="acme", keys=("ACME_KEY",), dialect="openai", url=f"{server.url}/v1")
    keys = {"OPENAI_API_KEY": KEY, "ACME_KEY": KEY}
    installed = Providers([acme])
    context = PluginContext(data_dir=tmp_path, environ=keys, installed_providers=installed)
    with pytest.raises(ModelConfigurationError, match="the texts would go to openai") as error:
        HttpEmbedder(context, model)
    assert advice in (error.value.hint or "")
    own = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
    embedder = HttpEmbedder(replace(context, environ=own), model, retry=QUICK)
    assert len(await embedder.embed(["tea"])) == 1
    await embedder.aclose()


async def test_transient_failure_is_retried(server: Server, context: PluginContext) -> None:
    server.fail = lambda number: (503, {}, b"busy") if number < 3 else None
    embedder = HttpEmbedder(context, embedding_base_url=f"{server.url}/v1", retry=QUICK)
    assert len(await embedder.embed(["tea"])) == 1
    assert len(server.requests) == 3
    await embedder.aclose()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            (401, {}, json.dumps({"error": {"message": f"bad key {KEY}"}}).encode()),
            "rejected the key",
        ),
        ((404, {}, b"{}"), "does not know the model"),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), "redirect"),
        ((200, {}, b"<html>"), "no list of vectors"),
        ((200, {}, b'{"data": []}'), "0 vectors for 1 texts"),
        ((200, {}, b'{"data": [{"index": 0, "embedding": []}]}'), "1 vectors for 1 texts"),
    ],
)
async def test_embedder_errors_hide_the_key(
    answer: tuple[int, dict[str, str], bytes], shown: str, server: Server, context: PluginContext
) -> None:
    server.fail = lambda number: answer
    embedder = HttpEmbedder(
        context, embedding_base_url=f"{server.url}/v1", embedding_api_key=KEY, retry=QUICK
    )
    with pytest.raises(LLMExecutionError, match=shown) as error:
        await embedder.embed(["tea"])
    assert KEY not in str(error.value)
    assert len(server.requests) == 1
    await embedder.aclose()


async def test_missing_key_and_unreachable_server_are_reported(
    tmp_path: Path, context: PluginContext
) -> None:
    with pytest.raises(EnvironmentKeyError, match="OPENAI_API_KEY"):
        await HttpEmbedder(PluginContext(data_dir=tmp_path)).embed(["tea"])
    embedder = HttpEmbedder(context, embedding_base_url="http://127.0.0.1:9/v1", retry=QUICK)
    with pytest.raises(LLMExecutionError, match="connection refused"):
        await embedder.embed(["tea"])
    await embedder.aclose()
