"""An approval channel whose decisions a test queues."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from delf.protocols.approval import ApprovalRequest, Approved, Decision, Rejected
from delf.specs import ApprovalSpec

Said = Decision | bool | str | None
"""A decision, True, False, a reason to reject, or None for the next channel."""

Answer = Said | Callable[[ApprovalRequest], Any]
"""What is said, or a plain or async function that is given the request and says it."""


@dataclass
class ScriptedApprovals:
    """Gives its decisions in order and keeps what it was asked.

    Implements :class:`delf.protocols.approval.ApprovalChannel`; works as ``on_confirm``, too.

    Args:
        decisions: What it will say; past the last one it rejects and says so.
        default: What it says past the last decision instead.
    """

    decisions: deque[Answer] = field(default_factory=deque[Answer])
    default: Answer = "the test has no decision for this request"
    requests: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])

    @property
    def spec(self) -> ApprovalSpec:
        """What a plugin's hook would return for it."""
        return ApprovalSpec(
            name="scripted",
            summary="Decisions queued by a test.",
            factory="delf_devkit.testing.approvals:ScriptedApprovals",
        )

    def says(self, *decisions: Answer) -> ScriptedApprovals:
        """Queue decisions: True, False, a reason to reject, None, or a decision."""
        self.decisions.extend(decisions)
        return self

    @property
    def actions(self) -> list[str]:
        """The actions that it was asked about."""
        return [request.action for request in self.requests]

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """The next decision."""
        self.requests.append(request)
        answer: Any = self.decisions.popleft() if self.decisions else self.default
        if callable(answer):
            answer = answer(request)
            answer = await answer if inspect.isawaitable(answer) else answer
        if answer is True:
            return Approved()
        if answer is False:
            return Rejected(reason="rejected by the test")
        return Rejected(reason=answer) if isinstance(answer, str) else answer

    async def __call__(self, request: ApprovalRequest) -> Decision | None:
        """The same as ``on_confirm``."""
        return await self.decide(request)
