"""Requests that wait for a decision, answerable from any thread."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from delf.errors import UnknownRequestError
from delf.protocols.approval import ApprovalRequest, Decision

_KEPT = 1000
"""How many settled requests are remembered, to say what became of them."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request with the place where its decision is awaited."""

    request: ApprovalRequest
    decision: asyncio.Future[Decision]
    since: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """The request as data, for programs that show it."""
        request = self.request
        return {
            "request_id": request.request_id,
            "task_id": request.task_id,
            "task": request.task,
            "action": request.action,
            "effect": request.effect,
            "arguments": dict(request.arguments),
            "description": request.description,
            "message": request.message,
            "unsettled": request.unsettled,
            "since": self.since,
        }


class PendingRequests:
    """The requests of one agent that wait. Each is settled once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, PendingRequest] = {}
        self._settled: dict[str, str] = {}

    def open(self, request: ApprovalRequest) -> asyncio.Future[Decision]:
        """Let a request wait; to be called on the event loop that awaits the decision."""
        pending = PendingRequest(request, asyncio.get_running_loop().create_future())
        with self._lock:
            self._waiting[request.request_id] = pending
        return pending.decision

    def close(self, request_id: str, how: str) -> None:
        """A request is settled, by whatever way.

        Args:
            request_id: The request.
            how: What became of it, as ``approved`` or ``expired``.
        """
        with self._lock:
            self._waiting.pop(request_id, None)
            self._settled[request_id] = how
            if len(self._settled) > _KEPT:
                del self._settled[next(iter(self._settled))]

    def list(self) -> list[dict[str, Any]]:
        """Every request that waits, oldest first."""
        with self._lock:
            return [pending.to_dict() for pending in self._waiting.values()]

    def answer(self, request_id: str, decision: Decision) -> None:
        """Settle a request, from any thread.

        Raises:
            UnknownRequestError: When it does not wait (any more), and what became of it.
        """
        with self._lock:
            pending = self._waiting.pop(request_id, None)
            if pending is None:
                raise _not_waiting(request_id, self._settled.get(request_id))
            self._settled[request_id] = "answered"
        pending.decision.get_loop().call_soon_threadsafe(_settle, pending.decision, decision)


def _settle(future: asyncio.Future[Decision], decision: Decision) -> None:
    if not future.done():
        future.set_result(decision)


def _not_waiting(request_id: str, became: str | None) -> UnknownRequestError:
    if became is None:
        return UnknownRequestError(f"no request {request_id!r} waits for approval")
    return UnknownRequestError(
        f"the request {request_id!r} does not wait any more: it was {became}",
        hint="an answer that comes late has no effect",
    )
