"""Guard of the API: keys, origins, limits; every refusal is JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from starlette.requests import cookie_parser

from delf.errors import DelfError
from delf.network.urls import split_url
from delf_serve import access
from delf_serve.clients import TEST_CLIENT, client_of, is_address, is_loopback
from delf_serve.keys import ANYBODY, Caller, Keys
from delf_serve.problems import MEDIA, ProblemError, internal_error, problem_of, shutting_down
from delf_serve.sessions import csrf_of
from delf_serve.settings import ServeSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
FindCaller = Callable[[str], Awaitable[Caller | None]]

_log = logging.getLogger(__name__)

COOKIE: Final = "delf_session"
CSRF_HEADER: Final = "x-csrf-token"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
# Paths of health checks, which need no key.
_PROBES: Final = ("/health", "/ready")
# Paths for requests without credentials: the page, and its login.
_PUBLIC_PATHS: Final = ("/", "/login", "/login/oidc", "/login/callback", "/session", "/favicon.ico")
PROXY_TOKEN: Final = "proxy"  # noqa: S105 - no other site can send the header at all
# The path prefix of incoming webhooks, which need no key because their messages are signed.
_HOOKS_PREFIX: Final = "/hooks/"
_PAGE_PREFIX: Final = "/page/"
_LOGIN_BYTES: Final = 4096
# The path prefixes of operations that accept files, and therefore larger bodies.
_FILE_PREFIXES: Final = ("/files", "/v1/", "/ag-ui", "/a2a")
# Headers that must not be repeated, because implementations differ on which value counts.
_UNREPEATABLE_HEADERS: Final = frozenset(
    {
        b"host",
        b"authorization",
        b"x-api-key",
        b"origin",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
        b"x-csrf-token",
        b"idempotency-key",
        b"last-event-id",
        b"access-control-request-method",
        b"webhook-id",
        b"webhook-timestamp",
        b"webhook-signature",
        b"x-hub-signature-256",
    }
)
# The request headers that can contain an API key.
_KEY_HEADERS: Final = frozenset({b"authorization", b"x-api-key"})
_FORWARDED: Final = (b"x-forwarded-for", b"forwarded", b"x-real-ip")
_HOST: Final = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
# The maximum number of wrong keys per minute from one client, and of attempts with one wrong key.
_MAX_WRONG_KEYS: Final = 30
_MAX_COUNTED: Final = 10_000
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


class Guard:
    """ASGI middleware that authenticates and checks each request.

    Args:
        app: The application.
        settings: The limits and allowed origins.
        keys: The API keys.
        caller_of_session: Returns the person who is logged in with a session cookie.
        prepare_app: Called before a request is handled; reloads the people and their keys.
    """

    def __init__(
        self,
        app: App,
        settings: ServeSettings,
        keys: Keys,
        caller_of_session: FindCaller,
        prepare_app: Callable[[], Awaitable[None]],
    ) -> None:
        self._prepare_app = prepare_app
        self._proxies = [ip_network(text, strict=False) for text in settings.trusted_proxies]
        self._app = app
        self._settings = settings
        self._keys = keys
        self._caller_of_session = caller_of_session
        self._unrepeatable_headers = _UNREPEATABLE_HEADERS | {settings.user_header.lower().encode()}
        self._hosts = {name.lower() for name in settings.hosts}
        self._hosts |= {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
        self._origins = {origin.rstrip("/").lower() for origin in settings.allow_origins}
        # By caller, the remaining requests of the rate limit, and the time of the last request.
        self._buckets: dict[str | None, tuple[float, float]] = {}
        # By client or key, the number of attempts with wrong keys, and the time of the first one.
        self._wrong_key_counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it to the application or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the server has no WebSockets
            await send({"type": "websocket.close", "code": 1000})
            return
        began = time.perf_counter()
        scope["delf.caller"] = None
        sender = _Sender(send, path_of(scope))
        try:
            await self._check(scope, sender)
            if not sender.status:  # _check() has not answered a preflight request
                await self._app(scope, receive, sender)
        except ProblemError as problem:
            await sender.problem(problem)
        except DelfError as error:
            await sender.problem(problem_of(error, sender.request_id))
        except Exception:
            path = ascii(scope["path"])[:200]
            _log.exception("%s %s failed (%s)", scope["method"], path, sender.request_id)
            await sender.problem(internal_error())
        except asyncio.CancelledError:
            # At shutdown the server cancels slow requests. Without this answer, uvicorn would send
            # a 500, after which clients do not retry.
            if not sender.status:
                await sender.problem(shutting_down())
            raise
        finally:
            is_good_probe = sender.status == 200 and path_of(scope) in _PROBES
            if not is_good_probe:
                caller: Caller | None = scope["delf.caller"]
                access.log_request(
                    scope,
                    client=_client_host(scope),
                    caller=None if caller is None else caller.name,
                    status=sender.status,
                    began=began,
                    request_id=sender.request_id,
                )

    async def _check(self, scope: Scope, sender: _Sender) -> None:
        """Check host, origin, body and rate of a request, and authenticate the caller.

        A CORS preflight request is answered directly.
        """
        headers = _headers(scope, self._unrepeatable_headers)
        path = path_of(scope)
        method = scope["method"]
        # Load balancers send probes without a key, and to the IP address or any name.
        is_probe = path in _PROBES
        if not is_probe:  # a probe has to be answered while the journal is away
            await self._prepare_app()
        self._check_local(scope, headers)
        if not is_probe and not self._is_own_host(headers.get(b"host", b""), scope):
            raise ProblemError(
                421, "the server is not reached by this name", "name it in the setting `hosts`"
            )
        is_preflight = method == "OPTIONS" and b"access-control-request-method" in headers
        self._check_origin(scope, headers, sender, is_preflight=is_preflight)
        if is_preflight:  # a browser sends it without a key: answer before authentication
            await sender.preflight()
            return
        self._check_body(scope, headers, path, method)
        if is_probe:
            return
        caller = await self._authenticate(scope, headers, path, method)
        scope["delf.caller"] = caller
        # Do not count the page's files, because a browser loads a dozen of them at once, without a
        # key. A program sends its key, so its requests count at every path.
        has_no_key = headers.keys().isdisjoint(_KEY_HEADERS)
        is_page_asset = _is_public(path) and has_no_key
        if self._settings.rate and not is_page_asset:
            self._limit_rate(caller)

    def _check_origin(
        self, scope: Scope, headers: dict[bytes, bytes], sender: _Sender, *, is_preflight: bool
    ) -> None:
        """Refuse a request of another server's page, unless the settings allow the page's origin.

        ``sender`` gets what the CORS headers of the response need.

        Safe methods are allowed, because the browser does not pass the response on to the page.
        """
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/").lower()
        sender.varies_by_origin = bool(self._origins)
        if origin and ("*" in self._origins or origin in self._origins):
            sender.origin = origin
            return
        is_harmless = scope["method"] in _SAFE or _is_same_origin(scope, origin)
        # The method of a preflight request is safe, but the request asks for permission for an
        # unsafe request of another server's page.
        if is_preflight or not is_harmless:
            raise ProblemError(403, "pages of this origin may not use the API")

    def _check_local(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse clients from other machines and proxied requests if the server has no keys."""
        if self._keys:
            return
        is_local = is_loopback(_client_host(scope)) or _client_host(scope) == TEST_CLIENT
        if not is_local or any(name in headers for name in _FORWARDED):
            raise ProblemError(
                403,
                "without an API key, only clients on the server's own machine are answered",
                "set an API key; requests that a proxy passes on need one, too",
            )

    def _check_body(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, method: str
    ) -> None:
        """Check the declared size of a request's body, and store the limit for reading the body.

        Raises:
            ProblemError: If the declared size is invalid or too large, or a safe method has a body.
        """
        settings = self._settings
        if path.startswith(_FILE_PREFIXES):
            max_bytes = settings.file_bytes
        elif path == "/login":
            max_bytes = _LOGIN_BYTES
        else:
            max_bytes = settings.body_bytes
        scope["delf.max_body_bytes"] = max_bytes
        digits = headers.get(b"content-length", b"0")
        if not digits.isdigit():
            raise ProblemError(400, "content-length is not a number")
        # The number of digits is checked first, because int() is slow for long texts.
        if len(digits) > 18 or int(digits) > max_bytes:
            raise ProblemError(413, f"the body is larger than {max_bytes:,} bytes")
        has_body = int(digits) > 0 or b"transfer-encoding" in headers
        if method in _SAFE and has_body:
            raise ProblemError(400, f"a {method} has no body")

    # -- authentication -------------------------------------------------------------------

    async def _authenticate(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, method: str
    ) -> Caller | None:
        """Authenticate a request by API key, trusted proxy or session cookie, in this order.

        Returns:
            The caller; None for a public path without credentials.

        Raises:
            ProblemError: If the credentials are missing or wrong.
        """
        if not self._keys:
            return ANYBODY
        secret = _sent_key(headers)
        if secret is not None:
            caller = self._keys.find(secret)
            if caller is None:
                raise self.wrong_key(scope, secret)
            return caller
        caller = self._authenticate_by_proxy(scope, headers, path, method)
        if caller is None:
            caller = await self._authenticate_by_cookie(scope, headers, path, method)
        if caller is None and not _is_public(path):
            raise ProblemError(
                401,
                "an API key is needed",
                "send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
                headers={"www-authenticate": "Bearer"},
            )
        return caller

    def _authenticate_by_proxy(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, method: str
    ) -> Caller | None:
        """Return the person whom a trusted proxy names; None if no proxy names a person.

        On public paths except ``/session``, also return None for an unknown person.

        Raises:
            ProblemError: If the person is unknown, or if the request may change something and has
                no CSRF header.
        """
        name = self._user_of_proxy(scope, headers)
        if name is None:
            return None
        caller = self._keys.find_person(name, by_mail=True)
        if caller is None:
            # Public paths need no caller. But the page asks /session who is logged in, and must
            # learn why nobody is.
            if _is_public(path) and path != "/session":
                return None
            raise ProblemError(403, "the proxy names a person who is not known here")
        scope["delf.proxy"] = True
        if method not in _SAFE and CSRF_HEADER.encode() not in headers:
            raise ProblemError(403, f"{CSRF_HEADER} is missing", f"send {CSRF_HEADER}")
        return caller

    async def _authenticate_by_cookie(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, method: str
    ) -> Caller | None:
        """Return the person of a valid session cookie; None without one.

        Raises:
            ProblemError: If the request may change something and has no CSRF token of the session.
        """
        cookie = session_of(headers)
        if cookie is None:
            return None
        caller = await self._caller_of_session(cookie)
        if caller is None:
            return None
        scope["delf.cookie"] = cookie
        # A login is authenticated by the API key in its body, which another site does not know.
        needs_csrf_token = method not in _SAFE and path != "/login"
        if needs_csrf_token:
            csrf_token = headers.get(CSRF_HEADER.encode(), b"")
            # In constant time, so that timing does not reveal a partly correct token.
            if not hmac.compare_digest(csrf_token, csrf_of(cookie).encode()):
                raise ProblemError(
                    403, "the session's token is missing or wrong", f"send {CSRF_HEADER}"
                )
        return caller

    def _user_of_proxy(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """Return the user name in a trusted proxy's header.

        Return None if the request has no such header, or does not come from a trusted proxy.
        """
        header = self._settings.user_header.lower().encode()
        peer = scope.get("delf.peer")  # host and port
        if not header or header not in headers or not peer:
            return None
        host = str(peer[0])
        if not is_address(host):
            return None
        address = ip_address(host)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not any(address in network for network in self._proxies):
            return None
        return headers[header].decode("utf-8", "replace").strip()

    def wrong_key(self, scope: Scope, key: bytes) -> ProblemError:
        """Count and log a wrong key, and return the error response.

        Args:
            scope: The ASGI scope of the request.
            key: The wrong key, which is not stored.
        """
        client = client_of(scope.get("client"))
        client_count = self._count_wrong(f"client {client}")
        # Count the attempts by key, too: a program with an old key may run on many machines.
        key_count = self._count_wrong(f"key {hashlib.sha256(key).hexdigest()}")
        if client_count <= _MAX_WRONG_KEYS:
            _log.warning("a wrong API key was shown by %s, for %s", client, ascii(path_of(scope)))
        elif client_count == _MAX_WRONG_KEYS + 1:
            _log.warning("too many wrong API keys were shown by %s", client)
        if client_count > _MAX_WRONG_KEYS or key_count > _MAX_WRONG_KEYS:
            return ProblemError(429, "too many wrong keys", headers={"retry-after": "60"})
        return ProblemError(401, "the API key is not known", headers={"www-authenticate": "Bearer"})

    def _count_wrong(self, name: str) -> int:
        """Count a wrong key, and return how many wrong keys the current minute had for ``name``.

        Args:
            name: The client, or the digest of the key.
        """
        now = time.monotonic()
        count, minute_start = self._wrong_key_counts.pop(name, (0, now))
        if now - minute_start >= 60:
            count = 0
            minute_start = now
        self._wrong_key_counts[name] = count + 1, minute_start
        if len(self._wrong_key_counts) > _MAX_COUNTED:
            self._wrong_key_counts.popitem(last=False)  # the one that was counted longest ago
        return count + 1

    # -- the rest -------------------------------------------------------------------------

    def _is_own_host(self, host: bytes, scope: Scope) -> bool:
        """Return True if the Host header names this server, or is an IP address.

        This prevents DNS rebinding, for which an attacker needs a DNS name.
        """
        if "*" in self._hosts:
            return True
        match = _HOST.fullmatch(host.decode("latin-1"))
        if match is None:
            return False
        name = match[1].lower().strip("[]")
        # The names that Starlette's test client uses for the server and for itself.
        if name == "testserver" and _client_host(scope) == TEST_CLIENT:
            return True
        return is_address(name) or name in self._hosts or name.endswith(".localhost")

    def _limit_rate(self, caller: Caller | None) -> None:
        """Apply the caller's limit of requests per second.

        Raises:
            ProblemError: If the limit is exceeded.
        """
        user = caller.user if caller else None
        rate = self._settings.rate
        now = time.monotonic()
        # A token bucket for the requests of one second (at least one), refilled evenly.
        capacity = max(rate, 1.0)
        tokens, refilled_at = self._buckets.get(user, (capacity, now))
        refill = (now - refilled_at) * rate
        tokens = min(capacity, tokens + refill)
        if tokens < 1:
            wait = max(1, round((1 - tokens) / rate))
            raise ProblemError(
                429, f"more than {rate:g} requests a second", headers={"retry-after": str(wait)}
            )
        self._buckets[user] = tokens - 1, now


class _Sender:
    """Wraps ``send`` to add the common response headers.

    The guard sets ``varies_by_origin`` and ``origin`` (the origin whose pages may read the
    response) for the CORS headers. ``status`` is None until the response has started.

    Args:
        send: The ASGI callable ``send`` of the server.
        path: The path of the request, for error responses.
    """

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._path = path
        self.request_id = secrets.token_hex(8)
        self.varies_by_origin = False
        self.origin: str | None = None
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message["headers"])
            names = {name for name, _ in headers}
            headers += [(name, value) for name, value in _HEADERS if name not in names]
            headers.append((b"x-request-id", self.request_id.encode()))
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store"))
            if self.varies_by_origin:
                headers.append((b"vary", b"origin"))
            if self.origin is not None:
                headers.append((b"access-control-allow-origin", self.origin.encode("latin-1")))
                exposed = b"location, retry-after, x-request-id"
                headers.append((b"access-control-expose-headers", exposed))
            message = {**message, "headers": headers}
        await self._send(message)

    async def problem(self, problem: ProblemError) -> None:
        """Send an error response. If a response has already started, raise the error instead."""
        if self.status:
            raise problem
        body = problem.body(self.request_id, self._path)
        headers = {"content-type": MEDIA, "content-length": str(len(body))}
        if problem.status in (400, 408, 413, 507):
            headers["connection"] = "close"  # the rest of the request body is not read
        headers |= problem.headers
        await self._start(problem.status, headers)
        await self({"type": "http.response.body", "body": body})

    async def preflight(self) -> None:
        """Answer a CORS preflight request."""
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
        """Start a response of this guard; :meth:`__call__` adds the common headers."""
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": status, "headers": raw})


def session_of(headers: dict[bytes, bytes]) -> str | None:
    """Return the value of the session cookie; None if the request has none."""
    text = headers.get(b"cookie")
    if text is None:
        return None
    # Not SimpleCookie, which drops all cookies if another program on this host has set one with
    # unusual characters, such as JSON.
    return cookie_parser(text.decode("latin-1")).get(COOKIE)


def _sent_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the API key of a request; None if the request has no key."""
    if b"x-api-key" in headers:
        return headers[b"x-api-key"]
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def _headers(scope: Scope, unrepeatable: frozenset[bytes]) -> dict[bytes, bytes]:
    """Return the headers as a mapping from name to value.

    Args:
        scope: The ASGI scope.
        unrepeatable: The names of headers that must not be repeated.

    Raises:
        ProblemError: If a header in ``unrepeatable`` is repeated.
    """
    headers_by_name: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        is_repeated = name in headers_by_name
        if is_repeated and name in unrepeatable:
            raise ProblemError(400, f"the header {name.decode()} comes twice")
        if is_repeated and name == b"cookie":  # HTTP/2 may split cookies
            headers_by_name[name] += b"; " + value
        else:
            headers_by_name[name] = value
    return headers_by_name


def path_of(scope: Scope) -> str:
    """Return the request path without the prefix under which the application is mounted."""
    return scope["path"][len(scope.get("root_path", "")) :] or "/"


def _client_host(scope: Scope) -> str:
    """Return the client's address; empty for a Unix socket."""
    client = scope.get("client")  # (host, port), or None
    return str(client[0]) if client else ""


def _is_public(path: str) -> bool:
    """Return True if a path needs no credentials: the page, the login and signed webhooks."""
    return path in _PUBLIC_PATHS or path.startswith((_PAGE_PREFIX, _HOOKS_PREFIX))


def _is_same_origin(scope: Scope, origin: str) -> bool:
    """Return True if the request's origin is this server, or if the request has no origin.

    An http page may not use an https server, even of the same host.
    """
    if not origin:
        return True
    parts = split_url(origin)
    if parts is None:
        return False
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
    # Others on the network can change an http page, so such a page may not use an https server.
    # An https page may use an http server, which may be behind a proxy that ends the encryption.
    is_page_safe_enough = parts.scheme == "https" or scope.get("scheme", "http") == "http"
    return parts.netloc == host and is_page_safe_enough
