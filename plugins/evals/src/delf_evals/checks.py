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
"""The key of the :class:`Done` object in the attributes of an evaluator context."""
_MAX_FILE_BYTES: Final = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Done:
    """The calls, files and cost of a finished task, which checks evaluate.

    Args:
        calls: The calls, each a mapping with ``action``, ``arguments``, ``effect`` and ``status``.
        files: A mapping from the name to the path of each file that the task wrote.
        cost_usd: The cost in US dollars; None if a price is unknown.
        actions: The names of all actions that the task could call.
    """

    calls: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, Path]
    cost_usd: float | None = None
    actions: Collection[str] = ()


Context = EvaluatorContext[object, object, object]


def _done_task(ctx: Context) -> Done:
    done: Done = ctx.attributes[DONE]
    return done


@dataclass
class Called(Evaluator[object, object, object]):
    """Check that the task called an action.

    Args:
        action: The action, or a pattern such as ``mail.*``.
        arguments: The required values of some arguments; other arguments may have any value.
        times: The exact number of such calls; any number above zero when omitted.
    """

    action: str
    arguments: dict[str, Any] | None = None
    times: int | None = None

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"Called {self.action}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return True if the number of matching calls is right, else False with that number."""
        done = _done_task(ctx)
        if error := _misspelled_action_error(self.action, done):
            return EvaluationReason(value=False, reason=error)
        wanted_arguments = (self.arguments or {}).items()

        def has_wanted_arguments(call: Mapping[str, Any]) -> bool:
            arguments = call["arguments"]
            return all(is_same(arguments.get(name), value) for name, value in wanted_arguments)

        calls_of_action = [call for call in done.calls if fnmatchcase(call["action"], self.action)]
        matching_calls = list(filter(has_wanted_arguments, calls_of_action))
        is_met = bool(matching_calls) if self.times is None else len(matching_calls) == self.times
        message = f"{len(matching_calls)} such call{'' if len(matching_calls) == 1 else 's'}"
        if len(matching_calls) < len(calls_of_action):
            message += f", {len(calls_of_action) - len(matching_calls)} with other arguments"
        return EvaluationReason(value=is_met, reason=None if is_met else message)


@dataclass
class NotCalled(Evaluator[object, object, object]):
    """Check that the task never called an action.

    Args:
        action: The action, or a pattern such as ``mail.*``.
    """

    action: str

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"NotCalled {self.action}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return True if no call matches, else False with the names of the matching actions."""
        if error := _misspelled_action_error(self.action, _done_task(ctx)):
            return EvaluationReason(value=False, reason=error)
        return _pass_without_calls(
            [c for c in _done_task(ctx).calls if fnmatchcase(c["action"], self.action)]
        )


@dataclass
class NoChanges(Evaluator[object, object, object]):
    """Check that the task only made calls with the effect ``read``."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return True if all calls only read, else False with the names of the writing actions."""
        return _pass_without_calls(
            [call for call in _done_task(ctx).calls if call["effect"] != "read"]
        )


def _misspelled_action_error(pattern: str, done: Done) -> str | None:
    """Return an error message if a check's pattern matches no action that the task could call.

    Without this error, a :class:`NotCalled` check with a misspelled pattern would always pass.
    """
    callable_actions = done.actions
    if any(fnmatchcase(name, pattern) for name in callable_actions):
        return None
    return f"there is no action {pattern}{did_you_mean(pattern, callable_actions)}"


def _pass_without_calls(calls: Sequence[Mapping[str, Any]]) -> EvaluationReason:
    """Return the result of a check that fails if ``calls`` is not empty."""
    names = ", ".join(dict.fromkeys(call["action"] for call in calls))
    return EvaluationReason(value=not calls, reason=f"it called {names}" if calls else None)


@dataclass
class WroteFile(Evaluator[object, object, object]):
    """Check that the task wrote a file.

    Args:
        name: The file's name, or a pattern such as ``*.csv``.
        contains: A text that at least one matching file must contain; any content when omitted.
    """

    name: str
    contains: str | None = None

    def get_default_evaluation_name(self) -> str:
        """Return the name of the check in reports."""
        return f"WroteFile {self.name}"

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return True if a file matches, else False with the reason."""
        files = _done_task(ctx).files
        matches = [path for name, path in files.items() if fnmatchcase(name, self.name)]
        if not matches:
            return EvaluationReason(value=False, reason=f"files: {', '.join(files) or 'none'}")
        wanted = self.contains
        if wanted is None or any(wanted in _read_text(path) for path in matches):
            return EvaluationReason(value=True)
        return EvaluationReason(value=False, reason=f"the text is not in {matches[0].name}")


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")


@dataclass
class MaxCost(Evaluator[object, object, object]):
    """Check that the model calls of the task cost at most a number of US dollars.

    Args:
        usd: The maximum cost; a task with a model of unknown price fails.
    """

    usd: float

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Return True if the cost is within the limit, else False with the cost.

        Return False, too, if the model's price is unknown.
        """
        cost = _done_task(ctx).cost_usd
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
