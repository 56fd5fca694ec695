"""Flows: detection of calls that a stranger's text may have caused.

A text that a task reads, such as a mail, may contain a stranger's instructions. A call passes if
all values that decide its effect are known to be the user's own. Values of unknown origin count as
a stranger's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from delf.protocols.approval import flow_between
from delf.records import dataclass
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call
from delf_engine.config import ARROW
from delf_engine.journal.log import TaskLog
from delf_engine.origins.fold import Origins
from delf_engine.origins.texts import may_hide_data
from delf_engine.origins.values import MAX_LEAVES, is_content, parameter_of, values_of

# The maximum number of values whose origins are compared, to show the most suspicious one.
_MAX_TRACED_VALUES: Final = 20


class TaskFlows:
    """Traces the values of a task's calls, and finds the calls that a stranger may have caused.

    Args:
        origins: Finds where the values of calls came from.
        outline: Asks a model for an outline: the calls that the user's words ask for. Its argument
            is the texts whose instructions the user tells the agent to follow.
        log: The task's events.
        allowed: Data flows that need no review, from the settings, such as ``mail.read.sender ->
            mail.send.to``.
    """

    def __init__(
        self,
        origins: Origins,
        outline: Callable[[Sequence[str]], Awaitable[None]],
        log: TaskLog,
        allowed: Sequence[str],
    ) -> None:
        self._origins = origins
        self._outline = outline
        self._log = log
        self._allowed = tuple(allowed)
        # The number of texts in the last request for an outline; 0 before the first request.
        #
        # The texts are the user's words, and the texts that the user orders to follow.
        self._outlined_texts = 0
        self._outlining = asyncio.Lock()

    def sources(self, arguments: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
        """Return the origins of the values in a call's arguments, as plain data by path."""
        self._origins.follow(self._log.events)
        leaves = values_of(self._log.redactor.value(arguments))
        return {path: self._origins.find(text).data() for path, text in islice(leaves, MAX_LEAVES)}

    def reason(self, call: Call, learned: Sequence[str] = ()) -> str | None:
        """Return why a person should review a call; None if untrusted data cannot have caused it.

        Args:
            call: The call.
            learned: Allowed data flows from a person's approvals, in addition to the settings.
        """
        action = call.bound.action
        if call.bound.built_in or (action.effect == "read" and not action.egress):
            return None
        self._origins.follow(self._log.events)
        if not self._origins.has_received_untrusted:
            return None
        redacted = self._log.redactor.value(call.arguments)
        leaves = dict(islice(values_of(redacted), MAX_LEAVES + 1))
        if len(leaves) > MAX_LEAVES:
            return "it has too many values to look for each of them"
        rules = (*self._allowed, *learned)
        return _Suspect(self._origins, call.bound, redacted, leaves, call.line, rules).reason()

    async def reason_to_review(
        self, call: Call, learned: Callable[[], Awaitable[Sequence[str]]] | None = None
    ) -> str | None:
        """Return why a person should review a call, after asking a model for the task's outline.

        Returns None if untrusted data cannot have caused the call, if a rule allows the data flow,
        or if the outline contains the call.

        Args:
            call: The call.
            learned: Reads the rules from a person's approvals; called only if needed.
        """
        reason = self.reason(call)
        rules: Sequence[str] = ()
        if reason is not None and learned is not None and (rules := await learned()):
            reason = self.reason(call, rules)
        while reason is not None and await self._extend_outline(self._origins.outline.answers):
            reason = self.reason(call, rules)
        return reason

    async def _extend_outline(self, known: int) -> bool:
        """Ask the model which calls the user's words ask for, and add the calls to the outline.

        Args:
            known: The number of the model's answers in the outline when the caller last used it.

        Returns:
            Whether the outline has further answers now.
        """
        origins, planned = self._origins, self._origins.outline
        async with self._outlining:
            followed = [*origins.texts_to_obey()]
            # The texts to outline are the task and the followed texts. A resumed task knows only
            # how many answers are recorded.
            is_up_to_date = max(self._outlined_texts, planned.answers) > len(followed)
            if planned.answers == known and origins.own_words and not is_up_to_date:
                self._outlined_texts = 1 + len(followed)
                await self._outline(followed)
                origins.follow(self._log.events)
            return planned.answers > known


@dataclass(frozen=True)
class _Suspect:
    """A call that instructions in untrusted data may have caused.

    Args:
        origins: The origins of the task's values.
        bound: The called action.
        arguments: The arguments.
        leaves: The texts of all values in the arguments, by path.
        line: The line of the script with the call, if known.
        rules: Data flows that need no review.
    """

    origins: Origins
    bound: BoundAction
    arguments: Mapping[str, Any]
    leaves: Mapping[str, str]
    line: int | None
    rules: Sequence[str]

    def reason(self) -> str | None:
        action, is_untainted = self.bound.action, self.origins.is_author_untainted
        deciding = [path for path, text in self.leaves.items() if not self._is_content(path, text)]
        is_undeclared = action.sinks is None and action.contents is None
        has_only_content = is_undeclared and all(self._is_content(path, "") for path in self.leaves)
        checked = deciding
        if has_only_content and not deciding:
            checked = [*self.leaves]  # because the call could carry contents out
        foreign = [path for path in checked if not (is_untainted and self._needs_no_review(path))]
        has_own_content = not deciding and len(foreign) < len(self.leaves)
        if is_untainted and (not foreign or has_own_content):
            return None
        differences = self.origins.outline.differing_arguments(
            self.bound.name,
            self.arguments,
            self._is_content,
            has_only_content=has_only_content,
            sources_by_parameter=self._untrusted_sources(foreign) if is_untainted else None,
        )
        if not (is_untainted or deciding or differences):
            return "the model wrote this call after it had read what others wrote"
        suspicious = [parameter_of(foreign[0])] if is_untainted else [*map(parameter_of, foreign)]
        # The differences from the most similar planned call; without one, the untrusted values.
        if differing := min(differences, key=len, default=suspicious):
            return self._reason_of(differing, foreign)
        if is_untainted:
            return None
        return self._reason_of_contents() or self._reason_of_repetition(differences)

    def _is_content(self, path: str, text: str) -> bool:
        return is_content(self.bound, path, text)

    def _untrusted_sources(self, paths: Sequence[str]) -> Mapping[str, AbstractSet[str] | None]:
        return {
            parameter_of(path): self.origins.untrusted_sources(self.bound.name, path, self.line)
            for path in paths
        }

    def _needs_no_review(self, path: str) -> bool:
        """Return whether a value needs no review.

        The value is then the user's own and stays in the user's services, or a rule allows its data
        flow.
        """
        action = self.bound.name
        is_sent = self.bound.action.egress and self.origins.sources(action, path, self.line)
        if not is_sent and self.origins.is_own(action, path, self.leaves[path], self.line):
            return True
        origin = self.origins.find(self.leaves[path]) if self.rules else None
        if origin is None or origin.kind != "result":
            return False
        flow = flow_between(str(origin.action), origin.path, action, path)
        patterns = (map(str.strip, rule.split(ARROW, 1)) for rule in self.rules)
        return any(all(map(fnmatchcase, flow, pattern)) for pattern in patterns)

    def _reason_of(self, names: Collection[str], checked: Sequence[str]) -> str:
        """Return why a call's parameters need review: the origin of one of their values.

        Of several values, one from untrusted data is chosen.

        Args:
            names: The parameters that need review.
            checked: The paths of all values that decide the effect of the call.
        """
        paths = [path for path in checked if parameter_of(path) in names]
        if not paths:
            return f"it leaves out {', '.join(names)}, which the task asks for"
        traced = paths[:_MAX_TRACED_VALUES]
        origins = {path: self.origins.find(self.leaves[path]) for path in traced}
        # An untrusted value first, and a value from the task's own words last.
        path = min(traced, key=lambda p: (not origins[p].is_others, origins[p].kind == "task"))
        origin = origins[path]
        if origin.kind == "task":
            return f"{path}: {origin.text}, which does not ask for it here"
        if origin.is_others or origin.kind != "result":
            return f"{path}: {origin.text}"
        if self.bound.action.effect == "read":
            return f"it sends your own data out as {path}: {origin.text}"
        return f"{path}: {origin.text}; the task does not say that it is this one"

    def _reason_of_contents(self) -> str | None:
        """Return why a text for people in the call needs review; None if none does.

        A text in the user's words needs no review.
        """
        for path, text in self.leaves.items():
            name = parameter_of(path)
            value = self.arguments[name]
            is_stated = self.origins.outline.states(self.bound.name, name, value)
            if is_stated or self.origins.is_in_user_words(text) or not self._is_content(path, text):
                continue
            if (read := self.origins.unplanned_read()) is not None:
                result = f"what {read.action} (call {read.number}) returned"
                return f"{path} may tell {result}, which the task does not ask for"
            if may_hide_data(text):
                return f"{path} holds an address or a code: {self.origins.find(text).text}"
        return None

    def _reason_of_repetition(self, differences: Sequence[Sequence[str]]) -> str | None:
        """Return the reason to review a call that was already made as often as the task asks.

        Args:
            differences: For each planned call, the parameters in which this call differs.
        """
        planned_count = sum(not differing for differing in differences)
        is_exhausted = self.origins.outline.reaches_planned_count(
            self.bound.name, self.arguments, self._is_content, planned_count
        )
        return "the task does not ask to do this once more" if is_exhausted else None
