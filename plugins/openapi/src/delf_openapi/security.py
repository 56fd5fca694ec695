"""The credentials of a request, by the security schemes of the specification."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urljoin

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.operations import Operation
from delf_openapi.settings import OpenAPISettings

_KEY_NAMES: Final = frozenset(
    ("token", "access_token", "auth_token", "api_token", "api_key", "apikey", "authorization")
)
_KEY_DOC: Final = re.compile(
    r"\W*(?:(?:your|the|an?) )?(?:(?:authentication|authorization|bearer|auth) token|api.?key)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Credentials:
    """The credentials of a request; its repr is empty.

    Args:
        headers: The headers by name.
        query: The query parameters by name.
        cookies: The cookies by name.
        token_url: The URL of the OAuth2 token that the request needs; None without OAuth2.
        unmet_schemes: The names of security schemes without configured credentials.
    """

    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    query: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    cookies: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    token_url: str | None = None
    unmet_schemes: tuple[str, ...] = ()


def credentials_for(
    document: Document, operation: Operation, settings: OpenAPISettings
) -> Credentials:
    """Return the credentials for an operation.

    An operation has alternative sets of security schemes. The first set whose schemes all have
    configured credentials is used. If there is none, the result names the unmet schemes, unless the
    operation also allows calls without credentials. If the specification declares no sets for the
    operation, a configured token, password or OAuth2 client is used.
    """
    schemes = _schemes(document)
    alternatives: Any = operation.raw.get("security", document.at("#").get("security"))
    if not isinstance(alternatives, list):
        # Without declared schemes, send the configured credentials.
        return _credentials_without_schemes(settings)
    unmet_schemes: list[str] = []
    is_optional = False
    for alternative in cast("list[Any]", alternatives):
        if not isinstance(alternative, dict):
            continue
        names = list(cast("dict[str, Any]", alternative))
        if not names:
            is_optional = True  # an empty set allows calls without credentials
            continue
        credentials = Credentials()
        missing: list[str] = []
        for name in names:
            is_configured = _add_scheme(document, name, schemes.get(name), settings, credentials)
            if not is_configured:
                missing.append(name)
        if not missing:
            return credentials
        unmet_schemes += missing
    if is_optional:
        return Credentials()
    return Credentials(unmet_schemes=tuple(dict.fromkeys(unmet_schemes)))


def _schemes(document: Document) -> dict[str, Any]:
    components: Any = document.at("#").get("components")
    if not isinstance(components, dict):
        return {}
    schemes: Any = cast("dict[str, Any]", components).get("securitySchemes")
    return cast("dict[str, Any]", schemes) if isinstance(schemes, dict) else {}


def secured_names(document: Document, settings: OpenAPISettings) -> set[tuple[str, str]]:
    """Return the location and lower-case name of each parameter with a configured API key."""
    names: set[tuple[str, str]] = set()
    for name, raw in _schemes(document).items():
        try:
            scheme = document.resolve_reference(raw)
        except SpecError:
            continue
        if scheme.get("type") == "apiKey" and _credential(name, settings.api_key, settings):
            names.add((str(scheme.get("in")), str(scheme.get("name")).lower()))
    return names


def has_credentials(settings: OpenAPISettings) -> bool:
    """Return whether the settings have a key, token or password."""
    secrets = (settings.token, settings.api_key, settings.password, settings.client_secret)
    return bool(settings.credentials) or any(value is not None for value in secrets)


def asks_for_key(name: str, doc: str) -> bool:
    """Return whether a parameter expects the caller's API key or token.

    Args:
        name: The parameter's name.
        doc: The parameter's description.
    """
    return name.lower() in _KEY_NAMES and _KEY_DOC.match(doc) is not None


def _credentials_without_schemes(settings: OpenAPISettings) -> Credentials:
    credentials = Credentials()
    if settings.token:
        credentials.headers["Authorization"] = f"Bearer {settings.token.get_secret_value()}"
    elif settings.username is not None and settings.password:
        credentials.headers["Authorization"] = _basic(settings)
    elif settings.token_url and settings.client_id:
        credentials.token_url = settings.token_url
    return credentials


def _credential(name: str, fallback: Any, settings: OpenAPISettings) -> str | None:
    """Return the configured credential of a security scheme, or else ``fallback`` as a text."""
    credential = settings.credentials.get(name, fallback)
    return credential.get_secret_value() if credential is not None else None


def _basic(settings: OpenAPISettings, user_and_password: str | None = None) -> str:
    if user_and_password is None:
        password = settings.password.get_secret_value() if settings.password else ""
        user_and_password = f"{settings.username or ''}:{password}"
    return f"Basic {base64.b64encode(user_and_password.encode()).decode('ascii')}"


def _add_scheme(
    document: Document, name: str, raw: Any, settings: OpenAPISettings, credentials: Credentials
) -> bool:
    """Add the credentials of one security scheme; return False if they are not configured."""
    try:
        scheme: Mapping[str, Any] = document.resolve_reference(raw)
    except SpecError:
        return False
    kind = scheme.get("type")
    if kind == "apiKey":
        return _add_api_key(name, scheme, settings, credentials)
    if kind == "http":
        return _add_http(name, str(scheme.get("scheme", "")).lower(), settings, credentials)
    if kind in ("oauth2", "openIdConnect"):
        value = _credential(name, settings.token, settings)
        if value is not None:
            credentials.headers["Authorization"] = f"Bearer {value}"
            return True
        url = settings.token_url or _token_url(document, scheme)
        if url and settings.client_id and settings.client_secret:
            credentials.token_url = url
            return True
        return False
    # mutualTLS needs no credentials in the request: the connection has a client certificate.
    return kind == "mutualTLS"


def _add_api_key(
    name: str, scheme: Mapping[str, Any], settings: OpenAPISettings, credentials: Credentials
) -> bool:
    """Add an API key to the credentials; return False if the settings have no key."""
    value = _credential(name, settings.api_key, settings)
    key = str(scheme.get("name", ""))
    if value is None:
        # Some specifications declare a bearer token as an apiKey in the Authorization header.
        if key.lower() != "authorization" or not settings.token:
            return False
        value = f"Bearer {settings.token.get_secret_value()}"
    targets = {
        "header": credentials.headers,
        "query": credentials.query,
        "cookie": credentials.cookies,
    }
    targets.get(str(scheme.get("in")), credentials.headers)[key] = value
    return True


def _add_http(name: str, scheme: str, settings: OpenAPISettings, credentials: Credentials) -> bool:
    """Add the Authorization header of an HTTP scheme; return False if no credential is configured.

    Args:
        name: The name of the security scheme, which ``settings.credentials`` may contain.
        scheme: The kind of HTTP scheme, such as ``basic`` or ``bearer``.
        settings: The settings.
        credentials: The credentials that get the header.
    """
    if scheme == "basic":
        user_and_password = _credential(name, fallback=None, settings=settings)
        if user_and_password is None and settings.username is None:
            return False
        credentials.headers["Authorization"] = _basic(settings, user_and_password)
        return True
    value = _credential(name, settings.token, settings)
    if value is None:
        return False
    scheme_name = "Bearer" if scheme == "bearer" else scheme.capitalize()
    credentials.headers["Authorization"] = f"{scheme_name} {value}"
    return True


def _token_url(document: Document, scheme: Mapping[str, Any]) -> str | None:
    flows: Any = scheme.get("flows")
    if not isinstance(flows, dict):
        return None
    flow = cast("dict[str, Any]", flows).get("clientCredentials")
    if not isinstance(flow, dict):
        return None
    url = cast("dict[str, Any]", flow).get("tokenUrl")
    return urljoin(document.trees.uri, url) if isinstance(url, str) and url else None
