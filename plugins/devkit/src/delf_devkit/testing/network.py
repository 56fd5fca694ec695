"""Refuses connections that leave this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import pytest


class NetworkRefusedError(AssertionError):
    """A test that must not use the network did."""


class NetworkWatch:
    """Sees where connections go; what is not this machine is refused and remembered.

    ``refused`` holds the places. A test that provokes a refusal clears it.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch until the test ends.

        Args:
            monkeypatch: Undoes it.
        """
        for name in ("connect", "connect_ex"):
            monkeypatch.setattr(socket.socket, name, self._watched(getattr(socket.socket, name)))
        monkeypatch.setattr(socket.socket, "sendto", self._watched_sendto(socket.socket.sendto))
        monkeypatch.setattr(socket, "getaddrinfo", self._watched_lookup(socket.getaddrinfo))

    def check(self, host: object) -> None:
        """Refuse a host that is not this machine.

        Raises:
            NetworkRefusedError: Naming it.
        """
        if not is_local(host):
            self.refused.append(str(host))
            raise NetworkRefusedError(f"this test may not use the network, and asked for {host}")

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def connect(own: socket.socket, address: Any) -> Any:
            if own.family in (socket.AF_INET, socket.AF_INET6):
                self.check(address[0])
            return real(own, address)

        return connect

    def _watched_sendto(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def sendto(own: socket.socket, data: Any, *rest: Any) -> Any:
            if own.family in (socket.AF_INET, socket.AF_INET6):
                self.check(rest[-1][0])
            return real(own, data, *rest)

        return sendto

    def _watched_lookup(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
            self.check(host)
            return real(host, *rest, **options)

        return getaddrinfo


def is_local(host: object) -> bool:
    """Tell whether a host, by name or address, is this machine."""
    if host is None:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if text in ("", "localhost") or text.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text == socket.gethostname()
    return address.is_loopback or address.is_unspecified
