"""Operations of the page only: login and the human-readable API documentation."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response

from delf_cli.story import short_name
from delf_serve import oidc
from delf_serve import schemas as s
from delf_serve.assets import page_file
from delf_serve.call import Call, json_response
from delf_serve.guard import COOKIE, PROXY_TOKEN
from delf_serve.keys import ANYBODY, Caller
from delf_serve.operation import Operations
from delf_serve.operations import budget_of
from delf_serve.problems import ProblemError
from delf_serve.sessions import csrf_of

PAGE_OPERATIONS: Final = Operations()
"""The operations that only the server's web page uses; the OpenAPI document omits them."""


@PAGE_OPERATIONS.add("GET", "/docs", right="read")
async def docs(_call: Call) -> Response:
    """Return the API documentation as a web page."""
    return page_file("docs.html")


@PAGE_OPERATIONS.add("POST", "/login", right=None, answer=s.Session)
async def login(call: Call, body: s.LoginRequest) -> Response:
    """Start a session."""
    service = call.service
    if not service.keys:
        return json_response(await _session_view(call, ANYBODY, None))
    caller = service.keys.find(body.key.encode())
    if caller is None:
        raise call.http.scope["delf.guard"].wrong_key(call.http.scope, body.key.encode())
    cookie = await _begin_session(call, caller, "key")
    response = json_response(await _session_view(call, caller, cookie))
    _set_session_cookie(call, response, cookie)
    return response


@PAGE_OPERATIONS.add("GET", oidc.BEGIN, right=None, status=303)
async def begin_oidc(call: Call) -> Response:
    """Start a login by OpenID Connect, with a redirect to the provider."""
    url, cookie = await _oidc(call).begin()
    response = RedirectResponse(url, 303)
    # With SameSite=strict, the browser would not send the cookie when the provider's site
    # redirects the browser back to this server.
    options: dict[str, Any] = {**_cookie_options(call), "samesite": "lax"}
    response.set_cookie(oidc.COOKIE, quote(cookie), max_age=oidc.LOGIN_SECONDS, **options)
    return response


@PAGE_OPERATIONS.add("GET", oidc.CALLBACK, right=None, status=303, any_query=True)
async def finish_oidc(call: Call) -> Response:
    """Complete a login by OpenID Connect, and start a session."""
    cookie = unquote(call.http.cookies.get(oidc.COOKIE, ""))
    provider = _oidc(call)
    name = await provider.finish(cookie, dict(call.http.query_params))
    caller = call.service.keys.find_person(name, by_mail=provider.by_mail)
    if caller is None:
        raise ProblemError(
            403, f"{name[:80]} is not known here", "whoever runs the server can add you"
        )
    response = RedirectResponse(call.http.scope.get("root_path", "") + "/", 303)
    _set_session_cookie(call, response, await _begin_session(call, caller, "oidc"))
    options: dict[str, Any] = {**_cookie_options(call), "samesite": "lax"}
    response.delete_cookie(oidc.COOKIE, **options)
    return response


@PAGE_OPERATIONS.add("POST", "/logout", right="read", status=204)
async def logout(call: Call) -> Response:
    """End the caller's session."""
    if call.cookie is not None:
        await call.service.sessions.end(call.cookie)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, **_cookie_options(call))
    return response


@PAGE_OPERATIONS.add("GET", "/session", right=None)
async def session(call: Call) -> s.Session:
    """Return the session of the caller."""
    caller: Caller | None = call.http.scope.get("delf.caller")
    if caller is None:
        login_hint = "POST /login" if call.service.oidc is None else f"GET {oidc.BEGIN}"
        raise ProblemError(401, "nobody is logged in", login_hint)
    return await _session_view(call, caller, call.cookie)


async def _begin_session(call: Call, caller: Caller, login_method: str) -> str:
    """Start a session, end the browser's earlier session, and return the new cookie.

    Args:
        call: The request to log in.
        caller: The person who logs in.
        login_method: How the person logs in: ``key`` or ``oidc``.
    """
    if call.cookie is not None:
        await call.service.sessions.end(call.cookie)
    browser = call.http.headers.get("user-agent", "")
    return await call.service.sessions.begin(caller, login_method, call.client, browser)


def _set_session_cookie(call: Call, response: Response, cookie: str) -> None:
    """Set the session cookie in a response."""
    seconds = int(call.service.settings.session_hours * 3600)
    response.set_cookie(COOKIE, cookie, max_age=seconds, **_cookie_options(call))


def _cookie_options(call: Call) -> dict[str, Any]:
    is_encrypted = call.http.url.scheme == "https"
    is_encrypted |= call.service.settings.public_url.startswith("https://")
    path = call.http.scope.get("root_path", "") or "/"
    return {"path": path, "httponly": True, "samesite": "strict", "secure": is_encrypted}


def _oidc(call: Call) -> oidc.OpenIdConnect:
    if call.service.oidc is None:
        raise ProblemError(404, "no provider of logins is set", "the setting oidc_issuer")
    return call.service.oidc


def _name_without_provider(model: str) -> str:
    """Return the last part of a model's name: ``openrouter/openai/gpt-5`` becomes ``gpt-5``."""
    return short_name(model).rpartition("/")[2]


async def _session_view(call: Call, caller: Caller, cookie: str | None) -> s.Session:
    """Return what the page has to know about its user and about the server."""
    service = call.service
    is_by_proxy = bool(call.http.scope.get("delf.proxy"))
    person = service.keys.person_of(caller.user)
    csrf = None
    if not service.keys:  # a server without people and logins
        login_method = "none"
    elif is_by_proxy:
        # The page must send a CSRF token in a header. Behind a proxy, a constant is enough,
        # because other sites cannot send this header.
        login_method, csrf = "proxy", PROXY_TOKEN
    elif cookie is not None:
        login_method, csrf = "session", csrf_of(cookie)
    else:
        login_method = "key"
    agent_budget = budget_of(call, caller)
    # The budgets of the caller and of the caller's teams.
    budgets_of_caller = await service.tasks.budgets.shown(caller)
    return s.Session(
        name=caller.name,
        rights=sorted(caller.rights),
        scope=caller.scope,
        teams=sorted(caller.teams),
        way=login_method,
        csrf=csrf,
        login=bool(service.keys),
        server=service.server_id,
        model=_name_without_provider(service.agent.config.main_llm.model),
        models=service.settings.models,
        browser_notices=person is None or "browser" in person.notice_ways,
        budget=agent_budget,
        budgets=budgets_of_caller,
    )
