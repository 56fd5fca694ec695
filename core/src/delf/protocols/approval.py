"""An approval channel: someone who may say yes or no to a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, Self, runtime_checkable

from delf.events import ApprovalDecided, ApprovalRequested, Covers, Remember
from delf.records import dataclass
from delf.types import Effect

Fit = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for a decision; bound to its action and arguments by ``digest``.

    With ``confirm_mode="plan"`` it may be a whole script: then ``code`` is set, ``action`` is
    ``script``, and ``digest`` is over the code. A script cannot be edited.

    Args:
        request_id: Names the request; used once.
        task_id: The task that makes the call.
        task: The task in plain words.
        action: ``connection.method``.
        permission: The unit of ``allow`` and ``confirm`` that the action belongs to.
        effect: What the action does to the world.
        arguments: The real, validated arguments.
        defaults: What arguments are that the call leaves out, as far as that is known.
        description: The script's own ``desc=``, if any. The script's word, not a fact.
        digest: SHA-256 over action and arguments.
        action_digest: Of the action itself: a remembered decision is void once it is another.
        shown_digest: Of the preview and of what it was made from. Before an approved call is made
            it is checked again, and asked about again where this is another. None without preview.
        reason: Why the connection wants a person to be asked, if it checked the call.
        preview: What would happen, in the connection's words; plain text, also of many lines.
        outcome_unknown: The call was begun before its process died, and nobody recorded how it
            ended: ``Approved`` makes it again, ``AlreadyDone`` says that it did happen.
        changed: It was asked about before, and something else would be done now.
        code: The script, if a script as a whole is to be approved.
        actions: Its actions that need approval; once approved, these pass while it runs.
        effects: What each of these does to the world.
        script: The number of the script that asks; 0 where none does.
        because: Why there is another script than the first.
        changes: What the task has changed so far, a line each.
        made_before: The number of a call of this task that did the very same, if there is one.
        line: The line of the script that the call is written on, where that is known.
        worker: Who asks, if the task is a child that somebody does by name.
        origins: Where values of the arguments came from, by their path, as ``to[0]``: ``kind`` is
            ``task``, ``script``, ``result`` or ``unknown``, ``trust`` is ``own`` or ``outside``,
            and ``text`` says it in words. It is a help, and no proof.
        flow: Why where values came from is a reason to ask.
        fit: Checks other arguments, so that a channel can ask again: gives them as they would
            be used, or raises :class:`delf.errors.ToolRefusedError`. None for a script.
    """

    request_id: str
    task_id: str
    task: str
    action: str
    permission: str
    effect: Effect
    arguments: Mapping[str, Any]
    description: str | None
    digest: str
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    action_digest: str = ""
    shown_digest: str | None = None
    reason: str | None = None
    preview: str | None = None
    outcome_unknown: bool = False
    changed: bool = False
    code: str | None = None
    actions: tuple[str, ...] = ()
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    script: int = 0
    because: str | None = None
    changes: tuple[str, ...] = ()
    made_before: int | None = None
    line: int | None = None
    worker: str | None = None
    origins: Mapping[str, Any] = field(default_factory=dict[str, Any])
    flow: str | None = None
    fit: Fit | None = field(default=None, repr=False, compare=False)

    @property
    def message(self) -> str:
        """The request in one line."""
        if self.code is not None:
            return f"script({', '.join(self.actions)})"
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())
        call = f"{self.action}({shown})"
        return f"make it again? it was interrupted: {call}" if self.outcome_unknown else call


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Yes; perhaps also for calls that come later.

    Args:
        remember: For how long they pass without a question: in this ``task``, or
            ``until_revoked``.
        covers: With ``remember``: only a ``call`` with the same arguments, defaults spelled out or
            not, or the ``action`` with any arguments.
        reason: A note for the journal.
    """

    remember: Remember = "no"
    covers: Covers = "call"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Yes, with other arguments; they pass the gate again."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """No, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyDone:
    """No, for it did happen before: of a call that is ``outcome_unknown``.

    Args:
        result: What the call returned, which the script gets.
        reason: A note for the journal.
    """

    result: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Nobody answered in time; counts as no."""

    after_seconds: float


Decision = Approved | Edited | Rejected | AlreadyDone | Expired


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedDecision:
    """A yes that lets later calls pass without a question, until it is revoked or its task ends.

    Args:
        request_id: The request that was approved, which names the decision.
        task_id: Its task.
        action: What was called.
        arguments: With what a call passes; None where any arguments do.
        digest: Of such a call.
        action_digest: Of the action as it was then.
        worker: Who asked, if a child task did that somebody does by name.
        has_reason: Whether the connection itself wanted a person to be asked.
        by: Who approved it.
        key: On whose behalf later tasks are that it holds for; None for the local user's.
        project: The folder of their project; None where it is for its own task only.
        at: When, as Unix time.
    """

    request_id: str
    task_id: str
    action: str
    arguments: Mapping[str, Any] | None
    digest: str
    action_digest: str
    worker: str | None
    has_reason: bool
    by: str
    key: str | None
    project: str | None
    at: float

    @classmethod
    def of(
        cls,
        asked: ApprovalRequest | ApprovalRequested,
        approved: Approved,
        *,
        by: str,
        at: float,
        key: str | None = None,
        project: str | None = None,
    ) -> Self:
        """What a request's approval lets pass."""
        return cls(
            request_id=asked.request_id,
            task_id=asked.task_id,
            action=asked.action,
            arguments=None if approved.covers == "action" else asked.arguments,
            digest=asked.digest,
            action_digest=asked.action_digest,
            worker=asked.worker,
            has_reason=asked.reason is not None,
            by=by,
            key=key,
            project=project,
            at=at,
        )

    @classmethod
    def of_events(cls, asked: ApprovalRequested, decided: ApprovalDecided) -> Self | None:
        """The same from a journal; None where nothing is to be remembered."""
        if decided.decision != "approved" or decided.remember == "no" or asked.outcome_unknown:
            return None
        approved = Approved(remember=decided.remember, covers=decided.covers)
        where = {"key": decided.key, "project": decided.project}
        return cls.of(asked, approved, by=decided.by, at=decided.at, **where)

    def covers(self, request: ApprovalRequest) -> bool:
        """Whether a call passes; whose task it is in is not looked at.

        A decision for any arguments holds for what the connection itself asks about only if that
        is what was approved.
        """
        same = (self.action, self.action_digest, self.worker)
        if same != (request.action, request.action_digest, request.worker):
            return False
        if self.arguments is not None:
            return self.digest == request.digest
        return self.has_reason or request.reason is None


@runtime_checkable
class SupportsPresence(Protocol):
    """A channel that knows beforehand whether it could ask anybody."""

    def can_ask(self) -> bool:
        """Whether somebody could answer now, as far as it is known without asking."""
        ...


class ApprovalChannel(Protocol):
    """Asks somebody."""

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """The decision, or None to leave it to the next channel."""
        ...


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
