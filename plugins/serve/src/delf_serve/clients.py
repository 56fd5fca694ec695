"""Clients by their addresses."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence
from typing import Any, Final

_LONGEST: Final = 100
_NETWORK: Final = 64
"""Bits of an IPv6 address that a provider's customer cannot choose."""
TEST_CLIENT: Final = "testclient"
"""The client host of Starlette's TestClient: not an address, so no network has it."""


def client_of(address: Sequence[Any] | None) -> str:
    """Return the client at an address: the address, or for IPv6 the customer's network.

    Args:
        address: Host and port; None for a socket of this machine.
    """
    host = str(address[0]) if address else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return ascii(host)[1:-1][:_LONGEST]  # it may be anything that a proxy passed on
    if found.version == 6:
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _NETWORK), strict=False))
    return host


@functools.lru_cache(1000)
def is_loopback(host: str) -> bool:
    """Return whether an address is this machine's own."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    if found.version == 6 and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback


@functools.lru_cache(1000)
def is_address(name: str) -> bool:
    """Return whether a name is an IP address, which cannot be rebound by DNS."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
