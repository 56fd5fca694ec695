"""HTTP proxies from the environment, read in the same way for all HTTP clients.

``HTTP_PROXY``, ``HTTPS_PROXY`` and ``ALL_PROXY`` name proxies, in capitals or not. ``NO_PROXY``
lists hosts without a proxy, as curl reads the variable: names (with their subdomains), addresses,
and networks such as ``10.0.0.0/8``, each with a port or without; ``*`` for all. This machine is
always reached without a proxy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from delf.errors import ConfigurationError, OptionalDependencyError
from delf.network.urls import split_url, without_login
from delf.records import dataclass
from delf.values.numbers import parse_count

_PORTS: Final = {"http": 80, "https": 443}
_HTTP_SCHEMES: Final = {"ws": "http", "wss": "https"}
_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_EXAMPLE: Final = "an address is as http://host:3128, or socks5://host:1080 with httpx[socks]"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Args:
        variable: The environment variable with the proxy's address.
        url: The address, with credentials if needed.
    """

    variable: str
    url: str

    def __str__(self) -> str:
        """Return the proxy's environment variable and the proxy's address without credentials."""
        return f"the proxy of {self.variable} ({without_login(self.url).rstrip('/')})"

    def checked_address(
        self, socks_module: str | None = "socksio", package: str = "httpx[socks]"
    ) -> str:
        """Return the proxy's address after checking that the client supports it.

        Args:
            socks_module: The module that a client needs for SOCKS; None for a client without SOCKS.
            package: The package with that module.

        Raises:
            ConfigurationError: If the address is not that of a proxy, or the client does not
                support the kind of proxy.
            OptionalDependencyError: If a SOCKS proxy needs a package that is not installed.
        """
        url = self.url if "://" in self.url else f"http://{self.url}"
        scheme = _scheme_of_proxy(url)
        if scheme is None:
            raise ConfigurationError(f"{self} is not a proxy's address", hint=_EXAMPLE)
        if not scheme.startswith("socks"):
            return url
        if socks_module is None:
            raise ConfigurationError(
                f"{self} is a SOCKS proxy, which is not supported here",
                hint="use a proxy of http://",
            )
        if find_spec(socks_module) is None:
            raise OptionalDependencyError(
                f"{self} is SOCKS, and {socks_module} is missing",
                package=package,
                hint=f"pip install '{package}', or use a proxy of http://",
            )
        return url


class Proxies:
    """The proxies of the environment at the time of construction.

    Args:
        proxy_urls: URLs by scheme, as from :func:`urllib.request.getproxies`; read from the
            environment or the system when None.
    """

    def __init__(self, proxy_urls: Mapping[str, str] | None = None) -> None:
        if proxy_urls is None:
            proxy_urls = getproxies()
        # The entry "no", from the variable NO_PROXY, lists the hosts without a proxy.
        self._direct_entries = re.findall(r"[^,\s]+", proxy_urls.get("no", "").lower())
        self._proxy_by_scheme: dict[str, Proxy] = {}
        for scheme in _PORTS:
            # ALL_PROXY comes first, so that the variable of the scheme overrides it.
            for name in ("all", scheme):
                url = proxy_urls.get(name)
                if url:
                    self._proxy_by_scheme[scheme] = Proxy(f"{name.upper()}_PROXY", url)

    def __bool__(self) -> bool:
        """Return True if any proxy is configured."""
        return bool(self._proxy_by_scheme)

    def for_url(self, url: str) -> Proxy | None:
        """Return the proxy for a URL; None for a direct connection."""
        if not self._proxy_by_scheme:
            return None
        parts = urlsplit(url)
        url_scheme = parts.scheme.lower()
        # A WebSocket URL uses the proxy of the corresponding HTTP scheme.
        scheme = _HTTP_SCHEMES.get(url_scheme, url_scheme)
        proxy = self._proxy_by_scheme.get(scheme)
        if proxy is None:
            return None
        if not parts.hostname:  # the HTTP client refuses such a URL
            return proxy
        host = parts.hostname.lower().rstrip(".")
        port = parts.port or _PORTS[scheme]
        address = _address(host)
        # A proxy would take these names and addresses for its own machine.
        is_loopback = address is not None and address.is_loopback
        if is_loopback or host == "localhost" or host.endswith(".localhost"):
            return None
        if any(_is_exempt(entry, host, address, port) for entry in self._direct_entries):
            return None
        return proxy


def proxy_for(url: str) -> Proxy | None:
    """Return the environment's proxy for a URL; None for a direct connection."""
    return Proxies().for_url(url)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address in a text such as ``10.0.0.1`` or ``[::1]``; None for a host name."""
    without_interface = text.strip("[]").partition("%")[0]  # fe80::1 for fe80::1%eth0
    try:
        address = ipaddress.ip_address(without_interface)
    except ValueError:
        return None
    if address.version == 4:
        return address
    return address.ipv4_mapped or address  # ::ffff:10.0.0.1 reaches the same host as 10.0.0.1


def _scheme_of_proxy(url: str) -> str | None:
    """Return the scheme of a proxy's URL; None if the URL is not valid for a proxy."""
    parts = split_url(url)
    if parts is None or not parts.hostname or parts.port == 0:
        return None
    return parts.scheme if parts.scheme in _SCHEMES else None


def _is_exempt(entry: str, host: str, address: Any, port: int) -> bool:
    """Return True if an entry of ``NO_PROXY`` exempts a host and port from the proxy."""
    if entry == "*":
        return True
    # Several colons without brackets mean an IPv6 address; its last part is not a port.
    is_bare_ipv6 = entry.count(":") > 1 and not entry.startswith("[")
    if "/" in entry or is_bare_ipv6:
        return _is_within(entry, address)
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    entry_address = _address(name)
    if entry_address is not None:
        return entry_address == address
    domain = name.removeprefix("*").strip(".")
    if not domain:
        return False
    return host == domain or host.endswith(f".{domain}")


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split an entry such as ``example.org:8080`` into its name and its port, if it has a port."""
    name, colon, port_text = entry.rpartition(":")
    port = parse_count(port_text)
    if not colon or port is None:
        return entry, None
    return name, port


def _is_within(entry: str, address: Any) -> bool:
    """Return True if an address is in the network of a ``no_proxy`` entry.

    Args:
        entry: The network, such as ``10.0.0.0/8``, or a single address.
        address: The IP address of the host; None if the host has a name.
    """
    entry = entry.replace("[", "").replace("]", "")  # as in [2001:db8::]/32
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return address is not None and address.version == network.version and address in network


class _TransportsByProxy:
    """Transports of an HTTP library, created on first use: one per proxy and a direct one."""

    def __init__(self, library: Any, class_name: str, options: Mapping[str, Any]) -> None:
        self._library = library
        self._transport_class = getattr(library, class_name)
        self._options = dict(options)
        self._proxies = Proxies()
        self._transports: dict[Proxy | None, Any] = {}

    def _route(self, request: Any) -> tuple[Any, Proxy | None]:
        proxy = self._proxies.for_url(str(request.url))
        if proxy not in self._transports:
            proxy_option = {} if proxy is None else {"proxy": proxy.checked_address()}
            self._transports[proxy] = self._transport_class(**self._options, **proxy_option)
        return self._transports[proxy], proxy


def _with_proxy_name(error: Any, proxy: Proxy, request: Any) -> Exception:
    """Copy a transport error with the name of the proxy added to its message."""
    return cast("Exception", type(error)(f"{error} (by {proxy})", request=request))


class _AsyncTransport(_TransportsByProxy):
    async def handle_async_request(self, request: Any) -> Any:
        transport, proxy = self._route(request)
        library = self._library
        try:
            return await transport.handle_async_request(request)
        except (library.ConnectError, library.ConnectTimeout, library.ProxyError) as error:
            if proxy is None:
                raise
            raise _with_proxy_name(error, proxy, request) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


class _Transport(_TransportsByProxy):
    def handle_request(self, request: Any) -> Any:
        transport, proxy = self._route(request)
        library = self._library
        try:
            return transport.handle_request(request)
        except (library.ConnectError, library.ConnectTimeout, library.ProxyError) as error:
            if proxy is None:
                raise
            raise _with_proxy_name(error, proxy, request) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()


def async_transport(library: Any, **options: Any) -> Any:
    """Make a transport for ``AsyncClient`` that chooses the proxy for each request.

    Args:
        library: httpx, or a module with the same classes.
        options: Options of the library's ``AsyncHTTPTransport``, such as ``verify`` and ``limits``.
    """
    return _AsyncTransport(library, "AsyncHTTPTransport", options)


def transport(library: Any, **options: Any) -> Any:
    """Make a transport for ``Client``; the sync version of :func:`async_transport`."""
    return _Transport(library, "HTTPTransport", options)
