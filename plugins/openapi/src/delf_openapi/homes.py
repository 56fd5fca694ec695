"""The servers that may receive a user's keys, independently of the specification."""

from __future__ import annotations

from urllib.parse import urlsplit

from delf.errors import ConnectionConfigurationError
from delf_openapi.settings import OpenAPISettings
from delf_openapi.sources import origin_of


class KeyServers:
    """Decides which servers may receive a connection's keys.

    A specification may change its servers, so it does not decide who gets the user's keys. Keys go
    to ``base_url``, to the specification's own origin, and to the user's ``servers``.

    Args:
        name: The connection's name, for messages.
        settings: The user's addresses.
        spec: The address of the specification; empty for a mapping.

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
        self._origins = frozenset(map(origin_of, addresses))

    def check(self, url: str, where: str) -> None:
        """Check that a key may be sent to an address.

        Args:
            url: The address.
            where: The sender, for messages.

        Raises:
            ConnectionConfigurationError: If the user has not named that server.
        """
        if origin_of(url) in self._origins:
            return
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise ConnectionConfigurationError(
            f"{where}: the specification sends your key to {server}, which you have not accepted",
            hint=f'if that is right, write servers = ["{server}"] in [connections.{self._name}] of '
            f"delf.toml, servers=[…] in a program, or set DELF_{self._name.upper()}_SERVERS",
        )


def _full_address(name: str, server: str) -> str:
    """Return the full address of a server; a bare host means https."""
    address = server if "://" in server else f"https://{server}"
    try:
        parts = urlsplit(address)
        is_good = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        is_good = False
    if not is_good or "*" in address:
        raise ConnectionConfigurationError(
            f"{name}: servers has {server!r}, which is no address of a server",
            hint="write them as https://api.shop.example, one for each host and port",
        )
    return address
