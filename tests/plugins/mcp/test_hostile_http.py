"""Servers at an address that misbehave: answers without an end, and bytes that are not messages."""

import asyncio
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from delf.errors import ConnectionUnavailableError, OutcomeUnknownError, ToolExecutionError
from delf.notes import notes_of_call
from plugins.mcp.conftest import invoke
from plugins.mcp.test_hostile import DOUBLED, MESSAGE, READ

TOOL = {"name": "good", "inputSchema": {"type": "object", "properties": {}}}
DIGITS = b"9" * 5000
DONE = {"content": [{"type": "text", "text": "done"}]}


def error_body(code, message, **number):
    return {"jsonrpc": "2.0", **number, "error": {"code": code, "message": message}}


# Rejections of a session by a server that was restarted: the status, and the body.
REJECTIONS = {
    "restarts, 404": (404, b""),
    "restarts, 404 with -32000": (404, error_body(-32000, "No valid session", id=None)),
    "restarts, 404 with -32001": (404, error_body(-32001, "Session not found", id="")),
    "restarts, 404 with -32600": (404, error_body(-32600, "Session not found", id="server-error")),
    "restarts, 404 without an id": (404, error_body(-32001, "Session not found")),
    "restarts, 400 with -32000": (400, error_body(-32000, "Bad Request: no session", id=None)),
    "restarts, 400 with -32600": (400, error_body(-32600, "Missing session ID", id=None)),
}
# Rejections that may just as well be of a call that was executed.
POSSIBLE_REJECTIONS = {
    "restarts, 404 with a text": (404, b"session not found"),
    "restarts, 404 with a page": (404, b"<html>"),
    "restarts, 404 with other JSON": (404, {"detail": "item not found"}),
    "restarts, 404 with a list": (404, [error_body(-32001, "Session not found", id=None)]),
    "restarts, 404 with a text as error": (404, {"error": "no session"}),
    "restarts, 404 with an odd code": (404, error_body([-32001], "no session", id=None)),
    "restarts, 404 with an odd message": (404, error_body(-32001, 5, id=None)),
    "restarts, 404 with -32603": (404, error_body(-32603, "session log failed", id=None)),
    "restarts, 404 with -32700": (404, error_body(-32700, "session log failed", id=None)),
    "restarts, 404 about a note": (404, error_body(-32000, "no such note", id=None)),
    "restarts, 400 about a note": (400, error_body(-32000, "no such note", id=None)),
}
# Answers of a server that knows the session and has executed the call; NUMBER is the call's id.
NUMBER = "the id of the request"
ANSWERS = {
    "error, 404": (404, error_body(-32000, "moved, no such note", id=NUMBER)),
    "error of the session, 404": (404, error_body(-32001, "Session not found", id=NUMBER)),
    "error of the session, 400": (400, error_body(-32600, "Session not found", id=NUMBER)),
    "result, 404": (404, {"jsonrpc": "2.0", "id": NUMBER, "result": DONE}),
    "result, 400": (400, {"jsonrpc": "2.0", "id": NUMBER, "result": DONE}),
    "neither, 404": (404, {"jsonrpc": "2.0", "id": NUMBER}),
    "error without an id, 400": (400, error_body(-32603, "moved, the log failed", id=None)),
    "unreadable, 400": (400, error_body(-32700, "moved, the log failed", id=None)),
    "text, 400": (400, b"session not found"),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mode = ""

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number, method = message.get("id"), message.get("method", "")
        if self.mode.startswith("restarts") and not self.is_session_known(method):
            return self.reject_session(number)
        if number is None:
            return self.say(b"", status=202)
        if method == "initialize":
            self.server.starts += 1
            shown = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            result = {**shown, "serverInfo": {"name": "r", "version": "1"}}
            more = {"mcp-session-id": self.server.session}
            has_session = self.mode.startswith("restarts") or self.mode in ANSWERS
            return self.result(number, result, more if has_session else ())
        if method == "tools/list":
            if self.mode == "large list":
                return self.large(number)
            if self.mode.startswith("deep list"):
                deep = b'{"properties":' * 20_000 + b"{}" + b"}" * 20_000
                items = b'%b, {"name": "deep", "inputSchema": %b}' % (
                    json.dumps(TOOL).encode(),
                    deep,
                )
                return self.answer_raw(number, b'{"tools": [%b]}' % items)
            if self.mode.startswith("digits"):
                schema = b'{"type": "object", "default": %b}' % DIGITS
                items = b'{"name": "long", "inputSchema": %b}, %b' % (
                    schema,
                    json.dumps(TOOL).encode(),
                )
                return self.answer_raw(number, b'{"tools": [%b]}' % items)
            if self.mode == "silent":
                self.server.leave.wait(30)
                return self.say(b"", status=500)
            return self.result(number, {"tools": [{"name": "bare"}, TOOL]})
        if method == "tools/call":
            return self.called(number)
        text = {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no"}}
        return self.say(json.dumps(text).encode())

    def is_session_known(self, method):
        if method == "tools/call" and self.server.session == "forgotten":
            return False
        session = self.headers.get("mcp-session-id")
        return session == self.server.session or (session is None and method == "initialize")

    def reject_session(self, number):
        self.say_body(*(REJECTIONS | POSSIBLE_REJECTIONS)[self.mode], number)

    def say_body(self, status, body, number):
        if isinstance(body, dict) and body.get("id") == NUMBER:
            body = {**body, "id": number}
        is_text = isinstance(body, bytes)
        kind = "text/plain" if is_text else "application/json"
        self.say(body if is_text else json.dumps(body).encode(), status=status, kind=kind)

    def called(self, number):
        self.server.calls += 1
        self.server.begun_calls.release()
        if self.server.calls == self.server.slow_call:
            self.server.leave.wait(30)
        begin = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "'
        match self.mode:
            case "large":
                self.large(number)
            case "large events":
                self.begin("text/event-stream")
                self.endless(b"data: ", b"x" * 1_000_000)
            case "bomb":
                packed = gzip.compress(begin % number + b"x" * 40_000_000 + b'"}]}}')
                self.say(packed, more={"content-encoding": "gzip"})
            case "latin":
                self.say(begin % number + b'caf\xe9"}]}}')
            case "latin events":
                text = begin % number + b'caf\xe9"}]}}'
                self.say(b"data: " + text + b"\n\n", kind="text/event-stream")
            case "rubbish events":
                text = json.dumps({"jsonrpc": "2.0", "id": number, "result": DONE}).encode()
                noise = b"data: {]\n\nevent: odd\ndata: 1\n\n: nothing\n\n"
                self.say(noise + b"data: " + text + b"\n\n", kind="text/event-stream")
            case "half signs" | "half signs in events":
                text = begin % number + b'a\\ud800b"}]}}'
                if self.mode.endswith("events"):
                    self.say(b"data: " + text + b"\n\n", kind="text/event-stream")
                else:
                    self.say(text)
            case "doubled" | "doubled in events":
                text = b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (number, DOUBLED.encode())
                if self.mode.endswith("events"):
                    text = b"event: message\r\ndata: %b\r\ndata:%b\r\n\r\n" % (text[:19], text[19:])
                    noise = b": one\r\r: two\n\n"
                    self.say(noise + text, kind="text/event-stream")
                else:
                    self.say(text)
            case "deep" | "deep events":
                self.answer_raw(number, b'{"a":' * 20_000 + b"1" + b"}" * 20_000)
            case "digits" | "digits in events":
                self.answer_raw(number, b'{"content": [], "_meta": {}, "other": %b}' % DIGITS)
            case "no end":
                self.say(b"data: 1", kind="text/event-stream")
            case "gateway":
                self.say(b"bad gateway", status=502, kind="text/html")
            case "gateway in time":
                self.say(b"{}", status=504)
            case "refused":
                error = {"code": -32602, "message": "no such lamp"}
                text = {"jsonrpc": "2.0", "id": number, "error": error}
                self.say(json.dumps(text).encode(), status=400)
            case "quota" | "quota in events":
                error = {"code": -32000, "message": "quota exceeded"}
                text = json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
                if self.mode.endswith("events"):
                    self.say(b"data: " + text + b"\n\n", kind="text/event-stream")
                else:
                    self.say(text)
            case "unknown method":
                error = {"code": -32601, "message": "no such method"}
                text = {"jsonrpc": "2.0", "id": number, "error": error}
                self.say(json.dumps(text).encode(), status=404)
            case mode if mode in ANSWERS:
                self.say_body(*ANSWERS[mode], number)
            case "page":
                self.say(b"<html>\x1b[2J", kind="text/html")
            case _:
                self.result(number, DONE)

    def answer_raw(self, number, result):
        text = b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (number, result)
        if self.mode.endswith("events"):
            self.say(b"data: " + text + b"\n\n", kind="text/event-stream")
        else:
            self.say(text)

    def large(self, number):
        self.begin("application/json")
        self.endless(b'{"jsonrpc": "2.0", "id": %d, "result": {"a": "' % number, b"x" * 1_000_000)

    def begin(self, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def endless(self, first, rest):
        try:
            self.wfile.write(first)
            for _ in range(200):
                self.wfile.write(rest)
        except OSError:
            pass  # nobody reads any more

    def result(self, number, result, more=()):
        text = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        self.say(text, more=more)

    def say(self, body, *, status=200, kind="application/json", more=()):
        self.send_response(status)
        for name, value in {
            "content-type": kind,
            "content-length": len(body),
            **dict(more),
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(b"", status=405)

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def rogue(open_mcp):
    servers = []

    def open_rogue(mode, **settings):
        handler = type("Rogue", (Handler,), {"mode": mode})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads, server.leave = True, threading.Event()
        server.session, server.starts, server.calls = "first", 0, 0
        server.begun_calls, server.slow_call = threading.Semaphore(0), None
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        return open_mcp(name="rogue", url=url, command=None, args=[], **settings)

    open_rogue.servers = servers
    yield open_rogue
    for server in servers:
        server.leave.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("large", "more than 32,000,000 bytes"),
        ("large events", "rogue: "),
        ("bomb", "compressed"),
        ("no end", "rogue: "),
        ("deep", "Failed to parse"),
        ("deep events", "Failed to parse"),
        ("page", "rogue: good: Unexpected content type"),
    ],
)
async def test_invalid_http_answer_fails_only_its_call(rogue, mode, says) -> None:
    srv = rogue(mode)
    async with asyncio.timeout(30):
        for _ in range(2):
            with pytest.raises(ToolExecutionError, match=says) as caught:
                await invoke(srv, "good")
            assert caught.value.message.isprintable()
            assert len(caught.value.message) < 5000


@pytest.mark.parametrize("mode", ["digits", "digits in events"])
async def test_number_with_too_many_digits_is_read_as_text(rogue, mode) -> None:
    srv = rogue(mode)
    assert [action.name for action in await srv.actions()] == ["long", "good"]
    with notes_of_call() as notes:
        assert await invoke(srv, "good") == ""
    assert any("(5,000 digits)" in note for note in notes)


@pytest.mark.parametrize("mode", ["deep list", "deep list events"])
async def test_tool_that_is_nested_too_deeply_is_left_out_alone(rogue, mode) -> None:
    srv = rogue(mode)
    assert [action.name for action in await srv.actions()] == ["good"]
    assert srv.notices() == ("rogue: the tool 'deep' is left out: it is nested too deeply",)
    assert await invoke(srv, "good") == "done"


@pytest.mark.parametrize(
    ("mode", "is_unknown"),
    [
        ("gateway", True),
        ("gateway in time", True),
        ("no end", True),
        ("deep", True),
        ("page", True),
        ("large", True),
        ("refused", False),
    ],
)
async def test_call_with_a_lost_answer_has_unknown_outcome(rogue, mode, is_unknown) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ToolExecutionError) as caught:
            await invoke(rogue(mode), "good")
    assert isinstance(caught.value, OutcomeUnknownError) == is_unknown
    assert ("is not known" in caught.value.describe()) == is_unknown


@pytest.mark.parametrize("mode", REJECTIONS)
async def test_call_continues_in_a_new_session_after_a_server_restart(rogue, mode) -> None:
    srv = rogue(mode)
    (server,) = rogue.servers
    async with asyncio.timeout(30):
        (action,) = await srv.actions()
        assert await action.call() == "done"
        for session in ("second", "third"):
            server.session = session  # the server has forgotten the session before
            answers = await asyncio.gather(*(action.call() for _ in range(5)))
            assert answers == ["done"] * 5
    assert server.calls == 11


async def test_new_session_does_not_wait_for_calls_of_the_old_session(rogue) -> None:
    srv = rogue("restarts, 404")
    (server,) = rogue.servers
    server.slow_call = 1
    (action,) = await srv.actions()
    slow = asyncio.create_task(action.call())
    await asyncio.to_thread(server.begun_calls.acquire)
    server.session = "second"  # the server has forgotten the session before
    assert await action.call() == "done"
    assert not slow.done()
    server.leave.set()
    assert await slow == "done"


@pytest.mark.parametrize("mode", POSSIBLE_REJECTIONS)
@pytest.mark.parametrize("effect", ["read", "write"])
async def test_only_a_read_is_sent_again_after_a_possible_rejection(rogue, mode, effect) -> None:
    srv = rogue(mode, effects={"*": effect})
    (server,) = rogue.servers
    async with asyncio.timeout(30):
        (action,) = await srv.actions()
        server.session = "second"  # the server has forgotten the session before
        if effect == "read":
            assert await action.call() == "done"
        else:
            with pytest.raises(OutcomeUnknownError, match=r"rogue: good: .*is not known"):
                await action.call()
            assert server.calls == 0
            assert await action.call() == "done"  # in a new session
    assert (server.starts, server.calls) == (2, 1)


@pytest.mark.parametrize("mode", REJECTIONS)
async def test_second_rejection_of_a_write_leaves_its_outcome_unknown(rogue, mode) -> None:
    srv = rogue(mode)
    (server,) = rogue.servers
    server.session = "forgotten"
    async with asyncio.timeout(30):
        with pytest.raises(OutcomeUnknownError, match=r"rogue: good: .*is not known"):
            await invoke(srv, "good")
    assert (server.starts, server.calls) == (2, 0)


@pytest.mark.parametrize("mode", [*REJECTIONS, *POSSIBLE_REJECTIONS])
async def test_second_rejection_of_a_read_is_an_error(rogue, mode) -> None:
    srv = rogue(mode, effects={"*": "read"})
    (server,) = rogue.servers
    server.session = "forgotten"
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionUnavailableError, match="good was not done"):
            await invoke(srv, "good")
    assert (server.starts, server.calls) == (2, 0)


@pytest.mark.parametrize("mode", ANSWERS)
@pytest.mark.parametrize("effect", ["read", "write"])
async def test_executed_call_with_a_bad_status_is_not_sent_again(rogue, mode, effect) -> None:
    srv = rogue(mode, effects={"*": effect})
    (server,) = rogue.servers
    async with asyncio.timeout(30):
        with pytest.raises(ToolExecutionError) as caught:
            await invoke(srv, "good")
    is_error_of_the_server = mode.startswith("error")
    assert isinstance(caught.value, OutcomeUnknownError) != is_error_of_the_server
    assert (server.starts, server.calls) == (1, 1)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("quota", "rogue: good: quota exceeded"),
        ("quota in events", "rogue: good: quota exceeded"),
        ("unknown method", "rogue: good: no such method"),
    ],
)
async def test_server_error_of_any_code_leaves_the_session_open(rogue, mode, says) -> None:
    srv = rogue(mode)
    (server,) = rogue.servers
    async with asyncio.timeout(30):
        for _ in range(2):
            with pytest.raises(ToolExecutionError, match=says) as caught:
                await invoke(srv, "good")
            assert not isinstance(caught.value, OutcomeUnknownError)
    assert (server.starts, server.calls) == (1, 2)


@pytest.mark.parametrize(
    ("mode", "gives"),
    [
        ("latin", "caf\ufffd"),
        ("half signs", "a?b"),
        ("half signs in events", "a?b"),
        ("latin events", "caf\ufffd"),
        ("rubbish events", None),
        ("good", "done"),
    ],
)
async def test_readable_result_is_returned(rogue, mode, gives) -> None:
    srv = rogue(mode)
    async with asyncio.timeout(30):
        try:
            assert await invoke(srv, "good") == gives
        except ToolExecutionError:
            assert gives is None
        assert [action.name for action in await srv.actions()] == ["good"]
    assert any("'bare' is left out" in notice for notice in srv.notices())


@pytest.mark.parametrize("mode", ["doubled", "doubled in events"])
async def test_repeated_key_in_a_result_is_reported(rogue, mode) -> None:
    async with asyncio.timeout(30):
        with notes_of_call() as notes:
            assert await invoke(rogue(mode), "good") == READ
    assert list(notes) == MESSAGE


@pytest.mark.parametrize(
    ("mode", "says"), [("large list", "more than 32,000,000 bytes"), ("silent", r"within 0\.7 s")]
)
async def test_endless_resource_list_is_an_error(rogue, mode, says) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionUnavailableError, match=f"^rogue: .*{says}"):
            await rogue(mode, start_timeout=0.7 if mode == "silent" else 30).actions()
