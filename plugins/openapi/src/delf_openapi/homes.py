"""The servers that may receive a user's keys, independently of the specification."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from delf.errors import ConnectionConfigurationError
from delf.network.urls import split_http_url
from delf.settings import reveal_secrets
from delf_openapi.document import Document
from delf_openapi.operations import Endpoint, locate_operation
from delf_openapi.security import Credentials, credentials_for
from delf_openapi.servers import server_of
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import is_web_address, origin_of


class UnacceptedServerError(ConnectionConfigurationError):
    """A specification would send a key to a server that the user has not accepted."""


class KeyServers:
    """The servers that may receive a connection's keys.

    The specification's list of servers does not count, because its author may change the list.
    Keys go to ``base_url``, to the origin of the specification, and to the user's ``servers``.

    Args:
        name: The connection's name, for messages.
        settings: The settings with ``base_url`` and ``servers``.
        spec: The address of the specification; empty if the specification is a mapping.

    Raises:
        ConnectionConfigurationError: If an entry of ``servers`` is not a server's address.
    """

    def __init__(self, name: str, settings: OpenAPISettings, spec: str) -> None:
        self._name = name
        self._settings = settings
        addresses = [_full_address(name, server) for server in settings.servers]
        if settings.base_url:
            addresses.append(settings.base_url)
        if is_web_address(spec):
            addresses.append(spec)
        # The origins to which keys may be sent.
        self._origins = frozenset(map(origin_of, addresses))

    def check_request(self, url: str, credentials: Credentials, subject: str) -> None:
        """Raise if a request would send a key to a server that the user has not accepted.

        Args:
            url: The address of the request.
            credentials: The credentials of the request.
            subject: The action, or the connection, with which the error message begins.

        Raises:
            UnacceptedServerError: If the server is not accepted.
        """
        settings = self._settings
        has_credentials = (
            credentials.headers or credentials.cookies or credentials.query or credentials.token_url
        )
        may_send_other_keys = settings.headers or settings.params or settings.path_params
        if has_credentials or may_send_other_keys:
            self._check(url, subject)
        # A token URL in the settings is the user's own; any other is from the specification.
        if credentials.token_url and settings.token_url is None:
            self._check(credentials.token_url, f"{subject}: its OAuth2 token")

    def _check(self, url: str, subject: str) -> None:
        """Raise if a key must not be sent to an address.

        Args:
            url: The address.
            subject: The action, or a part of the action, with which the error message begins.

        Raises:
            UnacceptedServerError: If the address is not one of the servers.
        """
        if origin_of(url) in self._origins:
            return
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise UnacceptedServerError(
            f"{subject}: the specification sends your key to {server}, which you have not accepted",
            hint=f'if that is right, write servers = ["{server}"] in [connections.{self._name}] of '
            f"delf.toml, servers=[…] in a program, or set DELF_{self._name.upper()}_SERVERS",
        )


def refused_actions(
    name: str, document: Document, endpoints: Iterable[Endpoint], settings: OpenAPISettings
) -> dict[str, ConnectionConfigurationError]:
    """Return a mapping from action name to error, for actions refused because of their servers.

    An action is refused if its server is unknown, or if the server may not receive the action's
    key. Each call of the action then raises the error, and sends nothing.

    Args:
        name: The connection's name.
        document: The specification.
        endpoints: The operations that are actions.
        settings: The settings of the connection.
    """
    key_servers = KeyServers(name, settings, document.trees.uri)
    path_params = reveal_secrets(settings.path_params)
    refused: dict[str, ConnectionConfigurationError] = {}
    for endpoint in endpoints:
        operation = locate_operation(document, endpoint)
        try:
            url = server_of(document, operation, settings.base_url, path_params)
            credentials = credentials_for(document, operation, settings)
            key_servers.check_request(url, credentials, name)
        except ConnectionConfigurationError as error:
            refused[endpoint.name] = error
    return refused


def _full_address(name: str, server: str) -> str:
    """Return the address of a server with a scheme: https if the server has none.

    Args:
        name: The connection's name, for messages.
        server: An entry of the setting ``servers``.
    """
    address = server if "://" in server else f"https://{server}"
    if split_http_url(address) is None or "*" in address:
        raise ConnectionConfigurationError(
            f"{name}: servers has {server!r}, which is no address of a server",
            hint="write them as https://api.shop.example, one for each host and port",
        )
    return address
