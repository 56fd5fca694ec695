"""Listening sockets of commands that serve HTTP."""

from __future__ import annotations

import errno
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Final

from delf.errors import ConfigurationError

_BACKLOG: Final = 2048


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket.

    Raises:
        ConfigurationError: If the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only for a socket with the protocol IPPROTO_TCP. Without this option,
    # small answers wait 40 ms (Nagle's algorithm with delayed acknowledgements).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, TypeError) as error:  # TypeError for a host such as "é..b"
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else "the host is not valid"
        raise ConfigurationError(
            f"cannot listen on {host}, port {port}: {reason}", hint="another port?"
        ) from None
    return listener


@contextmanager
def listening(host: str, port: int) -> Generator[list[socket.socket]]:
    """Bind the listening sockets of a host, and close them at the end of the block.

    For ``localhost``, bind a socket for IPv4 and another for IPv6, because a client may try only
    one of the two addresses.

    Raises:
        ConfigurationError: If an address cannot be bound.
    """
    with ExitStack() as stack:
        listeners = [stack.enter_context(bind(host, port))]
        if host == "localhost":
            try:
                bound_port = listeners[0].getsockname()[1]
                listeners.append(stack.enter_context(bind("::1", bound_port)))
            except ConfigurationError as error:
                # Any other error means that the machine has no IPv6: IPv4 alone is enough then.
                if getattr(error.__context__, "errno", None) == errno.EADDRINUSE:
                    raise
        yield listeners


def address_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    name, port = listener.getsockname()[:2]
    host = "localhost" if name in ("0.0.0.0", "::") else str(name)
    if ":" in host:
        return f"http://[{host}]:{port}"
    return f"http://{host}:{port}"
