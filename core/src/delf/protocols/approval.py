"""An approval channel: someone who may say yes or no to a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, runtime_checkable

from delf.records import dataclass
from delf.types import Effect

Remember = Literal["no", "task", "session"]
"""For how long the same call, with or without its defaults spelled out, passes without asking."""

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
        description: The script's own ``desc=``, if any. The script's word, not a fact.
        digest: SHA-256 over action and arguments.
        reason: Why the connection wants a person to be asked, if it checked the call.
        preview: What would happen, in the connection's words; plain text, also of many lines.
        outcome_unknown: The call was begun before its process died, and nobody recorded how it
            ended: ``Approved`` makes it again, ``AlreadyDone`` says that it did happen.
        code: The script, if a script as a whole is to be approved.
        actions: Its actions that need approval; once approved, these pass while it runs.
        script: The number of the script that asks; 0 where none does.
        because: Why there is another script than the first.
        changes: What the task has changed so far, a line each.
        made_before: The number of a call of this task that did the very same, if there is one.
        line: The line of the script that the call is written on, where that is known.
        worker: Who asks, if the task is a child that somebody does by name.
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
    reason: str | None = None
    preview: str | None = None
    outcome_unknown: bool = False
    code: str | None = None
    actions: tuple[str, ...] = ()
    script: int = 0
    because: str | None = None
    changes: tuple[str, ...] = ()
    made_before: int | None = None
    line: int | None = None
    worker: str | None = None
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
    """Yes; perhaps also for calls like this one that come later.

    Args:
        remember: For how long the same call passes without asking.
        reason: A note for the journal.
        like: With ``remember``: arguments that may differ then. Each is a pattern for text, as
            ``*@example.com``, or ``*`` for anything; arguments that are not named stay the same.
    """

    remember: Remember = "no"
    reason: str | None = None
    like: Mapping[str, str] | None = None


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


def fits_pattern(value: Any, pattern: str) -> bool:
    """Whether an argument fits a pattern of :attr:`Approved.like`.

    Args:
        value: The argument.
        pattern: ``*`` for anything; else a pattern for text, as ``*@example.com``.
    """
    return pattern == "*" or (isinstance(value, str) and fnmatchcase(value, pattern))


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
