"""Identification of clients by address."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from typing import Any, Final

_LONGEST: Final = 100
_NETWORK: Final = 64
"""The prefix length of an IPv6 network that a provider assigns to one customer."""
TEST_CLIENT: Final = "testclient"
"""The client host in Starlette's TestClient, which is not an IP address."""


def client_of(address: Sequence[Any] | None) -> str:
    """Return the client's address or, for IPv6, its network.

    Args:
        address: Host and port; None for a Unix socket.
    """
    return _client_of(str(address[0])[:_LONGEST] if address else "")


@functools.lru_cache(1000)
def _client_of(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ascii(host)[1:-1][:_LONGEST]  # a proxy may forward any text
    if address.version == 6:
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _NETWORK), strict=False))
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
    """Return True if a host is an IP address, which DNS rebinding cannot change."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
