"""The HTTP side: routes, checks, tokens, uploads, and faults on request."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from support.google.calendar import CalendarService
from support.google.calls import ApiError, Call, Media, handlers
from support.google.discovery import BadRequest, Method, apis
from support.google.docs import DocsService
from support.google.drive import DriveService
from support.google.gmail import GmailService
from support.google.logins import Logins
from support.google.sheets import SheetsService

CHUNK = 256 * 1024


@dataclass
class Fault:
    """The faults of the next calls of a method."""

    method: str
    times: int
    kind: str  # "refuse", "lose" (done, no answer), "drop" (not done, no answer), "hang"
    error: ApiError | None = None
    after: int = 0  # so many calls go well before


@dataclass
class Seen:
    """One request, for tables and tests."""

    method: str
    status: int
    received: int


@dataclass
class Upload:
    """A resumable upload under way."""

    method: Method
    call: Call
    type: str
    size: int | None
    content: bytearray = field(default_factory=bytearray)
    result: Any = None
    done: bool = False


class Answer:
    """Status, headers and body of an answer."""

    def __init__(
        self, status: int, body: Any = None, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.headers = dict(headers or {})
        if isinstance(body, Media):
            self.headers["Content-Type"] = body.type
            self.body = body.content
        elif isinstance(body, bytes):
            self.body = body
        elif body is None:
            self.body = b""
        else:
            self.headers["Content-Type"] = "application/json; charset=UTF-8"
            self.body = json.dumps(body).encode()


class GoogleServer:
    """Five services with one world behind them."""

    def __init__(self) -> None:
        self.apis = apis()
        self.logins = Logins()
        self.seen: list[Seen] = []
        self.begun: list[str] = []
        self.faults: list[Fault] = []
        self.uploads: dict[str, Upload] = {}
        self.released = threading.Event()
        self.lock = threading.RLock()
        self.gmail = GmailService()
        self.drive = DriveService()
        self.sheets = SheetsService(self.drive)
        self.docs = DocsService(self.drive)
        self.calendar = CalendarService()
        self.handlers: dict[str, Any] = {}
        for service in (self.gmail, self.drive, self.sheets, self.docs, self.calendar):
            self.handlers |= handlers(service)
        self.url = ""

    # -- what goes wrong ----------------------------------------------------------------

    def fail(
        self,
        method: str,
        status: int,
        reason: str = "",
        *,
        times: int = 1,
        after: float | None = None,
        message: str = "as asked",
        after_calls: int = 0,
    ) -> None:
        headers = {} if after is None else {"Retry-After": f"{after:g}"}
        self.faults.append(
            Fault(
                method,
                times,
                "refuse",
                ApiError(status, message, reason, headers=headers),
                after_calls,
            )
        )

    def lose(self, method: str, times: int = 1, after: int = 0) -> None:
        """Do it, and lose the answer."""
        self.faults.append(Fault(method, times, "lose", after=after))

    def drop(self, method: str, times: int = 1) -> None:
        """Lose the request."""
        self.faults.append(Fault(method, times, "drop"))

    def hang(self, method: str, times: int = 1, after: int = 0, *, done: bool = False) -> None:
        """Answer only when the server ends; with ``done`` it is done before."""
        self.faults.append(Fault(method, times, "stall" if done else "hang", after=after))

    def _fault(self, method: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.method in (method, "*") and fault.after:
                    fault.after -= 1
                elif fault.method in (method, "*") and fault.times:
                    fault.times -= 1
                    return fault
        return None

    def calls(self, method: str) -> int:
        return sum(item.method == method for item in self.seen)

    def started(self, method: str) -> int:
        """The number of calls of a method, answered or not."""
        return self.begun.count(method)

    # -- answers ------------------------------------------------------------------------

    def answer(self, verb: str, target: str, headers: Any, content: bytes) -> Answer | None:
        """The answer to a request; None to close the connection without one."""
        parts = urlsplit(target)
        if parts.path == "/token":
            status, body = self.logins.token_page(content, f"{self.url}/token")
            return self._log("token", Answer(status, body))
        if parts.path == "/revoke":
            return Answer(self.logins.revoke_page(content), {})
        if parts.path == "/o/oauth2/auth":
            status, more, page = self.logins.consent(parse_qs(parts.query))
            return Answer(status, page, more)
        name = "unknown"
        try:
            method, path, upload = self._route(verb, parts.path)
            name = method.id
            self.begun.append(name)
            fault = self._fault(name)
            if fault is not None and fault.kind in ("hang", "drop"):
                if fault.kind == "hang":
                    self.released.wait()
                return self._log(name, None)
            if fault is not None and fault.error is not None:
                raise fault.error
            answer = self._method(method, path, parts.query, headers, content, upload=upload)
            if fault is not None:
                if fault.kind == "stall":
                    self.released.wait()
                return self._log(name, None)
        except ApiError as error:
            answer = Answer(error.status, error.body(), error.headers)
        except BadRequest as error:
            answer = Answer(400, ApiError(400, str(error), "badRequest").body())
        return self._log(name, answer)

    def _log(self, name: str, answer: Answer | None) -> Answer | None:
        status, size = (0, 0) if answer is None else (answer.status, len(answer.body))
        self.seen.append(Seen(name, status, size))
        return answer

    def _route(self, verb: str, path: str) -> tuple[Method, dict[str, str], bool]:
        upload = path.startswith(("/upload/", "/resumable/upload/"))
        plain = re.sub(r"^/(resumable/)?upload", "", path) if upload else path
        for api in self.apis:
            verbs = ("POST", "PATCH") if upload and verb == "PUT" else (verb,)
            found = next(filter(None, (api.find(v, plain.lstrip("/")) for v in verbs)), None)
            if found is None:
                continue
            method, arguments = found
            if upload and not method.spec.get("supportsMediaUpload"):
                break
            return method, arguments, upload
        raise ApiError(404, f"Not Found: {verb} {path}")

    def _method(
        self,
        method: Method,
        path: dict[str, str],
        query: str,
        headers: Any,
        content: bytes,
        *,
        upload: bool,
    ) -> Answer:
        pairs = parse_qsl(query, keep_blank_values=True)
        given = dict(pairs)
        if upload and "upload_id" in given:
            return self._chunk(given["upload_id"], headers, content)
        token = self.logins.check(headers, method)
        user = token.user
        arguments = method.arguments(path, pairs)
        shown = {"headers": headers, "scopes": token.scopes}
        if not upload:
            body = self._body(method, content, headers)
            return self._run(method, Call(method.id, user, arguments, body, **shown))
        if given.get("uploadType") != "resumable":
            raise ApiError(
                400, f"uploadType {given.get('uploadType')!r} is not served", "badRequest"
            )
        return self._begin(method, Call(method.id, user, arguments, **shown), content)

    def _body(self, method: Method, content: bytes, headers: Any) -> dict[str, Any]:
        if not content:
            return {}
        if "json" not in (headers.get("Content-Type") or ""):
            raise BadRequest(f"Content-Type {headers.get('Content-Type')!r} is not JSON")
        try:
            body = json.loads(content)
        except ValueError as error:
            raise BadRequest(f"Parse Error: {error}") from None
        self._check_body(method, body)
        return body

    def _check_body(self, method: Method, body: Any) -> None:
        request = method.spec.get("request")
        if request is None and body:
            raise BadRequest("this method takes no body")
        if request is not None:
            method.api.check(request["$ref"], body)

    def _run(self, method: Method, call: Call) -> Answer:
        handler = self.handlers.get(method.id)
        if handler is None:
            raise ApiError(501, f"{method.id} is not part of this server", "notImplemented")
        with self.lock:
            result = handler(call)
        if result is None:
            return Answer(204)
        if isinstance(result, Media):
            if call.get("alt") != "media" and method.id != "drive.files.export":
                raise ApiError(500, "content without alt=media")
            return Answer(200, result)
        reference = method.spec.get("response", {}).get("$ref")
        if reference:
            method.api.check(reference, result, f"response of {method.id}: ")
        if call.get("fields"):
            result = method.api.partial(reference, result, call["fields"])
        return Answer(200, result)

    # -- uploads ------------------------------------------------------------------------

    def _begin(self, method: Method, call: Call, content: bytes) -> Answer:
        headers = call.headers
        call.body = self._body(method, content, headers)
        size = headers.get("X-Upload-Content-Length")
        key = secrets.token_urlsafe(12)
        kind = headers.get("X-Upload-Content-Type") or "application/octet-stream"
        self.uploads[key] = Upload(method, call, kind, int(size) if size else None)
        path = method.path
        for name, value in call.arguments.items():
            path = path.replace(f"{{{name}}}", str(value))
        return Answer(
            200, b"", {"Location": f"{self.url}/upload/{path}?uploadType=resumable&upload_id={key}"}
        )

    def _chunk(self, key: str, headers: Any, content: bytes) -> Answer:
        upload = self.uploads.get(key)
        if upload is None:
            raise ApiError(404, "Not Found", "notFound")
        span = re.fullmatch(
            r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", headers.get("Content-Range") or ""
        )
        if span is None:
            raise ApiError(400, "Invalid Content-Range", "badRequest")
        if not upload.done:
            total = None if span[3] == "*" else int(span[3])
            if span[1] is not None:
                start, last = int(span[1]), int(span[2])
                final = total is not None and last + 1 == total
                if last - start + 1 != len(content) or (len(content) % CHUNK and not final):
                    raise ApiError(400, "chunks are multiples of 256 KB", "badRequest")
                if start != len(upload.content):
                    return _resume(upload)
                upload.content += content
            upload.size = total if total is not None else upload.size
            if total is None or len(upload.content) < total:
                return _resume(upload)
        if not upload.done:
            call = replace(upload.call, media=bytes(upload.content), media_type=upload.type)
            upload.result = self._run(upload.method, call)
            upload.done = True
        return upload.result


def _resume(upload: Upload) -> Answer:
    headers = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
    return Answer(308, b"", headers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    google: GoogleServer
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _any(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(size)
        answer = self.google.answer(self.command, self.path, self.headers, content)
        if answer is None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        head = [f"HTTP/1.1 {answer.status} Status"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        if answer.status != 204:
            head.append(f"Content-Length: {len(answer.body)}")
        self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1") + answer.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class _Http(ThreadingHTTPServer):
    daemon_threads = False  # so that closing it waits for them, and no socket is left behind
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.open: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the tests."""


@contextlib.contextmanager
def google_server() -> Iterator[GoogleServer]:
    """The server on a loopback port."""
    google = GoogleServer()
    handler = type("Handler", (_Handler,), {"google": google})
    http = _Http(("127.0.0.1", 0), handler)
    google.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(
        target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield google
    finally:
        google.released.set()
        http.shutdown()
        for connection in list(http.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        http.server_close()
        thread.join(50)
