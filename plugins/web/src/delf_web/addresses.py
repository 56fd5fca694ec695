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
"""An async function that returns the IP addresses of a host and port as texts."""


async def system_resolve(host: str, port: int) -> list[str]:
    """Resolve a host name with the operating system's resolver.

    Args:
        host: A host name, or an IP address in any notation.
        port: The port.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in infos))


class Guard:
    """Resolves host names, and refuses hosts with private IP addresses.

    Args:
        private: Host names, IP addresses and networks that are allowed although they are private.
        resolve: Resolves a host name.

    Raises:
        ConnectionConfigurationError: If a network in ``private`` is invalid.
    """

    def __init__(self, private: Sequence[str] = (), resolve: Resolve = system_resolve) -> None:
        self._resolve = resolve
        self._allowed_names: set[str] = set()
        self._allowed_networks: list[Network] = []
        for item in private:
            try:
                self._allowed_networks.append(ipaddress.ip_network(item))
            except ValueError:
                if "/" in item or not item:
                    raise ConnectionConfigurationError(
                        f"private: {item!r} is neither a host nor a network",
                        hint="a name, an address, or a network as 10.1.0.0/16",
                    ) from None
                self._allowed_names.add(item.lower())

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the IP addresses of a host; raise unless all are public or allowed.

        The caller must connect to one of these addresses without resolving the host again.

        Args:
            host: The host as written in the URL.
            port: The port.

        Raises:
            ToolRefusedError: If an address is neither public nor allowed.
            ToolExecutionError: If the host name cannot be resolved.
        """
        try:
            resolved = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolExecutionError(f"the host {host} is not known") from error
        addresses = [ipaddress.ip_address(text) for text in resolved]
        if host.lower() not in self._allowed_names:
            for address in addresses:
                self._refuse_private(host, address)
        if not addresses:
            raise ToolExecutionError(f"the host {host} has no address")
        return [str(address) for address in addresses]

    def _refuse_private(self, host: str, address: Address) -> None:
        """Raise ToolRefusedError for a private address outside of the allowed networks."""
        forms: list[Address] = [address]  # an IPv4 address may also be written as IPv6
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            forms.append(address.ipv4_mapped)
        if any(form in network for form in forms for network in self._allowed_networks):
            return
        if not is_public(address):
            where = host if host == str(address) else f"{host} ({address})"
            raise ToolRefusedError(
                f"{where} is in a private network, which is not allowed",
                hint=f"private = [{host!r}] in the connection's settings allows it",
            )
