"""Determine whose words a call's values are, from the events of its task.

The host knows exactly which texts the author of a script had read before writing the script. A
value is the user's own if a clean script, whose author had read no text of others, computes the
value from constants and own results. Any other value counts as a stranger's, unless the user's
words ask for it. The place where a value is found only informs people.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from delf.events import (
    ASK,
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ModelReplied,
    Noted,
    ScriptFinished,
    ScriptGenerated,
)
from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.origin import Origin, ReadCall, Results, find_in
from delf_engine.origins.outline import Planned
from delf_engine.origins.scripts import FIELD, Scripts
from delf_engine.origins.texts import mentions, mentions_record, same_text
from delf_engine.origins.values import authored, items_of, values_of

CONVERSATION: Final = "this conversation"
ANSWER: Final = "an earlier answer"
MEMORY: Final = "memory"
VARIABLE: Final = "this conversation's variable"
PARENT: Final = "the words of this task"
# The maximum length of a text whose instructions a task may tell the agent to obey.
#
# In characters; a longer text is truncated.
_MAX_FOLLOWED_LENGTH: Final = 20_000
# Patterns that show that a text quotes another person.
_QUOTES: Final = re.compile(
    r"^\s*>|forwarded|wrote:|\bcomments?\b|^\s*from:\s*\S+@", re.IGNORECASE | re.MULTILINE
)


class Origins:
    """Traces where the values in one task's calls came from.

    Args:
        task: The user's words.
        context_texts: Returns the texts that the model gets in addition to the task, each as trust,
            text and place. The user's earlier messages are trusted; an earlier answer may contain
            untrusted data.
        tool_of: Returns an action of the task by its name.
        files: Reads the input files, which are untrusted, and returns names and texts.
        has_read: Whether scripts can read untrusted data without a call, for example in input
            files.
        untrusted_variables: The variables that hold untrusted values before the first script, in a
            routine.
    """

    def __init__(
        self,
        task: str,
        context_texts: Callable[[], Iterable[tuple[Trust, str, str]]],
        tool_of: Callable[[str], BoundAction | None],
        files: Callable[[], Iterable[tuple[str, str]]] | None = None,
        *,
        has_read: bool = False,
        untrusted_variables: Collection[str] = (),
    ) -> None:
        self._words = [task]
        # The answers of a person to questions of scripts, which count as the user's words.
        self._answers: set[str] = set()
        self._context_texts: Callable[[], Iterable[tuple[Trust, str, str]]] | None = context_texts
        self._tool_of = tool_of
        self._files = files
        self._processed_count = 0
        self.has_read = has_read or not task
        """True if the task has received untrusted data, even if no model has read the data."""
        self.is_untainted = bool(task)
        """True if the author of the current script or calls had read no untrusted data.

        The author is the user or the model.
        """
        # The current script; None while the strategy itself makes calls.
        self._code: str | None = None
        self._scripts = Scripts(self._parameters_of, untrusted_variables)
        self._calls: dict[int, ReadCall] = {}
        self._calls_by_action: dict[str, list[ReadCall]] = defaultdict(list)
        # All texts that the task has read, each as a call with its result.
        self._texts: list[ReadCall] = []
        self._finished_by_action: dict[str, list[ReadCall]] = defaultdict(list)
        # The values that each action has returned, collected when they are first needed.
        self._results: dict[str, Results] = defaultdict(Results)
        # The actions that have returned untrusted data.
        self._untrusted_actions: set[str] = set()
        # Connections that received untrusted data; their later results count as untrusted.
        self._tainted_connections: set[str] = set()
        self.planned = Planned(
            self._calls_by_action,
            tool_of,
            self._sources_in_outline,
            self._is_named_by_others,
            self.is_stated,
        )

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty if a script wrote the task."""
        return "\n\n".join(filter(None, self._words))

    def follow(self, events: Sequence[Event]) -> None:
        """Process the events that are new since the last call."""
        for event in events[self._processed_count :]:
            match event:
                case CallStarted():
                    self._take_call(event)
                case CallFinished(status="ok" | "error"):
                    self._take_result(event)
                case ModelCalled(purpose="generate"):
                    self._take_context_texts()
                    self.has_read = self.has_read or bool(event.server_side)  # such as a web search
                    self.is_untainted, self._code = not self.has_read, None
                case ScriptGenerated(code=code):
                    self._code = code
                    # A script without a model call comes from a routine, which the user trusts.
                    self.is_untainted = self.is_untainted or self._context_texts is not None
                    if self.is_untainted:
                        self._scripts.add(code)
                case ModelReplied(purpose="outline", text=text):
                    self.planned.add(text)
                case Noted(topic=topic, text=text) if text:
                    self._take_text("outside", text, f"a {topic}")
                case ScriptFinished():
                    self._code = None
                case CallFinished(status="refused", raised="ToolNotAllowed"):
                    # The model reads the connection's reason, which may quote others.
                    tool = self._tool_of(event.action)
                    self.has_read = self.has_read or tool is None or tool.check is not None
                case _:
                    pass
        self._processed_count = len(events)

    def _take_context_texts(self) -> None:
        """Record the model's initial context, when a model is first asked."""
        for trust, text, where in self._context_texts() if self._context_texts else ():
            if trust == "own" and where == CONVERSATION:
                self._words.append(text)
            else:
                self._take_text(trust, text, where)
        self._context_texts = None

    def _take_text(self, trust: Trust, text: str, where: str) -> None:
        self._texts.append(_text_at(where, text, trust))
        self.has_read = self.has_read or trust != "own"

    def _take_call(self, event: CallStarted) -> None:
        """Record a call and the trust of its result, and mark connections that it taints."""
        tool = self._tool_of(event.action)
        declared = tool.trust_of(event.arguments) if tool else None
        call = ReadCall(
            number=event.call_id,
            action=event.action,
            trust=declared or (tool.action.trust if tool else "outside"),
            arguments=event.arguments,
            tool=tool,
            is_untainted=self.is_untainted,
            changes=event.effect != "read",
        )
        # A service may later return texts that it received, even search terms.
        is_sending = self.has_read and (
            call.changes or (self.is_untainted and call.connection != "")
        )
        may_taint = is_sending and call.connection not in self._tainted_connections
        is_relevant = bool(declared) or may_taint
        if is_relevant and not self.are_own(event.action, event.arguments, event.line):
            # Untrusted data in the arguments decides what the call finds.
            call.trust = "outside" if self.is_untainted and declared else call.trust
            if is_sending:
                self._tainted_connections.add(call.connection)
        self._calls[event.call_id] = call
        self._calls_by_action[event.action].append(call)

    def _take_result(self, event: CallFinished) -> None:
        """Record a call's result, with its trust."""
        # If the call's start is missing, its arguments are unknown.
        unknown = ReadCall(event.call_id, event.action, "outside", {})
        call = self._calls.get(event.call_id, unknown)
        call.result = event.error if event.result is None else event.result
        call.has_failed = event.status != "ok"
        if call.trust == "own" and call.connection in self._tainted_connections:
            call.trust = "outside"  # the connection may return untrusted data that it received
        if event.action == ASK and event.status == "ok":
            self._answers.add(same_text(str(call.result)))
            # An option may be untrusted data that the user only chose, so its words do not count.
            if isinstance(call.result, str) and not call.arguments.get("options"):
                self._words.append(call.result)
        self._texts.append(call)
        self._finished_by_action[event.action].append(call)
        if call.trust != "own":
            self._untrusted_actions.add(event.action)
            self.has_read = True

    def followed(self) -> Iterator[str]:
        """Yield the texts whose instructions the user tells the agent to obey.

        The user must have named the author of a text, and the service must report the same author.
        """
        for call in self._calls.values():
            author_field = None if call.tool is None else call.tool.action.author
            if not author_field:
                continue
            if not any(self.planned.is_call(order, call) for order in self.planned.orders):
                continue
            for record in items_of(call.result):
                # The author comes from a field of the record or the call, never from the text.
                fields = cast("Any", record if isinstance(record, dict) else call.arguments)
                lines = (f"{path.lstrip('.')}: {text}" for _, path, text in authored(record))
                text, author = "\n".join(lines)[:_MAX_FOLLOWED_LENGTH], fields.get(author_field)
                if isinstance(author, str) and self.is_stated(author) and not _QUOTES.search(text):
                    yield text

    def is_own(self, action: str, path: str, text: str, line: int | None) -> bool:
        """Return whether a value in a call comes only from the user's own data.

        The script must have been written before its author read untrusted data, and must compute
        the value only from constants and from results that are the user's own.

        Args:
            action: The called action.
            path: The path of the value in the arguments.
            text: The value.
            line: The line of the script with the call, if known.
        """
        sources = self.foreign_sources(action, path, line) if self.is_untainted else None
        if sources is None:
            return False
        fields = {source[1:] for source in sources if source[0] == FIELD}
        return all(self._holds_own(each, text, fields) for each in sources if each[0] != FIELD)

    def are_own(self, action: str, arguments: Mapping[str, Any], line: int | None) -> bool:
        """Return whether all values in a call come only from the user's own data.

        Args:
            action: The called action.
            arguments: The arguments of the call.
            line: The line of the script with the call, if known.
        """
        leaves = values_of(arguments)
        return not self.has_read or all(self.is_own(action, *leaf, line) for leaf in leaves)

    def sources(self, action: str, path: str, line: int | None) -> frozenset[str] | None:
        """Return the actions whose results flow into an argument, as analysed in the script.

        Fields that the script reads are included, as ``.field``. None if the sources are unknown.

        Args:
            action: The called action.
            path: The path of a value in the arguments.
            line: The line of the script with the call, if known.
        """
        if self._code is None:  # a strategy's call: the model wrote the arguments
            return frozenset()
        return self._scripts.sources(action, path, line)

    def foreign_sources(self, action: str, path: str, line: int | None) -> AbstractSet[str] | None:
        """Return the sources of a value whose results are not all the user's own.

        The fields that the script reads are included, as ``.field``. None if the sources are
        unknown.
        """
        sources = self.sources(action, path, line)
        if sources is None:
            return None
        return {source for source in sources if not self._is_own_action(source)}

    def _sources_in_outline(self, node: ast.expr) -> AbstractSet[str]:
        """Return the actions and fields that an expression in an outline uses."""
        return Scripts(self._parameters_of).read(node)

    def _parameters_of(self, action: str) -> Sequence[str] | None:
        tool = self._tool_of(action)
        return None if tool is None else [each.name for each in tool.action.parameters]

    def _is_own_action(self, action: str) -> bool:
        """Return whether all results of an action are the user's own."""
        tool = self._tool_of(action)
        is_own = tool is not None and (
            self._finished_by_action[action] or tool.action.trust == "own"
        )
        return bool(is_own) and action not in self._untrusted_actions

    def _holds_own(self, action: str, text: str, fields: Collection[str]) -> bool:
        """Return whether a value occurs in an action's results as the user's own data.

        Args:
            action: The action.
            text: The value.
            fields: The fields that the script reads from the results.
        """
        results = self._results[action]
        for call in self._finished_by_action[action][results.count :]:
            results.add(call)
        return results.holds_own(same_text(text), fields)

    def unplanned_read(self) -> ReadCall | None:
        """Return the first call that read data which the task's outline does not ask for.

        Only calls count that were written after their author had read untrusted data.
        """
        for call in self._calls.values():
            is_read = not (call.is_untainted or call.changes or (call.tool and call.tool.built_in))
            if is_read and not call.has_failed and not self.planned.has(call):
                return call
        return None

    def find(self, text: str) -> Origin:
        """Find the most likely source of a value."""
        if self.is_stated(text):
            return Origin(kind="task", trust="own")
        is_untainted, code = self.is_untainted, self._code
        if is_untainted and code is not None and mentions(code, text):
            return Origin(kind="script", trust="own")
        if found := find_in(self._all_texts(), text):
            return found
        if not is_untainted and (code is None or mentions(code, text)):
            return Origin(kind="script", trust="outside")
        if not text.strip() or not self.has_read:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def is_stated(self, text: str) -> bool:
        """Return whether a value occurs in the user's words."""
        return self.is_answer(text) or any(mentions(words, text) for words in self._words)

    def is_answer(self, text: str) -> bool:
        """Return whether a value is the whole answer of a person to a question."""
        return same_text(text) in self._answers

    def _is_named_by_others(self, text: str) -> bool:
        """Return whether an untrusted text mentions a value in a longer text."""
        return any(
            trust == "outside" and mentions_record(untrusted_text, text)
            for call in self._all_texts()
            for trust, _, untrusted_text in authored(call.result, call.trust)
        )

    def _all_texts(self) -> Sequence[ReadCall]:
        """Return all texts that the task has read, including those of its input files."""
        if self._files is not None:
            contents = (_text_at(f"the input file {name}", text) for name, text in self._files())
            self._texts[:0] = contents
            self._files = None
        return self._texts


def _text_at(where: str, text: str, trust: Trust = "outside") -> ReadCall:
    return ReadCall(0, where, trust, {}, result=text)
