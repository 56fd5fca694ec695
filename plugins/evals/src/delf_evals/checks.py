"""Checks of a task's calls, changes, files and cost; other checks come from pydantic-evals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext

from delf.errors import did_you_mean
from delf_engine.past_calls import is_same

DONE: Final = "done"
"""The key of an evaluator context's attributes that holds what the task did."""
_MAX_FILE_SIZE: Final = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Done:
    """The calls, files and cost of a task.

    Args:
        calls: The calls, as ``action``, ``arguments``, ``effect`` and ``status``.
        files: The files that it wrote, by name.
        cost_usd: The cost; None if a price is unknown.
        actions: The names of all actions that it could call.
    """

    calls: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, Path]
    cost_usd: float | None = None
    actions: Collection[str] = ()


Context = EvaluatorContext[object, object, object]


def _done(ctx: Context) -> Done:
    course: Done = ctx.attributes[DONE]
    return course


@dataclass
class Called(Evaluator[object, object, object]):
    """Check that a call was made.

    Args:
        action: The action, or a pattern such as ``mail.*``.
        arguments: The arguments that it must have had; others may have any value.
        times: The exact number of such calls; at least one when omitted.
    """

    action: str
    arguments: dict[str, Any] | None = None
    times: int | None = None

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"Called {self.action}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return whether the call was made as often as wanted, with the number if not."""
        of_name = [c for c in _done(ctx).calls if fnmatchcase(c["action"], self.action)]
        wanted = self.arguments or {}
        matching = [
            call
            for call in of_name
            if all(is_same(call["arguments"].get(key), value) for key, value in wanted.items())
        ]
        is_met = bool(matching) if self.times is None else len(matching) == self.times
        count = f"{len(matching)} such call{'' if len(matching) == 1 else 's'}"
        if len(matching) < len(of_name):
            count += f", {len(of_name) - len(matching)} with other arguments"
        if unknown := _unknown(self.action, _done(ctx)):
            count, is_met = unknown, False
        return EvaluationReason(value=is_met, reason=None if is_met else count)


@dataclass
class NotCalled(Evaluator[object, object, object]):
    """Check that no such call was made.

    Args:
        action: The action, or a pattern.
    """

    action: str

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"NotCalled {self.action}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Look for a call."""
        if unknown := _unknown(self.action, _done(ctx)):
            return EvaluationReason(value=False, reason=unknown)
        return _none([c for c in _done(ctx).calls if fnmatchcase(c["action"], self.action)])


@dataclass
class NoChanges(Evaluator[object, object, object]):
    """Check that only reading calls were made."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Look for a changing call."""
        return _none([call for call in _done(ctx).calls if call["effect"] != "read"])


def _unknown(action: str, course: Done) -> str | None:
    """Return a message if an action does not exist, because a misspelled check proves nothing."""
    if any(fnmatchcase(pattern_of_action, action) for pattern_of_action in course.actions):
        return None
    return f"there is no action {action}{did_you_mean(action, course.actions)}"


def _none(calls: Sequence[Mapping[str, Any]]) -> EvaluationReason:
    names = ", ".join(dict.fromkeys(call["action"] for call in calls))
    return EvaluationReason(value=not calls, reason=f"it called {names}" if calls else None)


@dataclass
class WroteFile(Evaluator[object, object, object]):
    """Check that the task wrote a file.

    Args:
        name: The file's name, or a pattern such as ``*.csv``.
        contains: A text that must be in such a file.
    """

    name: str
    contains: str | None = None

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"WroteFile {self.name}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Check that the file exists and contains the text."""
        files = _done(ctx).files
        matches = [path for name, path in files.items() if fnmatchcase(name, self.name)]
        if not matches:
            return EvaluationReason(value=False, reason=f"files: {', '.join(files) or 'none'}")
        wanted = self.contains
        if wanted is None or any(wanted in _text(path) for path in matches):
            return EvaluationReason(value=True)
        return EvaluationReason(value=False, reason=f"the text is not in {matches[0].name}")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_SIZE).decode("utf-8", "replace")


@dataclass
class MaxCost(Evaluator[object, object, object]):
    """Check that the models cost at most a number of US dollars; an unknown price fails."""

    usd: float

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Compare the cost."""
        cost = _done(ctx).cost_usd
        if cost is None:
            return EvaluationReason(value=False, reason="the model's price is not known")
        is_met = cost <= self.usd
        return EvaluationReason(value=is_met, reason=None if is_met else f"it cost ${cost:.4f}")


OWN_CHECKS: Final[tuple[type[Evaluator[Any, Any, Any]], ...]] = (
    Called,
    NotCalled,
    NoChanges,
    WroteFile,
    MaxCost,
)
