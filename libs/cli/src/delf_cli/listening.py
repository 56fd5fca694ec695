"""Listening sockets of commands that serve HTTP."""

from __future__ import annotations

import socket
from typing import Final

from delf.errors import ConfigurationError

_BACKLOG: Final = 2048


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket.

    Raises:
        ConfigurationError: If the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only for a socket with the protocol IPPROTO_TCP. Otherwise, small
    # answers wait 40 ms (Nagle's algorithm with delayed acknowledgements).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:  # the second for a host such as "é..b"
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "the host is not valid"
        raise ConfigurationError(
            f"cannot listen on {host}, port {port}: {reason}", hint="another port?"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    name, port = listener.getsockname()[:2]
    host = "localhost" if name in ("0.0.0.0", "::") else str(name)
    if ":" in host:
        return f"http://[{host}]:{port}"
    return f"http://{host}:{port}"
