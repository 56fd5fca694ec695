"""An approval channel with scripted decisions."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from delf.protocols.approval import (
    AlreadyDone,
    Answered,
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Expired,
    Rejected,
)
from delf.specs import ApprovalSpec

PlainAnswer = Decision | bool | str | Mapping[str, Any] | None
"""An approval decision in a short form, or the answer to a question.

True approves, False rejects, a text rejects with a reason, a mapping approves with other arguments,
and None passes the request to the next channel. For a question, a text, True or False is the
answer.
"""

Answer = PlainAnswer | Callable[[ApprovalRequest], Any]
"""An answer, or a plain or async function from the request to an answer."""


@dataclass
class ScriptedApprovals:
    """Returns its decisions in order and records the requests.

    Implements :class:`delf.protocols.approval.ApprovalChannel`; can also be used as ``on_confirm``.

    Args:
        decisions: The decisions in order; requests after the last decision get ``default``.
        default: The decision when no others are left; rejects unless given.
    """

    decisions: deque[Answer] = field(default_factory=deque[Answer])
    default: Answer = "the test has no decision for this request"
    requests: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])

    @property
    def spec(self) -> ApprovalSpec:
        """The spec, as a plugin's hook would return it."""
        return ApprovalSpec(
            name="scripted",
            summary="Decisions queued by a test.",
            factory="delf_devkit.testing.approvals:ScriptedApprovals",
        )

    def says(self, *decisions: Answer) -> ScriptedApprovals:
        """Queue decisions.

        Args:
            decisions: True, False, or a reason to reject; None to pass the request to the next
                approval channel; a dict of arguments to replace the call's own; a decision of
                :mod:`delf.protocols.approval`; or a function that returns one of these for a
                request.

        Raises:
            TypeError: For anything else.
        """
        for decision in decisions:
            if not callable(decision):
                _parsed_decision(decision)  # raises TypeError here rather than inside the agent
        self.decisions.extend(decisions)
        return self

    @property
    def actions(self) -> list[str]:
        """The actions of the recorded requests."""
        return [request.action for request in self.requests]

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Return the next decision."""
        return _parsed_decision(await self._next(request))

    async def __call__(self, request: ApprovalRequest) -> Decision | None:
        """Decide a request or answer a question, for use as ``on_confirm`` and ``on_ask``."""
        if request.is_question:
            return await self.answer(request)
        return await self.decide(request)

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Return the next queued decision about a question."""
        decision = await self._next(request)
        if isinstance(decision, (str, bool)):
            return Answered(decision)
        return _parsed_decision(decision)

    async def _next(self, request: ApprovalRequest) -> Any:
        """Record a request, and return what the test has queued for it."""
        self.requests.append(request)
        answer: Any = self.decisions.popleft() if self.decisions else self.default
        if callable(answer):
            answer = answer(request)
        return await answer if inspect.isawaitable(answer) else answer


def _parsed_decision(answer: object) -> Decision | None:
    match answer:
        case None | Approved() | Edited() | Rejected() | AlreadyDone() | Answered() | Expired():
            return answer
        case True:
            return Approved()
        case False:
            return Rejected(reason="rejected by the test")
        case str():
            return Rejected(reason=answer)
        case Mapping():
            return Edited(arguments=cast("Mapping[str, Any]", answer))
        case _:
            raise TypeError(f"{answer!r} is not a decision: True, False, text, a mapping or None")
