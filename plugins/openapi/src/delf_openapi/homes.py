"""The servers that may receive a user's keys, independently of the specification."""

from __future__ import annotations

from urllib.parse import urlsplit

from delf.errors import ConnectionConfigurationError
from delf.network.urls import split_http_url
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import origin_of


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
        addresses = [_full_address(name, server) for server in settings.servers]
        if settings.base_url:
            addresses.append(settings.base_url)
        if urlsplit(spec).scheme.lower() in ("http", "https"):
            addresses.append(spec)
        # The origins to which keys may be sent.
        self._origins = frozenset(map(origin_of, addresses))

    def check(self, url: str, subject: str) -> None:
        """Raise if a key must not be sent to an address.

        Args:
            url: The address.
            subject: The action, or a part of the action, with which the error message begins.

        Raises:
            ConnectionConfigurationError: If the address is not one of the servers.
        """
        if origin_of(url) in self._origins:
            return
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise ConnectionConfigurationError(
            f"{subject}: the specification sends your key to {server}, which you have not accepted",
            hint=f'if that is right, write servers = ["{server}"] in [connections.{self._name}] of '
            f"delf.toml, servers=[…] in a program, or set DELF_{self._name.upper()}_SERVERS",
        )


def _full_address(name: str, server: str) -> str:
    """Return the address of a server with its scheme, which is https for a bare host."""
    address = server if "://" in server else f"https://{server}"
    if split_http_url(address) is None or "*" in address:
        raise ConnectionConfigurationError(
            f"{name}: servers has {server!r}, which is no address of a server",
            hint="write them as https://api.shop.example, one for each host and port",
        )
    return address
