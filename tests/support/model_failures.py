"""Tests of failures for every model plugin: retries and error messages."""

import asyncio
import gzip
import logging
import threading
import time

import pytest

from delf.errors import EnvironmentKeyError, LLMExecutionError
from delf_model_providers.retry import RetryPolicy
from support.model_fixtures import ask, read_stream
from support.openai_server import Reply
from support.server import free_port
from support.until import until


async def failure(call, model):
    with pytest.raises(LLMExecutionError) as caught:
        await call(model)
    assert "\n" not in caught.value.describe()
    assert "litellm" not in caught.value.describe().lower()
    assert caught.value.__cause__ is None
    return caught.value


class ModelFailures:
    """Give a fixture ``make_model``."""

    @pytest.fixture(params=["complete", "stream"])
    def call(self, request):
        """Asks a model, one way or the other."""

        async def complete(model):
            return await model.complete(ask())

        async def stream(model):
            return (await read_stream(model, ask()))[1]

        return complete if request.param == "complete" else stream

    @pytest.mark.parametrize(
        "bad",
        [
            Reply(status=500),
            Reply(status=502),
            Reply(status=503),
            Reply(status=504),
            Reply(status=529),
            Reply(status=408),
            Reply(status=429),
            Reply(
                status=503, headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"down")[:-9]
            ),
            Reply(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"{}")[:-9]),
            Reply(drop="request"),
        ],
        ids=lambda reply: reply.drop or f"{reply.status}{'' if reply.body is None else '-gzip'}",
    )
    async def test_transient_failure_is_retried(self, bad, call, openai_server, make_model, pauses):
        server = openai_server([bad, bad, "fine"])
        reply = await call(make_model(base_url=server.base_url))
        assert reply.text == "fine"
        assert len(server.requests) == 3
        assert pauses.seconds == [0.5, 1.0]

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
    async def test_permanent_failure_is_not_retried(
        self, status, call, openai_server, make_model, pauses
    ):
        server = openai_server([Reply(status=status), "never"])
        error = await failure(call, make_model(base_url=server.base_url))
        assert (error.status, error.provider) == (status, "openai")
        assert len(server.requests) == 1
        assert pauses.seconds == []

    @pytest.mark.parametrize("provider", ["anthropic", "google"])
    async def test_retry_covers_other_protocols(self, provider, call, openai_server, make_model):
        bad = [Reply(status=503), Reply(status=429, headers={"Retry-After": "0"})]
        server = openai_server([*bad, "fine", Reply(status=401)])
        names = {"anthropic": "claude-sonnet-4-5", "google": "gemini-2.5-flash"}
        model = make_model(
            names[provider], base_url=server.root_url, provider=provider, api_key="k"
        )
        assert (await call(model)).text == "fine"
        assert len(server.requests) == 3
        error = await failure(call, model)
        assert (error.status, error.provider) == (401, provider)

    async def test_retries_are_limited(self, call, openai_server, make_model):
        server = openai_server(lambda _: Reply(status=500, error="out of order"))
        error = await failure(call, make_model(base_url=server.base_url))
        assert error.status == 500
        assert "500" in error.message
        assert "out of order" in error.message
        assert "try again later" in error.hint
        assert len(server.requests) == 3

    async def test_retry_after_header_is_obeyed(self, call, openai_server, make_model, pauses):
        server = openai_server([Reply(status=429, headers={"Retry-After": "3"}), "fine"])
        assert (await call(make_model(base_url=server.base_url))).text == "fine"
        assert pauses.seconds == [3.0]

    async def test_retry_after_accepts_milliseconds_and_dates(
        self, openai_server, make_model, pauses
    ):
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 10))
        first = Reply(status=429, headers={"Retry-After-Ms": "1500", "Retry-After": "2"})
        server = openai_server([first, Reply(status=503, headers={"Retry-After": date}), "fine"])
        await make_model(base_url=server.base_url).complete(ask())
        assert pauses.seconds[0] == 1.5
        assert 8 <= pauses.seconds[1] <= 10.1

    @pytest.mark.parametrize("value", ["soon", "-3", "Mon, 99 Foo"])
    async def test_invalid_retry_after_is_ignored(self, value, openai_server, make_model, pauses):
        server = openai_server([Reply(status=429, headers={"Retry-After": value}), "fine"])
        await make_model(base_url=server.base_url).complete(ask())
        assert pauses.seconds == [0.5]

    async def test_long_retry_after_fails_at_once(self, call, openai_server, make_model, pauses):
        server = openai_server([Reply(status=429, headers={"Retry-After": "3600"})])
        error = await failure(call, make_model(base_url=server.base_url))
        assert "3600 s" in error.hint
        assert pauses.seconds == []

    @pytest.mark.parametrize(
        ("status", "words", "code"),
        [
            (429, "Quota exceeded, please check your plan and billing.", "insufficient_quota"),
            (402, "Insufficient Balance", "invalid_request_error"),
            (400, "Your credit balance is too low to access the API.", "invalid_request_error"),
        ],
    )
    async def test_exhausted_credit_is_not_a_rate_limit(
        self, status, words, code, openai_server, make_model, pauses
    ):
        server = openai_server([Reply(status=status, error=words, error_code=code)])
        with pytest.raises(LLMExecutionError) as caught:
            await make_model(base_url=server.base_url).complete(ask())
        assert f"has no credit left ({status}): " in caught.value.message
        assert "limits the rate" not in caught.value.message
        assert "billing" in caught.value.hint
        assert caught.value.status in (402, 429)  # with 400 no fallback would be asked
        assert pauses.seconds == []

    async def test_renewable_quota_is_waited_for(self, openai_server, make_model, pauses):
        words = "You exceeded your current quota, please check your plan and billing details."
        server = openai_server([Reply(status=429, error=words, headers={"Retry-After": "3"}), "ok"])
        assert (await make_model(base_url=server.base_url).complete(ask())).text == "ok"
        assert pauses.seconds == [3.0]

    async def test_refused_connection_is_retried_and_reported(self, call, make_model, pauses):
        port = free_port()
        error = await failure(call, make_model(base_url=f"http://127.0.0.1:{port}/v1"))
        assert f"127.0.0.1:{port} is not reachable" in error.message
        assert "running" in error.hint
        assert error.status is None
        assert len(pauses.seconds) == 1

    async def test_unknown_host_is_reported(self, call, make_model):
        error = await failure(call, make_model(base_url="http://nowhere.invalid/v1"))
        assert "nowhere.invalid" in error.message
        assert "base_url" in error.hint

    async def test_rejected_key_error_names_its_source(self, call, openai_server, make_model):
        server = openai_server(["never"], api_key="right")
        model = make_model(base_url=server.base_url, environ={"OPENAI_API_KEY": "wr0ng-secret"})
        error = await failure(call, model)
        assert error.status == 401
        assert "OPENAI_API_KEY" in error.message
        assert "wr0ng-secret" not in error.describe()

    async def test_unknown_model_is_reported(self, call, openai_server, make_model):
        server = openai_server([Reply(status=404, error="The model does not exist")])
        error = await failure(call, make_model("gpt-99", base_url=server.base_url))
        assert "gpt-99" in error.message
        assert "name" in error.hint

    @pytest.mark.parametrize(
        ("words", "meant"),
        [
            ("API key not valid. Please pass a valid API key.", 401),
            ("Model Not Exist", 404),
            ("The model `gpt-99` does not exist or you do not have access to it.", 404),
            ("temperature must be at most 1", 400),
        ],
    )
    async def test_refusal_with_status_400_means_what_its_words_say(
        self, words, meant, openai_server, make_model
    ):
        server = openai_server([Reply(status=400, error=words)])
        with pytest.raises(LLMExecutionError) as caught:
            await make_model(base_url=server.base_url).complete(ask())
        assert (caught.value.status, caught.value.too_long) == (meant, False)

    @pytest.mark.parametrize(
        ("status", "words"),
        [
            (400, "This model's maximum context length is 8192 tokens. You requested 9000."),
            (400, "input length and `max_tokens` exceed context limit: 199 + 8 > 200"),
            (400, "the request exceeds the available context size. try increasing it"),
            (400, "This model's maximum prompt length is 8192 but the request contains 9000"),
            (413, "Request exceeds the maximum allowed number of bytes"),
        ],
    )
    async def test_oversized_prompt_is_reported(
        self, call, status, words, openai_server, make_model, pauses
    ):
        server = openai_server([Reply(status=status, error=words)])
        error = await failure(call, make_model(base_url=server.base_url))
        assert "too long" in error.message
        assert words[:30] in error.message
        assert error.too_long
        assert pauses.seconds == []

    async def test_slow_answer_times_out(self, call, openai_server, make_model):
        hold = threading.Event()
        server = openai_server([Reply(text="late", hold=hold)])
        try:
            settings = {"timeout": 0.3}
            model = make_model(
                base_url=server.base_url, settings=settings, retry=RetryPolicy(retries=0)
            )
            await model.warm_up()
            error = await failure(call, model)
        finally:
            hold.set()
        assert "0.3 s" in error.message
        assert "timeout" in error.hint

    async def test_slow_stream_is_aborted_at_the_timeout(self, openai_server, make_model):
        server = openai_server([Reply(text="a " * 100, chunk_delay=0.05)])
        model = make_model(base_url=server.base_url, settings={"timeout": 0.5})
        await model.warm_up()
        with pytest.raises(LLMExecutionError, match="broke off after"):
            await read_stream(model, ask())

    @pytest.mark.parametrize("drop", ["stream", "quiet"])
    async def test_broken_stream_is_not_restarted(self, drop, openai_server, make_model, pauses):
        server = openai_server([Reply(text="rm -rf /tmp/x && echo done", drop=drop), "again"])
        text = ""
        with pytest.raises(LLMExecutionError, match="broke off after") as caught:
            async for piece in make_model(base_url=server.base_url).stream(ask()):
                text += piece.text
        assert text == "rm -rf"
        assert caught.value.provider == "openai"
        assert len(server.requests) == 1
        assert pauses.seconds == []

    @pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b"[1, 2]", b""])
    async def test_malformed_answer_is_reported(
        self, body, call, openai_server, make_model, pauses
    ):
        server = openai_server([Reply(body=body)])
        error = await failure(call, make_model(base_url=server.base_url))
        assert "not a chat completion" in error.message
        assert "/v1" in error.hint
        assert pauses.seconds == []

    async def test_redirects_are_not_followed(self, call, openai_server, make_model):
        other = openai_server(["never"])
        target = {"Location": f"{other.base_url}/chat/completions"}
        server = openai_server([Reply(status=307, headers=target)])
        error = await failure(call, make_model(base_url=server.base_url, headers={"X-Key": "abcd"}))
        assert "redirect" in error.message
        assert other.requests == []

    async def test_missing_key_is_reported(self, call, make_model):
        model = make_model("gpt-5.5")
        await model.warm_up()
        with pytest.raises(EnvironmentKeyError, match="OPENAI_API_KEY"):
            await call(model)

    async def test_errors_hide_secrets(self, call, openai_server, make_model, caplog, capfd):
        caplog.set_level(logging.DEBUG)
        secrets = ["k3y-0123456789", "t0ken-abcdef", "sk-looks-like-a-key-1"]
        words = f"you sent {' and '.join(secrets)}\nBearer {secrets[0]}"
        replies = [Reply(status=status, error=words) for status in (500, 401, 404, 400, 418)]
        server = openai_server(replies)
        retry = RetryPolicy(retries=0)
        url = server.base_url.replace("http://", "http://me:passw0rd@")
        headers = {"X-Token": secrets[1], "Authorization": "Basic YmFzaWM="}
        for _ in replies:
            config = {"base_url": url, "api_key": secrets[0], "headers": headers}
            model = make_model(**config, retry=retry)
            error = await failure(call, model)
            shown = f"{error.describe()} {error!r} {model!r} {getattr(error, '__notes__', '')}"
            for secret in [*secrets, "passw0rd", "YmFzaWM="]:
                assert secret not in shown
        logged = caplog.text + "".join(capfd.readouterr())
        for secret in [*secrets, "passw0rd"]:
            assert secret not in logged

    async def test_cancelling_ends_the_call_at_once(self, call, openai_server, make_model, pauses):
        hold = threading.Event()
        server = openai_server([Reply(text="late", hold=hold)])
        model = make_model(base_url=server.base_url)
        await model.warm_up()
        task = asyncio.create_task(call(model))
        await until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not hold.is_set(), "it waited for the answer"
        assert pauses.seconds == []
        hold.set()

    async def test_cancelling_ends_a_retry_delay(self, openai_server, make_model):
        server = openai_server([Reply(status=503, headers={"Retry-After": "20"}), "never"])
        model = make_model("m", base_url=server.base_url, sleep=asyncio.sleep)
        await model.warm_up()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await model.complete(ask())
        await model.aclose()
        assert len(server.requests) == 1

    async def test_abandoned_stream_frees_the_connection(self, openai_server, make_model):
        server = openai_server(lambda _: Reply(text="a b c d e f g", chunk_delay=0.02))
        model = make_model(base_url=server.base_url)
        stream = model.stream(ask())
        assert (await anext(stream)).text
        await stream.aclose()
        assert (await model.complete(ask())).text.startswith("a b")
