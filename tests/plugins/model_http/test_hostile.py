"""Servers that stop, drip, lie, lead elsewhere or answer with something else."""

import asyncio
import gc
import itertools
import json
import os
import random
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest

from delf.errors import LLMExecutionError
from delf_model_http.events import EventReader
from delf_model_providers.retry import RetryPolicy
from support import provider_protocols as protocols
from support.model_calls import PROVIDERS, at
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply
from support.server import free_port

ANSWER = protocols.Answer(
    "m",
    "one ü 🙂",
    ["one", " ü", " 🙂"],
    (9, 9, 3, 2),
    "stop",
    include_usage=True,
    calls=(("run", '{"a": "ü"}'),),
)
PATHS = {
    "openai-responses": "/v1/responses",
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/m:streamGenerateContent",
}
EVERY_BYTE = "DELF_EVERY_BYTE" in os.environ  # half a minute for each of the three
MANY = int(os.environ.get("DELF_TEST_REQUESTS", "300"))  # ten thousand take a minute
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@asynccontextmanager
async def answering(*parts, pause=0.0, close=True):
    """A server that answers each request with fixed bytes, and a record of its connections."""
    seen = {"open": 0, "closed": asyncio.Event(), "asked": asyncio.Event()}

    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        try:
            await answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def answer(reader, writer):
        seen["open"] += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(size)
            seen["asked"].set()
            for part in next(parts[0]) if callable(getattr(parts[0], "__next__", None)) else parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            if not close:
                await reader.read()
        seen["closed"].set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen["url"] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def once(http_model, url, provider="openai", **config):
    url += "/v1" if provider == "openai" else ""
    return http_model(
        PROVIDERS[provider][0],
        base_url=url,
        provider=provider,
        api_key="sk-key-1",
        retry=RetryPolicy(retries=0, unreachable_retries=0),
        **config,
    )


def stream_of(provider):
    return b"".join(protocols.of(PATHS[provider]).events(ANSWER))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_stream_truncated_at_any_byte_is_complete_or_raises(provider, http_model):
    stream = stream_of(provider)
    ends = range(len(stream), -1, -1 if EVERY_BYTE else -17)
    whole = None
    cut = ([HEAD + b"Connection: close\r\n\r\n" + stream[:end]] for end in ends)
    async with answering(cut) as server:
        model = once(http_model, server["url"], provider)
        for end in ends:
            error = reply = None
            try:
                _, reply = await read_stream(model, ask())
            except LLMExecutionError as caught:
                error = caught
            if error is not None:
                assert "not a chat completion" in error.message or "broke off" in error.message
            else:
                whole = whole or reply
                assert (reply.text, reply.calls[0].name) == ("one ü 🙂", "run")
                assert json.loads(reply.calls[0].arguments) == {"a": "ü"}
                rest = stream[end:]
                assert b"finish_reason" not in rest or b'"finish_reason": null' in rest
                assert rest.count(b'"text"') == 0
    assert whole is not None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_events_are_read_from_any_chunks(provider):
    stream = stream_of(provider)
    expected = EventReader().feed(stream)
    assert len(expected) > 3

    chance = random.Random(1)
    for newline in ("\n", "\r\n", "\r") * 100:
        data = stream.decode().replace("\n", newline).encode()
        cuts = sorted(chance.choices(range(len(data)), k=chance.randrange(9)))
        reader, events = EventReader(), []
        for start, end in itertools.pairwise([0, *cuts, len(data)]):
            events += reader.feed(data[start:end])
        assert events + reader.end() == expected


def test_event_reader_ignores_comments_and_joins_data_lines():
    text = ": hello\nid: 1\nevent: x\ndata: one\ndata:two\nretry: 9\n\ndata\n\ndata: \u2028\n\n"
    assert EventReader().feed(b"\xef\xbb\xbf" + text.encode()) == ["one\ntwo", "", "\u2028"]
    assert EventReader().feed(b"data: not ended\n") == []


BODIES = {
    "a page": (b"<!doctype html><title>Welcome</title>", "web page"),
    "wrong UTF-8": (b'{"choices": [{"message": {"content": "\xff"}}]}', "UTF-8"),
    "no JSON": (b"hello", "not JSON"),
    "another JSON": (b'{"hello": 1}', "'choices'"),
    "a list": (b"[1, 2]", "'choices'"),
    "no choice": (b'{"choices": []}', "'message'"),
    "a number for a text": (b'{"choices": [{"message": {"content": 7}}]}', "a text is expected"),
    "10 MB of JSON": (b'{"a": "' + b"x" * 10_000_000 + b'"}', "more than 8 MB"),
    "deep JSON": (b"[" * 100_000, "not JSON"),
    "a huge number": (b'{"choices": ' + b"9" * 5000 + b"}", "not JSON"),
    "nothing": (b"", "not JSON"),
}


@pytest.mark.parametrize("kind", BODIES)
async def test_foreign_answer_raises(kind, http_model):
    body, words = BODIES[kind]
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with answering(head + body) as server:
        with pytest.raises(LLMExecutionError, match="not a chat completion") as caught:
            await once(http_model, server["url"]).complete(ask())
    assert words in caught.value.message
    assert "/v1" in caught.value.hint


STREAMS = {
    "a page": (b"<!doctype html>", "web page"),
    "a text": (b"the bus is gone", "the bus is gone"),
    "events of another kind": (b'data: {"status": "gone"}\n\ndata: [DONE]\n\n', "gone"),
    "no JSON": (b"data: hello\n\n", "not JSON"),
    "wrong UTF-8": (b"data: \xff\xfe\n\n", "UTF-8"),
    "an endless event": (b"data: " + b"x" * 9_000_000, "more than 8 MB"),
    "an endless event of many lines": (b"data: x\n" * 1_200_000, "more than 8 MB"),
}


@pytest.mark.parametrize("kind", STREAMS)
async def test_foreign_stream_raises(kind, http_model):
    data, words = STREAMS[kind]
    async with answering(HEAD + b"Connection: close\r\n\r\n" + data) as server:
        with pytest.raises(LLMExecutionError, match="not a chat completion") as caught:
            await read_stream(once(http_model, server["url"]), ask())
    assert words in caught.value.message


MESSAGE = {
    "openai": (b'data: {"error": {"code": 502, "message": "upstream is gone"}}\n\n', 502),
    "openai-responses": (
        b'data: {"type": "error", "code": "rate_limit_exceeded", "message": "upstream is gone"}\n\n',
        429,
    ),
    "anthropic": (
        b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "upstream is gone"}}\n\n',
        529,
    ),
    "google": (b'data: {"error": {"code": 503, "message": "upstream is gone"}}\n\n', 503),
}


@pytest.mark.parametrize(
    "event",
    [
        {"object": "error", "message": "upstream is gone", "type": "BadRequestError", "code": 503},
        {"type": "error", "message": "upstream is gone", "code": 503},
        {"detail": "upstream is gone", "code": 503},
        {"error": "upstream is gone"},
        {"errors": [{"message": "upstream is gone"}]},
        {"detail": [{"msg": "upstream is gone"}]},
        {"error_code": 17, "error_msg": "upstream is gone"},
        {"choices": [{"delta": {"error": {"message": "upstream is gone"}}}]},
    ],
)
async def test_unusual_error_object_does_not_end_an_answer(event, http_model):
    begun = {"id": "x", "choices": [{"index": 0, "delta": {"content": "half"}}]}
    data = "".join(f"data: {text}\n\n" for text in (*map(json.dumps, (begun, event)), "[DONE]"))
    async with answering(HEAD + b"Connection: close\r\n\r\n" + data.encode()) as server:
        with pytest.raises(LLMExecutionError, match="upstream is gone"):
            await read_stream(once(http_model, server["url"]), ask())


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_error_inside_a_stream_raises(provider, http_model):
    data, status = MESSAGE[provider]
    async with answering(HEAD + b"Connection: close\r\n\r\n" + data) as server:
        with pytest.raises(LLMExecutionError, match="upstream is gone") as caught:
            await read_stream(once(http_model, server["url"], provider), ask())
    assert caught.value.status == status


async def test_blocked_gemini_prompt_raises(http_model):
    body = b'{"promptFeedback": {"blockReason": "SAFETY"}}'
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with answering(head + body) as server:
        with pytest.raises(LLMExecutionError, match="SAFETY"):
            await once(http_model, server["url"], "google").complete(ask())


async def test_slow_byte_by_byte_answer_times_out(http_model):
    slow = [HEAD, *[b"x"] * 400]
    async with answering(*slow, pause=0.05) as server:
        model = once(http_model, server["url"], settings={"timeout": 0.4})
        for call in (model.complete(ask()), read_stream(model, ask())):
            started = time.perf_counter()
            with pytest.raises(LLMExecutionError, match=r"within 0\.4 s"):
                await call
            assert time.perf_counter() - started < 10


@pytest.mark.parametrize("words", [10_000, 3])
async def test_wrong_content_length_raises(words, http_model):
    body = json.dumps(protocols.OPENAI.answer(ANSWER)).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {words}\r\n\r\n".encode()
    async with answering(head + body) as server:
        with pytest.raises(
            LLMExecutionError, match=r"dropped the connection|not a chat completion"
        ):
            await once(http_model, server["url"]).complete(ask())


@pytest.mark.parametrize("reply", [b"nonsense\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b""])
async def test_server_without_http_raises(reply, http_model):
    async with answering(reply) as server:
        with pytest.raises(LLMExecutionError, match="dropped the connection"):
            await once(http_model, server["url"]).complete(ask())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_refused_and_the_key_not_sent(status, openai_server, http_model):
    other = openai_server(["never"])
    target = f"http://localhost:{other.port}/v1/chat/completions"
    server = openai_server([Reply(status=status, headers={"Location": target})])
    with pytest.raises(LLMExecutionError, match="redirect"):
        await once(http_model, server.root_url).complete(ask())
    assert other.requests == []


async def test_stream_ends_with_its_last_event_despite_an_open_body(http_model):
    for provider in ("openai", "anthropic"):
        async with answering(HEAD + b"\r\n" + stream_of(provider), close=False) as server:
            started = time.perf_counter()
            _, reply = await read_stream(once(http_model, server["url"], provider), ask())
            assert reply.usage.input_tokens == 9
            assert time.perf_counter() - started < 10


@pytest.mark.parametrize("when", ["whole", "streamed", "between two pieces"])
async def test_cancelled_call_closes_its_connection(when, http_model):
    first, _, _ = stream_of("openai").partition(b" \xc3\xbc")
    came = asyncio.Event()

    async def read(model):
        async for _ in model.stream(ask()):
            came.set()

    async with answering(HEAD + b"\r\n" + first, close=False) as server:
        model = once(http_model, server["url"])
        task = asyncio.create_task(model.complete(ask()) if when == "whole" else read(model))
        await (came if when == "between two pieces" else server["asked"]).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await server["closed"].wait()


async def test_concurrent_first_calls_succeed(openai_server, http_model):
    server = openai_server(lambda _: Reply(text="fine"))
    model = http_model(**at(server, "openai"))
    replies = await asyncio.gather(*(model.complete(ask(f"{n}")) for n in range(200)))
    assert {reply.text for reply in replies} == {"fine"}


async def test_calls_leave_no_task_or_descriptor(openai_server, http_model):
    server = openai_server(lambda _: Reply(text="fine"))
    model = http_model(**at(server, "openai"))

    async def some(count):
        for _ in range(count // 10):
            await asyncio.gather(*(model.complete(ask()) for _ in range(10)))
        server.requests.clear()
        gc.collect()
        return len(gc.get_objects()), len(asyncio.all_tasks()), len(os.listdir("/dev/fd"))

    before = await some(100)
    objects, tasks, files = (now - then for now, then in zip(await some(MANY), before, strict=True))
    assert objects < 300
    assert tasks <= 0
    assert files <= 20  # ten at once, and the server's ends are in this process, too
    assert server.connections <= 20


def test_model_works_across_successive_event_loops(openai_server):
    from delf.llm import LLMConfig
    from delf.protocols.context import PluginContext
    from delf_model_http.model import HttpModel

    server = openai_server(lambda _: "ok")
    model = HttpModel(PluginContext(), LLMConfig("m", base_url=server.base_url))

    async def use():
        reply = await model.complete(ask())
        await model.aclose()
        await model.aclose()
        return reply.text

    assert [asyncio.run(use()) for _ in range(3)] == ["ok"] * 3
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(asyncio.run(use()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["ok"] * 8


async def test_requests_go_through_the_proxy_of_the_environment(
    openai_server, http_model, monkeypatch
):
    proxy = openai_server(["by proxy"])
    monkeypatch.setenv("HTTP_PROXY", proxy.root_url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    model = once(http_model, "http://models.invalid")
    assert (await model.complete(ask())).text == "by proxy"
    assert proxy.requests[0].path.startswith("http://models.invalid/v1/")


@pytest.mark.parametrize("key", ["bad\nkey", "sk-ключ", "a\x00b"])
def test_unsendable_key_is_reported_without_its_value(key, http_model):
    with pytest.raises(Exception, match="has an invalid character") as caught:
        http_model("gpt-4o", api_key=key)
    assert key not in str(caught.value)


async def test_trailing_newline_of_a_key_is_removed(openai_server, http_model):
    server = openai_server(["ok"], api_key="sk-1")
    environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-1\n"}
    model = http_model(environ=environ)
    assert (await model.complete(ask())).text == "ok"


async def test_unreachable_port_raises(http_model):
    with pytest.raises(LLMExecutionError, match="not reachable"):
        await once(http_model, f"http://127.0.0.1:{free_port()}").complete(ask())


async def test_https_address_without_tls_is_reported(http_model):
    async def refuse(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LLMExecutionError, match="TLS"):
            await once(http_model, f"https://127.0.0.1:{port}").complete(ask())
