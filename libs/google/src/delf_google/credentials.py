"""Access tokens: from a login, a service account, the environment, or as given."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
    KeyAddressError,
)
from delf.machine.folders import expand_home
from delf.network.bodies import ACCEPTED, BodyError, Inflater
from delf.network.proxies import transport
from delf.network.tls import default_context
from delf_google.errors import GET_CREDENTIALS, LOGIN, LoginError
from delf_google.settings import GoogleSettings
from delf_google.store import TokenStore

_log = logging.getLogger(__name__)
_DEFAULT_TOKEN_URI: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_TIMEOUT_SECONDS: Final = 30.0
_MAX_ANSWER_BYTES: Final = 1_000_000
INVALID_ANSWER_ERRORS: Final = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
)
"""The errors of Google's libraries for an answer of a token server with unexpected types."""


class Tokens:
    """The OAuth access token of one connection, renewed on expiry.

    Args:
        name: The connection's name, for messages.
        settings: The settings of the connection.
        scopes: The scopes to request.
        keep_secret: Registers a secret for redaction; called before the secret is used.
        command: The login command, for messages.
        store: The store of logins.
    """

    def __init__(
        self,
        name: str,
        settings: GoogleSettings,
        scopes: Sequence[str],
        keep_secret: Callable[[str], None],
        command: str = LOGIN,
        store: TokenStore | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._scopes = tuple(scopes)
        self._keep_secret = keep_secret
        self._login_command = command
        self._store = store or TokenStore()
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._stored_login: Mapping[str, Any] | None = None

    @property
    def project(self) -> str | None:
        """The quota project in the credentials; None before :meth:`get`, or if there is none."""
        return getattr(self._credentials, "quota_project_id", None)

    async def get(self, rejected_token: str | None = None) -> str:
        """Return a valid access token, renewed if needed.

        Args:
            rejected_token: A token that the service rejected, so that another token is needed.

        Raises:
            LoginError: If there is no login, or it has been revoked.
            ConnectionUnavailableError: If the token server is unreachable.
        """
        if self._settings.token is not None:
            return self._configured_token(self._settings.token.get_secret_value(), rejected_token)
        credentials = self._credentials
        if credentials is not None and credentials.valid and credentials.token != rejected_token:
            return credentials.token
        return await asyncio.to_thread(self._renew_token, rejected_token)

    def _configured_token(self, token: str, rejected_token: str | None) -> str:
        if not _is_header_value(token):
            raise LoginError(f"{self._name}: the configured token has characters that no token has")
        if token == rejected_token:
            raise LoginError(
                f"{self._name}: Google does not accept the configured token",
                hint="give a new one: it is good for an hour",
            )
        return token

    def _renew_token(self, rejected_token: str | None) -> str:
        """Return a valid token; refresh it unless another thread has just done so."""
        from google.auth.exceptions import RefreshError, TransportError

        with self._lock:  # later callers use the first caller's token
            if self._credentials is None:
                self._credentials = self._make_credentials()
            credentials = self._credentials
            if credentials.valid and credentials.token != rejected_token:
                return credentials.token
            requests = _TokenRequests()
            try:
                credentials.refresh(requests)
            except RefreshError as error:
                if cast("Any", error).retryable or requests.is_fault_of_server:
                    raise self._token_server_error(_first_line(error)) from None
                raise self._login_error(error) from None
            except TransportError as error:
                raise ConnectionUnavailableError(
                    f"{self._name}: Google's token server cannot be reached: {_first_line(error)}"
                ) from None
            except INVALID_ANSWER_ERRORS:  # google-auth does not check the types in an answer
                raise self._token_server_error("its answer is not valid") from None
            if not _is_header_value(credentials.token):
                credentials.token = None  # else the next call would take it for a valid token
                raise self._token_server_error("its answer has no valid token")
            self._keep_secret(credentials.token)
            self._store_renewed_login(credentials)
            return credentials.token

    def _token_server_error(self, reason: str) -> ConnectionUnavailableError:
        return ConnectionUnavailableError(f"{self._name}: Google's token server fails: {reason}")

    def _login_error(self, error: Exception) -> LoginError:
        """Return the error for credentials that the token server refuses."""
        if self._settings.service_account is not None:
            hint = "check the key, and that the service account may act for delegated_user"
        else:
            # The connection's command passes the configured file as an OAuth client. If the file is
            # itself a login, so that no stored login is used, the command would not work.
            hint = f"run {self._login_command if self._stored_login else LOGIN}"
        # Include the token server's message, because something else, such as a wrong clock, may be
        # the cause.
        return LoginError(
            f"{self._name}: the login is expired or revoked ({_first_line(error)})", hint=hint
        )

    def _store_renewed_login(self, credentials: Any) -> None:
        """Store a renewed login, so that other processes use its token."""
        old_login = self._stored_login
        if old_login is None:
            return
        # Google may omit the granted scopes from its response.
        scopes = sorted(credentials.granted_scopes or old_login.get("scopes") or ())
        new_login = {**old_login, **json.loads(credentials.to_json()), "scopes": scopes}
        try:
            self._store.write(self._settings.account, str(old_login["client_id"]), new_login)
        except OSError as error:
            _log.warning("%s: the login cannot be stored: %s", self._name, error.strerror)

    # -- the kinds ----------------------------------------------------------------------

    def _make_credentials(self) -> Any:
        if self._settings.service_account is not None:
            return self._service_account_credentials(self._settings.service_account)
        if self._settings.oauth_credentials is not None:
            return self._user_credentials(self._settings.oauth_credentials)
        return self._environment_credentials()

    def _service_account_credentials(self, path: str) -> Any:
        from google.oauth2 import service_account

        info = read_json(path, self._name)
        self._keep_secret(str(info.get("private_key", "")))
        try:
            return service_account.Credentials.from_service_account_info(  # pyright: ignore[reportUnknownMemberType]
                info, scopes=self._scopes, subject=self._settings.delegated_user
            )
        except ValueError as error:
            raise ConnectionConfigurationError(
                f"{self._name}: {path} is not a key of a service account: {_first_line(error)}"
            ) from None

    def _user_credentials(self, path: str) -> Any:
        info = read_json(path, self._name)
        if is_login(info):
            return self._build_user_credentials(info)
        client = client_of(info, path, self._name)
        # Raises an error if a project's file sets the address to which the login would be sent.
        self._check_base_url_is_not_of_project("the login of `delf google login`")
        login = self._store.read(self._settings.account, client["client_id"])
        if login is None or not login.get("refresh_token"):
            raise LoginError(
                f"{self._name}: nobody has logged in as {self._settings.account!r} yet",
                hint=f"run {self._login_command}",
            )
        self._stored_login = {**login, "client_id": client["client_id"]}
        return self._build_user_credentials(login)

    def _build_user_credentials(self, info: Mapping[str, Any]) -> Any:
        from google.oauth2.credentials import Credentials

        for key in ("refresh_token", "client_secret", "token"):
            if info.get(key):
                self._keep_secret(str(info[key]))
        # from_authorized_user_info would ignore the token server given in the file.
        return Credentials(
            info.get("token"),
            refresh_token=info.get("refresh_token"),
            client_id=info.get("client_id"),
            client_secret=info.get("client_secret"),
            token_uri=info.get("token_uri") or _DEFAULT_TOKEN_URI,
            expiry=_parse_expiry(info.get("expiry")),
            quota_project_id=info.get("quota_project_id"),
        )

    def _check_base_url_is_not_of_project(self, source: str) -> None:
        """Refuse to send the user's own credentials to an address that a project's file sets.

        Args:
            source: The origin of the credentials, for the message.

        Raises:
            KeyAddressError: If a project's file sets ``base_url``.
        """
        if self._settings.source("base_url") == "project":
            raise KeyAddressError(
                f"{self._name}: a file of the project gives base_url, but {source} is the "
                "user's own",
                hint=f"give the address by DELF_{self._name.upper()}_BASE_URL, or name the "
                "credentials for it in the file: service_account, token",
            )

    def _environment_credentials(self) -> Any:
        self._check_base_url_is_not_of_project("the login of the environment")
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError

        try:
            default_credentials = cast("Any", google.auth).default(scopes=self._scopes)
        except DefaultCredentialsError:
            raise LoginError(
                f"{self._name}: there are no credentials",
                hint=f"run {self._login_command} with an OAuth client of Google's console and give "
                "it here as oauth_credentials; or set service_account; or run "
                "gcloud auth application-default login",
            ) from None
        return default_credentials[0]


def read_json(path: str, name: str) -> dict[str, Any]:
    """Read a JSON file with credentials.

    Raises:
        ConnectionFileNotFoundError: If the file cannot be read.
        ConnectionConfigurationError: If the content is not a JSON object.
    """
    try:
        content: Any = json.loads(expand_home(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConnectionFileNotFoundError(
            f"{name}: the credentials {path!r} cannot be read: {error.strerror}",
            hint=GET_CREDENTIALS,
        ) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ConnectionConfigurationError(
            f"{name}: {path!r} is not a JSON object with credentials"
        )
    return cast("dict[str, Any]", content)


def is_login(info: Mapping[str, Any]) -> bool:
    """Return True if the JSON data are a user's login, as gcloud or google-auth store it."""
    has_login_keys = {"refresh_token", "client_id", "client_secret"} <= info.keys()
    return info.get("type") == "authorized_user" or has_login_keys


def client_of(info: Mapping[str, Any], path: str, name: str) -> dict[str, Any]:
    """Return the OAuth client in the JSON data of a file from Google's console.

    Args:
        info: The JSON data.
        path: The file's path, for the error message.
        name: The connection's name, for the error message.

    Raises:
        ConnectionConfigurationError: If the file has no client.
    """
    client: Any = info.get("installed") or info.get("web")
    if not isinstance(client, dict) or "client_id" not in client:
        raise ConnectionConfigurationError(
            f"{name}: {path!r} holds no OAuth client",
            hint="Google's console, Credentials, OAuth client ID, Desktop app: download the JSON",
        )
    return cast("dict[str, Any]", client)


def _parse_expiry(text: Any) -> Any:
    if not isinstance(text, str):
        return None
    try:
        expiry = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    # google-auth compares with a naive time in UTC.
    if expiry.tzinfo:
        return expiry.astimezone(dt.UTC).replace(tzinfo=None)
    return expiry


def _is_header_value(token: Any) -> bool:
    """Return True if a token is a text that can be sent in a header."""
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type without a message."""
    text = str(error.args[0]) if error.args else type(error).__name__
    first_line = text.split("\n", 1)[0]
    return first_line.removesuffix(": None")[:200]  # google-auth's text for no description


class _TokenRequests:
    """A callable with which google-auth sends token requests over httpx."""

    def __init__(self) -> None:
        self.is_fault_of_server = False
        """True if the last answer says nothing about the login, such as a page of a gateway."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Any:
        import httpx
        from google.auth.exceptions import TransportError

        try:
            http_transport = transport(httpx, verify=default_context())
            all_headers = {**(headers or {}), "accept-encoding": ACCEPTED}
            with (
                httpx.Client(
                    transport=http_transport, timeout=timeout or _TIMEOUT_SECONDS
                ) as client,
                client.stream(method, url, content=body, headers=all_headers) as answer,
            ):
                inflater = Inflater(answer.headers, _MAX_ANSWER_BYTES)
                pieces = [piece for data in answer.iter_raw() for piece in inflater.feed(data)]
                inflater.finish()
        except httpx.HTTPError as error:
            raise TransportError(f"{type(error).__name__} at {httpx.URL(url).host}") from None
        except BodyError as error:
            raise TransportError(f"its answer cannot be read: {error}") from None
        content = b"".join(pieces)
        if answer.is_redirect:  # google-auth would report the login as revoked
            raise TransportError(f"it redirects (HTTP {answer.status_code})")
        self.is_fault_of_server = not _is_about_login(answer.status_code, content)
        return _TokenResponse(answer.status_code, answer.headers, content)


def _is_about_login(status: int, content: bytes) -> bool:
    """Return True if an answer of a token server grants or refuses a token.

    Return False for a temporary failure, and for an answer that has no JSON object, such as a
    proxy's web page.

    Args:
        status: The HTTP status.
        content: The body of the answer.
    """
    is_temporary_failure = status >= 500 or status == 429
    if is_temporary_failure:
        return False
    try:
        body: Any = json.loads(content)
    except (ValueError, RecursionError):
        return False
    key = "access_token" if status < 300 else "error"
    return isinstance(body, dict) and key in body


class _TokenResponse:
    """An HTTP response with the attributes that google-auth reads."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data
