"""Login: a person agrees in a browser, and the login is stored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from delf.network.proxies import transport
from delf.network.tls import default_context
from delf_google.credentials import INVALID_ANSWER_ERRORS
from delf_google.errors import LoginError

_TIMEOUT: Final = 300
_DONE: Final = "delf has what it needs. You can close this window."


def can_browse() -> bool:
    """Return True if this machine has a web browser."""
    import webbrowser

    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def sign_in(
    client: Mapping[str, Any],
    scopes: Sequence[str],
    *,
    show: Callable[[str], None],
    ask: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """Let a person log in with a browser; return the login in google-auth's JSON format.

    Args:
        client: The OAuth client, as in the file from Google's console.
        scopes: The scopes of the login.
        show: Shows a text to the person.
        ask: Asks for the final URL of a browser on another machine; None to use a browser here.

    Raises:
        LoginError: If the person or Google refuses.
    """
    from google_auth_oauthlib.flow import InstalledAppFlow, WSGITimeoutError
    from oauthlib.oauth2 import OAuth2Error

    # A person may grant only some scopes. oauthlib would raise an error for this; the command
    # reports the missing scopes instead.
    os.environ.setdefault("OAUTHLIB_RELAX_TOKEN_SCOPE", "1")
    flow: Any = cast("Any", InstalledAppFlow).from_client_config(
        {"installed": dict(client)}, list(scopes)
    )
    try:
        if ask is None:
            credentials = flow.run_local_server(
                bind_addr="127.0.0.1",
                port=0,
                authorization_prompt_message="If no browser opens, open this address:\n{url}",
                success_message=_DONE,
                timeout_seconds=_TIMEOUT,
                prompt="consent",
            )
        else:
            credentials = _sign_in_by_hand(flow, show, ask)
    except OAuth2Error as error:
        raise LoginError(f"Google did not log in: {error.description or error.error}") from None
    except WSGITimeoutError:
        raise LoginError(f"nobody agreed within {_TIMEOUT} s", hint="try again") from None
    except OSError as error:  # the base of the library's errors for requests
        raise LoginError(
            f"Google's token server cannot be reached: {type(error).__name__}", hint="try again"
        ) from None
    except INVALID_ANSWER_ERRORS:
        raise LoginError(
            "Google did not log in: the answer of its token server is not valid", hint="try again"
        ) from None
    if not credentials.refresh_token:
        raise LoginError(
            "Google gave a login that cannot be renewed",
            hint="use a client of the type Desktop app",
        )
    login: dict[str, Any] = json.loads(credentials.to_json())
    granted_scopes: Any = credentials.granted_scopes
    login["scopes"] = sorted(granted_scopes or scopes)
    return login


def _sign_in_by_hand(flow: Any, show: Callable[[str], None], ask: Callable[[str], str]) -> Any:
    # Nothing listens at this URL: the person copies it, with the code, from the browser.
    flow.redirect_uri = "http://localhost:1/"
    address, _ = flow.authorization_url(prompt="consent")
    show(f"Open this address in any browser, and agree:\n\n{address}\n")
    show("The browser then ends at a page that it cannot open: http://localhost:1/…")
    pasted = ask("The address of that page").strip()
    if "code=" not in pasted and "error=" not in pasted:
        raise LoginError("this is not the last address of the browser: it has no code")
    # The library refuses a URL without TLS. No request is made to this URL: only its code is used.
    flow.fetch_token(authorization_response=pasted.replace("http://", "https://", 1))
    return flow.credentials


def revoke(login: Mapping[str, Any]) -> bool:
    """Revoke a login at Google; return False if Google refused or did not answer."""
    import httpx

    token_uri = str(login.get("token_uri") or "https://oauth2.googleapis.com/token")
    address = f"{token_uri.rpartition('/')[0]}/revoke"
    token = str(login.get("refresh_token") or login.get("token") or "")
    try:
        with (
            httpx.Client(
                transport=transport(httpx, verify=default_context()), timeout=30
            ) as client,
            # Streamed, because only the status is needed, not the body.
            client.stream("POST", address, data={"token": token}) as response,
        ):
            return response.status_code == 200
    except httpx.HTTPError:
        return False
