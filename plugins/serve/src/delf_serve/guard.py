"""What stands before the API: who asks, from where, how much; every refusal is JSON."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

from delf.errors import DelfError
from delf_serve.keys import ANYBODY, Key, Keys
from delf_serve.problems import ProblemError, inside, problem_of
from delf_serve.settings import ServeSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

COOKIE: Final = "delf_session"
CSRF_HEADER: Final = "x-csrf-token"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = "GET, POST, OPTIONS"
_OPEN: Final = ("/health", "/ready", "/", "/login", "/session", "/favicon.ico")
_FOLDER: Final = "/page/"
_MOST_WRONG: Final = 30
"""Wrong keys from one address in a minute."""
_MOST_CLIENTS: Final = 10_000
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
)
_HEALTH: Final = b'{"ok":true}'
_HEALTH_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_HEALTH)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ],
}
_HEALTH_BODY: Final = {"type": "http.response.body", "body": _HEALTH}


class Guard:
    """An ASGI application around another: checks each request before that sees it.

    Args:
        app: What is guarded.
        settings: What is allowed.
        keys: Who is.
    """

    def __init__(self, app: App, settings: ServeSettings, keys: Keys) -> None:
        self._app = app
        self._settings = settings
        self._keys = keys
        self._hosts = {name.lower() for name in settings.hosts}
        self._hosts |= {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
        self._known_hosts: dict[bytes, bool] = {}
        self._origins = {origin.rstrip("/").lower() for origin in settings.allow_origins}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._wrong: dict[str, tuple[int, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path = scope["path"][len(scope.get("root_path", "")) :] or "/"
        if path == "/health" and scope["method"] == "GET" and self._is_known(headers):
            await send(_HEALTH_START)
            await send(_HEALTH_BODY)
            return
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/").lower()
        answer = _Answer(send, origin if self._allows(origin) else None)
        try:
            await self._check(scope, headers, path, origin, answer)
            if not answer.started:
                await self._app(scope, receive, answer)
        except ProblemError as problem:
            await answer.problem(problem)
        except DelfError as error:
            await answer.problem(problem_of(error))
        except Exception:
            _log.exception("%s %s failed", scope["method"], ascii(path)[:200])
            await answer.problem(inside())

    async def _check(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, origin: str, answer: _Answer
    ) -> None:
        """Find out who asks, or refuse."""
        method = scope["method"]
        if not self._is_known(headers):
            raise ProblemError(
                421, "the server is not reached by this name", "name it in `hosts` (--allow-host)"
            )
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            if answer.origin is None:
                raise ProblemError(403, "pages of this origin may not use the API")
            await answer.preflight()
            return
        is_own = not origin or urlsplit(origin).netloc.encode() == headers.get(b"host", b"").lower()
        if method not in _SAFE and not is_own and answer.origin is None:
            raise ProblemError(403, "pages of this origin may not use the API")
        length = headers.get(b"content-length", b"0")
        most = self._settings.file_bytes if path == "/files" else self._settings.body_bytes
        if not length.isdigit() or int(length) > most:
            raise ProblemError(413, f"the body is larger than {most:,} bytes", None)
        scope["delf.key"] = self._who(scope, headers, path, method)
        if self._settings.rate:
            self._count(scope["delf.key"])

    def _who(self, scope: Scope, headers: dict[bytes, bytes], path: str, method: str) -> Key | None:
        """Whose key is shown; None where none is needed."""
        if not self._keys:
            return ANYBODY
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        shown = headers.get(b"x-api-key")
        if shown is None and scheme.lower() == b"bearer":
            shown = token.strip()
        key: Key | None = None
        if shown is not None:
            client = str((scope.get("client") or ("",))[0])
            self.check_guesses(client)
            key = self._keys.find(shown)
            if key is None:
                self.note_guess(client)
        else:
            cookie = session_of(headers)
            key = None if cookie is None else self._keys.of_session(cookie)
            if key is not None and method not in _SAFE and path != "/login":
                token = headers.get(CSRF_HEADER.encode(), b"").decode("latin-1")
                if not _is_same(token, self._keys.csrf(key, cookie or "")):
                    raise ProblemError(
                        403, "the session's token is missing or wrong", f"send {CSRF_HEADER}"
                    )
        if key is None and not (path in _OPEN or path.startswith(_FOLDER)):
            raise ProblemError(
                401,
                "an API key is needed" if shown is None else "the API key is not known",
                "send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
                headers={"www-authenticate": "Bearer"},
            )
        return key

    # -- who guesses keys ---------------------------------------------------------------

    def check_guesses(self, client: str) -> None:
        """Refuse an address from which too many wrong keys came."""
        count, since = self._wrong.get(client, (0, 0.0))
        if count >= _MOST_WRONG and time.monotonic() - since < 60:
            raise ProblemError(429, "too many wrong keys", headers={"retry-after": "60"})

    def note_guess(self, client: str) -> None:
        """A wrong key came from an address."""
        now = time.monotonic()
        count, since = self._wrong.get(client, (0, now))
        if now - since >= 60:
            count, since = 0, now
        if len(self._wrong) >= _MOST_CLIENTS:
            self._wrong.clear()
        self._wrong[client] = count + 1, since

    # -- the rest -----------------------------------------------------------------------

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the server is meant: a site that lets its name point here is not let in."""
        host = headers.get(b"host", b"")
        known = self._known_hosts.get(host)
        if known is None:
            known = self._is_own(host.decode("latin-1"))
            if len(self._known_hosts) < _MOST_CLIENTS:
                self._known_hosts[host] = known
        return known

    def _is_own(self, host: str) -> bool:
        if "*" in self._hosts:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts or name.endswith(".localhost")
        return True

    def _allows(self, origin: str) -> bool:
        return bool(origin) and ("*" in self._origins or origin in self._origins)

    def _count(self, key: Key | None) -> None:
        """Take one of the requests that a key has in this second."""
        name, rate, now = key.name if key else "", self._settings.rate, time.monotonic()
        left, at = self._buckets.get(name, (rate, now))
        left = min(max(rate, 1.0), left + (now - at) * rate)
        if left < 1:
            wait = max(1, round((1 - left) / rate))
            raise ProblemError(
                429, f"more than {rate:g} requests a second", headers={"retry-after": str(wait)}
            )
        self._buckets[name] = left - 1, now


class _Answer:
    """``send`` with the headers that every answer has."""

    def __init__(self, send: Send, origin: str | None) -> None:
        self._send = send
        self.origin = origin
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message["headers"])
            there = {name for name, _ in headers}
            headers += [item for item in _HEADERS if item[0] not in there]
            if b"cache-control" not in there:
                headers.append((b"cache-control", b"no-store"))
            if self.origin is not None:
                headers.append((b"access-control-allow-origin", self.origin.encode()))
                headers.append((b"vary", b"origin"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def problem(self, problem: ProblemError) -> None:
        """Answer with a refusal; one that comes too late ends the connection."""
        if self.started:
            raise problem
        body = problem.body
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        if problem.status in (400, 408, 413):
            headers["connection"] = "close"  # what comes of the body is not read
        headers |= problem.headers
        await self._start(problem.status, headers)
        await self({"type": "http.response.body", "body": body})

    async def preflight(self) -> None:
        """Answer what browsers ask before a page of another origin may ask."""
        await self._start(
            204,
            {
                "access-control-allow-methods": _METHODS,
                "access-control-allow-headers": "authorization, content-type, idempotency-key, "
                "last-event-id, x-api-key",
                "access-control-max-age": "600",
            },
        )
        await self({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: dict[str, str]) -> None:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": status, "headers": raw})


def session_of(headers: dict[bytes, bytes]) -> str | None:
    """The value of the session's cookie, if there is one."""
    text = headers.get(b"cookie")
    if text is None:
        return None
    try:
        morsel = SimpleCookie(text.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _is_same(given: str, wanted: str) -> bool:
    import hmac

    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def json_bytes(value: Any) -> bytes:
    """Data as JSON; halves of characters become question marks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
