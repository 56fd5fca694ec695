"""Requests of calls, built from validated arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, urlsplit

from delf.errors import ConnectionConfigurationError, ToolRefusedError, did_you_mean
from delf.settings import reveal_secrets
from delf.tools.json_schema import Fault
from delf_openapi.bodies import Body, Field, kind_of
from delf_openapi.compiler import responses_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.homes import KeyServers
from delf_openapi.operations import Operation, Param
from delf_openapi.payloads import file_of, write_body
from delf_openapi.security import Credentials, credentials_for
from delf_openapi.servers import operation_path, server_of
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import origin_of
from delf_openapi.styles import (
    Pairs,
    cookie_pairs,
    header_text,
    path_text,
    query_pairs,
    safe_header,
)
from delf_openapi.values import Checker
from delf_schemas.plain import Misfit, plain

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})

_PLACEHOLDER: Final = "key"
FULL_RESPONSE: Final = "full_response"
"""The name of a keyword argument of every action.

If the argument is true, a call returns the response's status, headers and body.
"""


@dataclass(slots=True)
class Request:
    """A request that can be sent; its repr shows no values.

    Args:
        label: The method and path template, for messages.
        method: The HTTP method.
        url: The URL without credentials.
        headers: The headers without credentials.
        content: The body.
        secret_headers: The headers with credentials, which are sent to the API's own origin only.
        query: The query parameters with credentials, encoded.
        token_url: The URL of the OAuth2 token that the request needs; None without OAuth2.
        unmet_schemes: The names of security schemes without configured credentials.
        spec_host: The host of the specification; None for a local specification.
        changes_nothing: Whether the request changes nothing despite its method, as a token request
            does.
    """

    label: str
    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    content: bytes | None = field(repr=False)
    secret_headers: dict[str, str] = field(repr=False)
    query: str = field(repr=False)
    token_url: str | None = None
    unmet_schemes: tuple[str, ...] = ()
    spec_host: str | None = None
    changes_nothing: bool = False

    @property
    def is_repeatable(self) -> bool:
        """True if repeating the request is safe."""
        return self.changes_nothing or self.method in IDEMPOTENT


class _SerialisedParams(NamedTuple):
    """The parameters of a request as texts, without the parameters in the path."""

    query: Pairs
    headers: dict[str, str]
    cookies: Pairs


class RequestBuilder:
    """Checks the arguments of one operation and builds its requests.

    Args:
        connection_name: The connection's name, for messages.
        document: The specification.
        operation: The operation.
        settings: The settings of the connection.
        signature: The action's signature, for messages.
        hidden_arguments: The keywords whose values come from the settings, not from scripts.
        warn: Receives the faults of arguments that are sent nevertheless.
    """

    def __init__(
        self,
        connection_name: str,
        document: Document,
        operation: Operation,
        settings: OpenAPISettings,
        signature: str,
        hidden_arguments: frozenset[str],
        warn: Callable[[list[str]], None],
    ) -> None:
        self._action_name = f"{connection_name}.{operation.endpoint.name}"
        self._document = document
        self.operation = operation
        self._settings = settings
        self._key_servers = KeyServers(connection_name, settings, document.trees.uri)
        self._signature = signature
        self._hidden_arguments = hidden_arguments
        self._checker = Checker(document)
        # The parameters and the fields of the body that scripts can pass, by keyword argument.
        self._params = {p.arg: p for p in operation.params if p.arg not in hidden_arguments}
        fields = operation.body.fields if operation.body is not None else None
        self._fields = {f.arg: f for f in fields or () if f.arg not in hidden_arguments}
        self._warn = warn

    # -- checking -----------------------------------------------------------------------

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and convert them to the values to be sent.

        If the setting ``check_arguments`` is ``warn``, a missing argument outside of the path, or a
        value that violates its schema, is only logged.

        Raises:
            ToolRefusedError: If an argument is invalid; the error has the first problems, and the
                signature.
        """
        problems: list[str] = []
        validated: dict[str, Any] = {}
        body = self.operation.body
        names = {*self._params, *self._fields, *self._body_names(body)}
        for arg, value in arguments.items():
            # Unless the API itself has an argument named FULL_RESPONSE.
            if arg == FULL_RESPONSE and arg not in names:
                validated[arg] = bool(value)
                continue
            if arg not in names:
                problems.append(f"unknown argument {arg!r}{did_you_mean(arg, names)}")
                continue
            try:
                problems += self._store_argument(arg, value, validated)
            except Misfit as misfit:
                problems.append(f"argument {misfit}")
        for arg in self._missing_arguments(arguments, validated):
            problem = f"missing argument {arg!r}"
            is_in_path = arg in self._params and self._params[arg].place == "path"
            if is_in_path:  # no request can be sent without a part of its path
                problems.append(problem)
            else:
                problems += self._warn_or_refuse([problem])
        # Skip this check after a problem above, which it could report a second time.
        if body is not None and not problems:
            problems += self._warn_or_refuse(self._check_body(body, validated))
        if problems:
            listed_problems = "; ".join(problems[:8])
            raise ToolRefusedError(
                f"{self._action_name}: {listed_problems}. Expected {self._signature}"
            )
        return validated

    def _warn_or_refuse(self, faults: list[str]) -> list[str]:
        """Return the faults if the settings make faults an error.

        Otherwise log a warning, and return an empty list.
        """
        if self._settings.check_arguments == "raise":
            return faults
        if faults:
            self._warn(faults)
        return []

    def _missing_arguments(
        self, arguments: Mapping[str, Any], validated: Mapping[str, Any]
    ) -> list[str]:
        """Return the required keywords that a call omits. An invalid value is not an omission."""
        required = [p.arg for p in self._params.values() if p.required]
        if self.operation.body is not None:
            required += self._required_keywords(self.operation.body, arguments)
        return [arg for arg in required if arg not in validated and arguments.get(arg) is None]

    def _body_names(self, body: Body | None) -> tuple[str, ...]:
        names = (body.whole_argument, body.extra_argument) if body is not None else ()
        return tuple(n for n in names if n is not None)

    def _store_argument(self, arg: str, value: Any, arguments: dict[str, Any]) -> list[str]:
        """Convert an argument, store it in ``arguments``, and return the reasons to refuse it.

        Raises:
            Misfit: If the value cannot be sent.
        """
        if arg in self._params:
            return self._store_parameter(self._params[arg], value, arguments)
        # Arguments of the body are not validated one by one: check() validates the whole body.
        body = self.operation.body
        if arg in self._fields:
            self._store_field(self._fields[arg], value, arguments)
        elif body is not None:
            value = plain(self._checker.with_numbers_as_text(body.schema, value), arg)
            is_whole_body = arg != body.extra_argument
            if is_whole_body or isinstance(value, dict):
                arguments[arg] = value
            elif value is not None:  # None omits the additional properties
                raise Misfit(arg, "must be a dict")
        return []

    def _store_parameter(self, param: Param, value: Any, arguments: dict[str, Any]) -> list[str]:
        """Convert a parameter and store it in ``arguments``; return faults that forbid the call."""
        if value is None:
            return []  # None omits a parameter
        value = self._checker.with_numbers_as_text(param.schema, value)
        value = self._checker.coerced(param.schema, plain(value, param.arg))
        faults = [
            _fault_text(fault, param.arg) for fault in self._checker.faults(param.schema, value)
        ]
        if refused_faults := self._warn_or_refuse(faults):
            return refused_faults
        self._check_serialisable(param, value)
        arguments[param.arg] = value
        return []

    def _store_field(self, body_field: Field, value: Any, arguments: dict[str, Any]) -> None:
        """Convert and store a field of the body.

        None is stored if the schema allows null. None is also stored in a merge patch, where null
        removes the property. In all other cases, None omits the field.
        """
        arg, schema = body_field.arg, body_field.schema
        body = self.operation.body
        is_patch = body is not None and body.is_patch
        if value is None and not is_patch and self._checker.faults(schema, None):
            return
        arguments[arg] = plain(self._checker.with_numbers_as_text(schema, value), arg)

    def _check_serialisable(self, param: Param, value: Any) -> None:
        """Raise Misfit if a path or header value cannot be serialised."""
        if param.place == "path":
            path_text(param, value)
        elif param.place == "header":
            header_text(param, value)

    def _required_keywords(self, body: Body, arguments: Mapping[str, Any]) -> list[str]:
        """Return the names of the keyword arguments that a call must have for its body.

        Args:
            body: The body.
            arguments: The arguments of the call by name.
        """
        if body.fields is None:  # one keyword argument takes the whole body
            whole_argument = body.whole_argument
            if body.required and whole_argument is not None:
                return [whole_argument]
            return []
        parts_of_body = list(self._fields)
        if body.extra_argument is not None:
            parts_of_body.append(body.extra_argument)
        has_body = any(arguments.get(name) is not None for name in parts_of_body)
        is_body_omitted = not has_body and not body.required
        if is_body_omitted:
            return []
        return [name for name, field in self._fields.items() if field.required]

    def _check_body(self, body: Body, arguments: dict[str, Any]) -> list[str]:
        """Validate the whole body, and return its faults."""
        if body.fields is None:
            return self._check_whole_argument(body, arguments)
        given_fields = self._body_value(body, arguments)
        if not given_fields and not body.required:
            return []
        # The connection fills in hidden fields, so they are not missing.
        fields = {f.name: _PLACEHOLDER for f in body.fields if f.arg in self._hidden_arguments}
        for field_name, value in given_fields.items():
            if body.is_patch and value is None:  # removes a property, whatever its schema is
                continue
            # A multipart body may have files; the schema describes only the content of a file.
            fields[field_name] = _content_of_file(value) if body.kind == "multipart" else value
        keywords_by_field = {f.name: arg for arg, f in self._fields.items()}
        texts: list[str] = []
        for fault in self._checker.faults(body.schema, fields):
            if not fault.path:
                texts.append(fault.message)
                continue
            # The fault is in a field: name the keyword by which the script gave the field.
            field_name, *path_in_field = fault.path
            keyword = keywords_by_field.get(str(field_name), field_name)
            texts.append(_fault_text(fault._replace(path=tuple(path_in_field)), keyword))
        return texts

    def _check_whole_argument(self, body: Body, arguments: Mapping[str, Any]) -> list[str]:
        """Validate the argument that takes the whole body, and return its faults."""
        if body.whole_argument is None or body.whole_argument not in arguments:
            return []
        value = arguments[body.whole_argument]
        if body.kind in ("text", "binary", "multipart"):
            return _type_faults(body, value)
        faults = self._checker.faults(body.schema, value)
        return [_fault_text(fault, body.whole_argument) for fault in faults]

    # -- building -----------------------------------------------------------------------

    def build(self, given: Mapping[str, Any]) -> Request:
        """Build the request of a call with validated arguments.

        Raises:
            ToolRefusedError: If the value of a path parameter would lead to another URL path, for
                example by ``..`` or a slash.
            ConnectionConfigurationError: If no server is known, or a key would go to a server that
                the user has not accepted.
        """
        try:
            return self._build(given)
        except Misfit as misfit:
            raise ToolRefusedError(f"{self._action_name}: argument {misfit}") from None

    def _build(self, arguments: Mapping[str, Any]) -> Request:
        """Build the request; raise Misfit if a value cannot be serialised."""
        operation = self.operation
        settings = self._settings
        # Values from the settings for placeholders in the paths and the server's URL.
        path_params = reveal_secrets(settings.path_params)
        base = server_of(self._document, operation, settings.base_url, path_params)
        credentials = credentials_for(self._document, operation, settings)
        path = self._path(arguments, {k.lower(): v for k, v in path_params.items()})
        url = base + path
        params = self._serialised_params(arguments)
        if params.query:
            # The path template of some operations already contains a query.
            url += "&" if "?" in path else "?"
            url += "&".join(f"{name}={value}" for name, value in params.query)
        self._check_origin(url, base)
        content, media = self._content(arguments)
        headers = params.headers
        headers["Accept"] = accept_header(self._document, operation)
        if media is not None:
            headers["Content-Type"] = media
        # Cookies are sent like secrets, because they share one header with the keys in cookies.
        secret_headers = self._secret_headers(credentials, params.cookies)
        # Secrets are sent only to servers that the user named, and to the specification's origin.
        self._key_servers.check_request(url, credentials, self._action_name)
        # Scripts cannot override headers from the user's settings or credentials.
        secret_names = {name.lower() for name in secret_headers}
        return Request(
            label=f"{operation.endpoint.method} {operation.endpoint.path}",
            method=operation.endpoint.method,
            url=url,
            headers={k: v for k, v in headers.items() if k.lower() not in secret_names},
            content=content,
            secret_headers=secret_headers,
            query=self._secret_query(credentials),
            token_url=credentials.token_url,
            unmet_schemes=credentials.unmet_schemes,
            spec_host=urlsplit(self._document.trees.uri).hostname,
        )

    def _serialised_params(self, arguments: Mapping[str, Any]) -> _SerialisedParams:
        serialised = _SerialisedParams([], {}, [])
        for arg, param in self._params.items():
            if arg not in arguments:
                continue
            value = arguments[arg]
            if param.place == "query":
                serialised.query.extend(query_pairs(param, value))
            elif param.place == "header":
                serialised.headers[param.name] = header_text(param, value)
            elif param.place == "cookie":
                serialised.cookies.extend(cookie_pairs(param, value))
        return serialised

    def _path(self, arguments: Mapping[str, Any], configured: Mapping[str, str]) -> str:
        """Return the operation's path, with quoted values for its placeholders.

        Args:
            arguments: The arguments of the call.
            configured: The values from the settings, by placeholder in lower case.

        Raises:
            Misfit: If a part of the path would be ``.`` or ``..``.
        """
        path = operation_path(self.operation.endpoint.path)
        for param in self.operation.params:
            if param.place != "path":
                continue
            if param.arg in self._hidden_arguments:
                text = quote(configured[param.name.lower()], safe="-._~")
            else:
                text = path_text(param, arguments[param.arg])
            # Replacements contain no braces, so no placeholder is replaced twice.
            path = path.replace(f"{{{param.name}}}", text)
        # Servers and proxies resolve dots, and would take the call for another operation.
        if any(part in (".", "..") for part in path.partition("?")[0].split("/")):
            raise Misfit("path", "it would lead to another address")
        return path

    def _check_origin(self, url: str, base: str) -> None:
        """Raise if arguments in ``url`` have changed the server or added a fragment (``#``)."""
        # A fragment is not sent. Some servers read a backslash as a slash.
        if origin_of(url) != origin_of(base) or urlsplit(url).fragment or "\\" in url:
            raise ConnectionConfigurationError(
                f"{self._action_name}: its address leaves its server"
            )

    def _secret_headers(
        self, credentials: Credentials, cookies: list[tuple[str, str]]
    ) -> dict[str, str]:
        """Return the headers with secrets: configured headers, credentials and all cookies."""
        # The settings override the credentials, whatever the case of the headers' names is.
        configured = reveal_secrets(self._settings.headers)
        configured_names = {name.lower() for name in configured}
        secret = {k: v for k, v in credentials.headers.items() if k.lower() not in configured_names}
        secret |= configured
        # A request has only one Cookie header, so add the other cookies to a configured one.
        pairs = [*cookies, *credentials.cookies.items()]
        if pairs:
            texts = [f"{name}={value}" for name, value in pairs]
            cookie_header = next((k for k in secret if k.lower() == "cookie"), "Cookie")
            if cookie_header in secret:
                texts.insert(0, secret[cookie_header])
            secret[cookie_header] = "; ".join(texts)
        return {k: safe_header(k, v) for k, v in secret.items()}

    def _secret_query(self, credentials: Credentials) -> str:
        """Return the query with credentials and the setting ``params``, which takes precedence."""
        configured = reveal_secrets(self._settings.params)
        pairs = {**credentials.query, **configured}.items()
        return "&".join(f"{quote(k, safe='-._~')}={quote(v, safe='-._~')}" for k, v in pairs)

    def _content(self, arguments: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
        """Return the body's bytes and its Content-Type; ``(None, None)`` without a body."""
        body = self.operation.body
        if body is None:
            return None, None
        if body.fields is None:  # one keyword argument takes the whole body
            whole_argument = body.whole_argument
            if whole_argument is None or whole_argument not in arguments:
                return None, None
            return write_body(self._document, body, arguments[whole_argument])
        value = self._body_value(body, arguments)
        if not value and not body.required:
            return None, None
        return write_body(self._document, body, value)

    def _body_value(self, body: Body, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body's properties by name; its fields override additional properties."""
        value = {f.name: arguments[arg] for arg, f in self._fields.items() if arg in arguments}
        additional: Any = arguments.get(body.extra_argument) if body.extra_argument else None
        if isinstance(additional, dict):
            return {**cast("dict[str, Any]", additional), **value}
        return value


def _fault_text(fault: Fault, arg: str | int) -> str:
    return f"argument {fault._replace(path=(arg, *fault.path))}"


def _type_faults(body: Body, value: Any) -> list[str]:
    """Check the Python type of a text, binary or multipart body, and return the faults.

    The list has at most one fault. The body is not checked against its schema.
    """
    if body.kind == "multipart" and not isinstance(value, dict):
        return [f"argument {body.whole_argument}: must be a dict"]
    if body.kind == "text" and isinstance(value, (dict, list)):
        return [
            f"argument {body.whole_argument}: must be text, because its media type is {body.media}"
        ]
    if body.kind == "binary":
        try:
            file_of(body, value)
        except Misfit as misfit:
            return [f"argument {misfit}"]
    return []


def _content_of_file(value: Any) -> Any:
    """Return the content of a file that a dict describes; return other values unchanged."""
    if isinstance(value, list):
        return [_content_of_file(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        file = cast("dict[str, Any]", value)
        if isinstance(file.get("content"), (bytes, str)):
            return file["content"]
        return file
    return value


def _is_exact(media_type: str) -> bool:
    """Return True for a single media type without wildcard, which a header can hold."""
    is_printable = media_type.isascii() and media_type.isprintable()
    return is_printable and "*" not in media_type and "," not in media_type


def accept_header(document: Document, operation: Operation) -> str:
    """Return the value of the Accept header: the preferred media types, then any other type.

    If JSON or no type is declared, only JSON is preferred, so that the service chooses JSON.
    Otherwise, the first five declared types are preferred.
    """
    exact = [
        media_type
        for media_type in _media_types_of_success(document, operation)
        if _is_exact(media_type)
    ]
    json_types = [media_type for media_type in exact if kind_of(media_type) == "json"]
    if "application/json" in exact or not exact:
        preferred = ["application/json"]
    elif json_types:
        preferred = json_types[:1]
    else:
        preferred = exact[:5]
    return ", ".join([*preferred, "*/*;q=0.5"])


def _media_types_of_success(document: Document, operation: Operation) -> list[str]:
    """Return the declared media types of an operation's successful responses, without repeats."""
    media_types: dict[str, None] = {}
    for status, response in responses_of(operation.raw).items():
        if status[:1] != "2" and status != "DEFAULT":
            continue
        try:
            content: Any = document.resolve_reference(response).get("content")
        except SpecError:
            continue
        if isinstance(content, dict):
            media_types |= dict.fromkeys(str(k) for k in cast("dict[str, Any]", content))
    return list(media_types)
