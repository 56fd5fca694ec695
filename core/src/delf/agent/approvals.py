"""Decisions that a program takes for the people it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delf.engine.approvals.decision import Answer
from delf.engine.approvals.pending import PendingRequests
from delf.protocols.approval import Approved, Edited, Rejected, Remember, Settled


class AgentApprovals:
    """The part of an agent that shows and settles the calls that wait; from any thread."""

    _pending: PendingRequests

    def get_pending_approvals(self) -> list[dict[str, Any]]:
        """Every call that waits for a decision, oldest first; from any thread."""
        return self._pending.list()

    def approve(
        self, request_id: str, response: str = "Approved", *, remember: Remember = "no"
    ) -> bool:
        """Let a call be made, or a script run.

        Args:
            request_id: From :meth:`get_pending_approvals`.
            response: A note for the journal.
            remember: Let the same call pass without asking, for this ``task`` or ``session``.

        Raises:
            UnknownRequestError: When the request does not wait (any more).
        """
        self._pending.answer(request_id, Answer(Approved(remember=remember, reason=response)))
        return True

    def reject(self, request_id: str, reason: str = "Rejected") -> bool:
        """Refuse a call; the script, and the model if it goes on, read the reason.

        Raises:
            UnknownRequestError: When the request does not wait (any more).
        """
        self._pending.answer(request_id, Answer(Rejected(reason=reason)))
        return True

    def edit(self, request_id: str, arguments: Mapping[str, Any]) -> bool:
        """Let a call be made with other arguments, which are checked again.

        Raises:
            UnknownRequestError: When the request does not wait (any more).
            DelfError: When the request is for a script, or for a call that was begun: neither can
                be edited. It goes on waiting.
        """
        self._pending.answer(request_id, Answer(Edited(arguments=dict(arguments))))
        return True

    def settle(self, request_id: str, result: Any = None, note: str | None = None) -> bool:
        """Say that an interrupted call did happen, so that it is not made again.

        Args:
            request_id: A request that is ``unsettled``, of a resumed task.
            result: What the call returned, which the script gets.
            note: For the journal.

        Raises:
            UnknownRequestError: When the request does not wait (any more).
            DelfError: When it is for a new call, which cannot have been made before. It goes on
                waiting.
        """
        self._pending.answer(request_id, Answer(Settled(result=result, reason=note)))
        return True
