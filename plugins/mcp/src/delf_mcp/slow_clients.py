"""The HTTP protocol of ``delf mcp serve``, which closes connections without requests."""

from __future__ import annotations

from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS: Final = 10.0
"""The maximum time in seconds from a connection or a response to the whole head of a request."""


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with a timeout for clients without a request in progress.

    uvicorn itself waits without end for the head of a request, and for the rest of a body if the
    response was sent before the body arrived. A stranger without a key could cause many such waits,
    each of which takes a file descriptor.
    """

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for the first request."""
        super().connection_made(transport)
        self._check_later()

    def _check_later(self) -> None:
        """Schedule a check after the timeout, with the present state of the connection."""
        self.loop.call_later(HEAD_SECONDS, self._close_if_idle, self.cycle, self._is_idle)

    @property
    def _is_idle(self) -> bool:
        """True if no request is in progress."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def _close_if_idle(self, earlier_cycle: object, was_idle: bool) -> None:
        """Close the connection if it has had no request in progress since the last check.

        Args:
            earlier_cycle: The newest request at the last check; None before the first request.
            was_idle: Whether no request was in progress at the last check.
        """
        if self.transport.is_closing():
            return
        had_no_request = self.cycle is earlier_cycle  # each request has a cycle of its own
        if was_idle and had_no_request:
            self.transport.close()
        else:
            self._check_later()
