"""Requests that wait for a decision, answerable from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from delf.errors import DelfError, UnknownRequestError
from delf.machine.forks import reset_in_forks
from delf.protocols.approval import ApprovalRequest, Decider
from delf.records import dataclass
from delf_engine.approvals.decision import Answer, check_fits, checked_decision, copy_of_request
from delf_engine.approvals.talk import Remark

# The number of decided requests whose outcome is named in the error for a late answer.
_MAX_OUTCOMES: Final = 1000


TakeAnswer = Callable[[Answer], bool]
"""Applies the team's rule to an answer; returns True if the answer decides the request.

Returns False for a vote if more votes are needed. Raises ``DelfError`` for an answer that the rule
does not allow.
"""


TakeRemark = Callable[[Remark, Decider, int | None], None]
"""Records a comment or an assignment, its author, and its position in the journal's inbox."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A pending request.

    Args:
        request: The request.
        answer_future: The future of the answer that decides the request.
        take_answer: Called with each answer, see :meth:`PendingRequests.open`.
        take_remark: Records a comment or an assignment.
    """

    request: ApprovalRequest
    answer_future: asyncio.Future[Answer]
    take_answer: TakeAnswer
    take_remark: TakeRemark

    def copy(self) -> ApprovalRequest:
        """Return a copy of the request, so that the program cannot change the call."""
        return copy_of_request(self.request)


class PendingRequests:
    """The pending requests of one agent; each request is decided only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, PendingRequest] = {}
        # How the latest requests ended, such as "approved"; by id, for late answers.
        self._outcomes: dict[str, str] = {}
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Forget the pending requests in a forked process, because the parent waits for them."""
        self._lock = threading.Lock()
        self._waiting = {}

    def open(
        self,
        request: ApprovalRequest,
        take_answer: TakeAnswer,
        take_remark: TakeRemark,
    ) -> asyncio.Future[Answer]:
        """Add a pending request, and return a future of the answer that decides the request.

        Call this method on the event loop that awaits the future.

        Args:
            request: The request.
            take_answer: Called with each answer. Returns True if the answer decides the request,
                and False for a vote if further votes are needed.
            take_remark: Records a comment or an assignment.
        """
        answer_future = asyncio.get_running_loop().create_future()
        pending = PendingRequest(request, answer_future, take_answer, take_remark)
        with self._lock:
            self._waiting[request.request_id] = pending
        return answer_future

    def find(self, request_id: str) -> ApprovalRequest | None:
        """Return a pending request; None if it is not pending."""
        with self._lock:
            pending = self._waiting.get(request_id)
        return None if pending is None else pending.request

    def close(self, request_id: str, outcome: str) -> None:
        """Close a decided request.

        Args:
            request_id: The request.
            outcome: The outcome, such as "approved" or "expired".
        """
        with self._lock:
            self._waiting.pop(request_id, None)
            self._outcomes[request_id] = outcome
            if len(self._outcomes) > _MAX_OUTCOMES:
                oldest_id = next(iter(self._outcomes))
                del self._outcomes[oldest_id]

    def list(self) -> list[ApprovalRequest]:
        """Return all pending requests, oldest first."""
        with self._lock:
            return [pending.copy() for pending in self._waiting.values()]

    def __len__(self) -> int:
        return len(self._waiting)

    def add_remark(
        self, request_id: str, remark: Remark, author: Decider, inbox_position: int | None = None
    ) -> None:
        """Record a comment or an assignment of a pending request, from any thread.

        Args:
            request_id: The request.
            remark: The comment or assignment.
            author: The person who commented or assigned the request.
            inbox_position: The position, in the journal's inbox, of the message with the remark;
                None if the remark was made in this process.

        Raises:
            UnknownRequestError: If the request is not pending.
        """
        with self._lock:
            pending = self._waiting.get(request_id)
            if pending is None:
                raise _not_pending_error(request_id, self._outcomes.get(request_id))
            pending.take_remark(remark, author, inbox_position)

    def settle(self, request_id: str, answer: Answer) -> None:
        """Give a pending request its answer, which a rule, a timeout or the votes decided.

        A request that is already decided stays as it is.
        """
        with self._lock:
            pending = self._waiting.pop(request_id, None)
            if pending is None:
                return
            self._outcomes[request_id] = "answered"
        _set_from_any_thread(pending.answer_future, answer)

    def submit(self, request_id: str, answer: Answer, *, digest: str | None = None) -> None:
        """Submit a person's answer, which arrived through a channel, the program or the inbox.

        May be called from any thread. The request stays pending if the answer is refused, or if the
        answer is a vote and more votes are needed.

        Args:
            request_id: The request.
            answer: The answer to the request.
            digest: The digest of the call that the person saw, for an answer from another process.

        Raises:
            UnknownRequestError: If the request is not pending; the message says how the request
                ended, if this is known.
            DelfError: If the answer is about another call, or of the wrong kind for the request, or
                if the team's rule does not allow the answer.
        """
        with self._lock:
            pending = self._waiting.get(request_id)
            if pending is None:
                raise _not_pending_error(request_id, self._outcomes.get(request_id))
            # Under the lock, so that of two answers at once only one finds the request.
            _check_answer(pending.request, answer, digest)
            if not pending.take_answer(answer):
                return
            # Removed at once, so that a second answer fails.
            del self._waiting[request_id]
            self._outcomes[request_id] = "answered"
        _set_from_any_thread(pending.answer_future, answer)


def _check_answer(request: ApprovalRequest, answer: Answer, digest: str | None) -> None:
    if digest is not None and digest != request.digest:
        raise DelfError(f"the answer to {request.request_id!r} is for another call")
    check_fits(request, checked_decision(answer.decision))


def _set_from_any_thread(answer_future: asyncio.Future[Answer], answer: Answer) -> None:
    """Set the answer on the event loop of the future, unless the wait for it was cancelled."""

    def set_answer() -> None:
        if not answer_future.done():
            answer_future.set_result(answer)

    answer_future.get_loop().call_soon_threadsafe(set_answer)


def _not_pending_error(request_id: str, outcome: str | None) -> UnknownRequestError:
    if outcome is None:
        return UnknownRequestError(f"no request {request_id!r} waits for approval")
    return UnknownRequestError(
        f"the request {request_id!r} is not pending any more: {outcome}",
        hint="an answer that comes late has no effect",
    )
