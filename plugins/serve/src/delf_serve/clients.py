"""Identification of clients by address."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from typing import Any, Final

_MAX_ADDRESS_CHARACTERS: Final = 100
# The prefix length of the IPv6 network that a provider assigns to one customer.
_IPV6_PREFIX_LENGTH: Final = 64
TEST_CLIENT: Final = "testclient"
"""The host name that Starlette's TestClient sends as the client's address."""


def client_of(address: Sequence[Any] | None) -> str:
    """Return the client's IPv4 address, or the IPv6 network that contains its address.

    Args:
        address: Host and port; None for a Unix socket.
    """
    return _client_of(str(address[0])[:_MAX_ADDRESS_CHARACTERS] if address else "")


@functools.lru_cache(1000)
def _client_of(host: str) -> str:
    """Return the text that identifies a client, for example when its wrong API keys are counted.

    An IPv4 address identifies the client. For an IPv6 address, the text is the network of the
    address, such as ``2001:db8::/64``: a client usually has all addresses of such a network, and
    could use another one for each request.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        printable = ascii(host)[1:-1]  # without the quotes; a proxy may forward any text
        return printable[:_MAX_ADDRESS_CHARACTERS]
    if address.version == 6:
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_PREFIX_LENGTH), strict=False))
    return host


@functools.lru_cache(1000)
def is_loopback(host: str) -> bool:
    """Return True if an address is a loopback address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


@functools.lru_cache(1000)
def is_address(name: str) -> bool:
    """Return True if a host is an IP address and not a name. DNS rebinding needs a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
