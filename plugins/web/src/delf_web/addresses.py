"""Restriction to public internet addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from delf.errors import ConnectionConfigurationError, ToolExecutionError, ToolRefusedError
from delf.network.addresses import Address, is_public

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""A function that returns a host's addresses as text."""


async def system_resolve(host: str, port: int) -> list[str]:
    """Resolve a name with this machine's resolver.

    Args:
        host: A name, or an address in any notation that the system reads.
        port: The port.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in infos))


class Guard:
    """Resolves hosts, and refuses private addresses.

    Args:
        private: Private hosts, addresses and networks that are allowed.
        resolve: Resolves a host name.

    Raises:
        ConnectionConfigurationError: For an invalid network.
    """

    def __init__(self, private: Sequence[str] = (), resolve: Resolve = system_resolve) -> None:
        self._resolve = resolve
        self._names: set[str] = set()
        self._networks: list[Network] = []
        for item in private:
            try:
                self._networks.append(ipaddress.ip_network(item))
            except ValueError:
                if "/" in item or not item:
                    raise ConnectionConfigurationError(
                        f"private: {item!r} is neither a host nor a network",
                        hint="a name, an address, or a network as 10.1.0.0/16",
                    ) from None
                self._names.add(item.lower())

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host; raise unless all its addresses are public.

        The caller must connect to one of them without resolving again.

        Args:
            host: The host as written in the URL.
            port: The port.

        Raises:
            ToolRefusedError: If any address is not public.
            ToolExecutionError: If the name is unknown.
        """
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolExecutionError(f"the host {host} is not known") from error
        addresses = [ipaddress.ip_address(text) for text in found]
        if host.lower() not in self._names:
            for address in addresses:
                self._check(host, address)
        if not addresses:
            raise ToolExecutionError(f"the host {host} has no address")
        return [str(address) for address in addresses]

    def _check(self, host: str, address: Address) -> None:
        """Refuse a private address outside of the allowed networks."""
        if any(address in network for network in self._networks):
            return
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        if mapped is not None and any(mapped in network for network in self._networks):
            return
        if not is_public(address):
            where = host if host == str(address) else f"{host} ({address})"
            raise ToolRefusedError(
                f"{where} is of a private network, which is not allowed",
                hint=f"private = [{host!r}] in the connection's settings allows it",
            )
