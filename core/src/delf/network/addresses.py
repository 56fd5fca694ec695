"""Classification of IP addresses and hosts as public or not."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_GLOBAL_V6: Final = ipaddress.ip_network("2000::/3")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
# Public addresses at which a cloud serves only its own machines.
_INNER_V4: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
_LAST_32: Final = 0xFFFF_FFFF


def is_public(address: Address) -> bool:
    """Return True if an IP address is public.

    If an IPv6 address embeds an IPv4 address, only the IPv4 address is tested.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and address not in _INNER_V4
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    return address in _GLOBAL_V6 and address.is_global


def is_private(host: str) -> bool:
    """Return whether a host is, or resolves to, a non-public address.

    False for a host that cannot be resolved.
    """
    return any(not is_public(address) for address in _addresses_of(host))


def _addresses_of(host: str) -> set[Address]:
    """Return the IP addresses of a host; none if the host cannot be resolved."""
    with suppress(ValueError):  # the host is a name, not an address
        return {ipaddress.ip_address(host.strip("[]"))}
    try:
        resolved = socket.getaddrinfo(host, None)
        return {ipaddress.ip_address(socket_name[0]) for *_, socket_name in resolved}
    except (OSError, ValueError):
        return set()


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address, such as of 6to4 or NAT64; else None."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & _LAST_32)
    if address.teredo is not None:
        _server, client = address.teredo
        return client
    return address.ipv4_mapped or address.sixtofour
