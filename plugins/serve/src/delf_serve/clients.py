"""Identification of clients by address."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

_MAX_ADDRESS_CHARACTERS: Final = 100
# The prefix length of the IPv6 network that a provider assigns to one customer.
_IPV6_PREFIX_LENGTH: Final = 64
TEST_CLIENT: Final = "testclient"
"""The host name that Starlette's TestClient sends as the client's address."""


def client_of(host_and_port: Sequence[Any] | None) -> str:
    """Return the text that identifies a client, for example when its wrong API keys are counted.

    An IPv4 address identifies the client. For an IPv6 address, the text is the network of the
    address, such as ``2001:db8::/64``. A client usually has all addresses of such a network, and
    could use a new address for each request.

    Args:
        host_and_port: The client, as ASGI has it; None for a Unix socket.
    """
    host = str(host_and_port[0])[:_MAX_ADDRESS_CHARACTERS] if host_and_port else ""
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


def is_loopback(host: str) -> bool:
    """Return True if an address is a loopback address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def is_address(name: str) -> bool:
    """Return True if a host is an IP address and not a name.

    A request to an address cannot be an attack by DNS rebinding, which needs a name.
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
