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
from delf_engine.origins.texts import mentions, names, same_text
from delf_engine.origins.values import authored, items_of, values_of

CONVERSATION: Final = "this conversation"
ANSWER: Final = "an earlier answer"
MEMORY: Final = "memory"
VARIABLE: Final = "this conversation's variable"
PARENT: Final = "the words of this task"
_LONGEST_FOLLOWED: Final = 20_000
"""The maximum number of characters of a text that a task may order to follow."""
_QUOTES: Final = re.compile(
    r"^\s*>|forwarded|wrote:|\bcomments?\b|^\s*from:\s*\S+@", re.IGNORECASE | re.MULTILINE
)
"""Signs in a text that the text quotes somebody else."""


class Origins:
    """The origins of the values of one task's calls.

    Args:
        task: The user's words.
        before: Returns the model's context in addition to the task: texts with author and place.
            The user's earlier messages are the user's own; an earlier answer may contain words of
            others.
        tool_of: Returns an action of the task by its name.
        files: Reads the input files, which others may have written, as names and texts.
        has_read: Whether a script can read texts of others without a call, such as input files.
        given: The variables by which a task of others gives values to a routine's script.
    """

    def __init__(
        self,
        task: str,
        before: Callable[[], Iterable[tuple[Trust, str, str]]],
        tool_of: Callable[[str], BoundAction | None],
        files: Callable[[], Iterable[tuple[str, str]]] | None = None,
        *,
        has_read: bool = False,
        given: Collection[str] = (),
    ) -> None:
        self._words = [task]
        self._answers: set[str] = set()
        """The answers to questions, each the user's own word as a whole."""
        self._before: Callable[[], Iterable[tuple[Trust, str, str]]] | None = before
        self._tool_of = tool_of
        self._files = files
        self._seen = 0
        self.has_read = has_read or not task
        """True once the task has received text of others, even if no model has read that text."""
        self.is_clean = bool(task)
        """True if the current calls were written by the user, or by a model that had read no text
        of others."""
        self._code: str | None = None
        """The current script; None if the strategy calls without a script."""
        self._scripts = Scripts(self._parameters_of, given)
        self._calls: dict[int, ReadCall] = {}
        self._made: dict[str, list[ReadCall]] = defaultdict(list)
        """The calls by action."""
        self._texts: list[ReadCall] = []
        """All texts that the task has read, each as a call with its result."""
        self._ended: dict[str, list[ReadCall]] = defaultdict(list)
        """The calls with a result by action."""
        self._results: dict[str, Results] = defaultdict(Results)
        """The values in results by action, added when they are needed."""
        self._mixed: set[str] = set()
        """The actions with a result that is not wholly the user's own."""
        self._given: set[str] = set()
        """Connections that got texts of others; their later results count as such texts, too."""
        self.planned = Planned(
            self._made, tool_of, self._sources_in_outline, self._is_named_by_others, self.is_stated
        )

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty if a script wrote the task."""
        return "\n\n".join(filter(None, self._words))

    def follow(self, events: Sequence[Event]) -> None:
        """Process the events that are new since the last call."""
        for event in events[self._seen :]:
            match event:
                case CallStarted():
                    self._take_call(event)
                case CallFinished(status="ok" | "error"):
                    self._take_result(event)
                case ModelCalled(purpose="generate"):
                    self._take_before()
                    self.has_read = self.has_read or bool(event.server_side)  # such as a web search
                    self.is_clean, self._code = not self.has_read, None
                case ScriptGenerated(code=code):
                    self._code = code
                    # A script without a model call comes from a routine, which the user trusts.
                    self.is_clean = self.is_clean or self._before is not None
                    if self.is_clean:
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
        self._seen = len(events)

    def _take_before(self) -> None:
        """Record the model's initial context; known once a model is asked."""
        for trust, text, where in self._before() if self._before else ():
            if trust == "own" and where == CONVERSATION:
                self._words.append(text)
            else:
                self._take_text(trust, text, where)
        self._before = None

    def _take_text(self, trust: Trust, text: str, where: str) -> None:
        self._texts.append(_text_at(where, text, trust))
        self.has_read = self.has_read or trust != "own"

    def _take_call(self, event: CallStarted) -> None:
        """Record a call and its trust, and which connections got texts of others."""
        tool = self._tool_of(event.action)
        declared = tool.trust_of(event.arguments) if tool else None
        call = ReadCall(
            number=event.call_id,
            action=event.action,
            trust=declared or (tool.action.trust if tool else "outside"),
            arguments=event.arguments,
            tool=tool,
            is_clean=self.is_clean,
            changes=event.effect != "read",
        )
        # A service may later return texts that it received, even search terms.
        gives = self.has_read and (call.changes or (self.is_clean and call.connection != ""))
        if (declared or (gives and call.connection not in self._given)) and not self.are_own(
            event.action, event.arguments, event.line
        ):
            # Others' texts in the arguments decide what the call finds.
            call.trust = "outside" if self.is_clean and declared else call.trust
            self._given.update([call.connection] if gives else ())
        self._calls[event.call_id] = call
        self._made[event.action].append(call)

    def _take_result(self, event: CallFinished) -> None:
        """Record a call's result as a text of its author."""
        unknown = ReadCall(event.call_id, event.action, "outside", {})
        call = self._calls.get(event.call_id, unknown)  # its arguments are unknown
        call.result = event.error if event.result is None else event.result
        call.has_failed = event.status != "ok"
        if call.trust == "own" and call.connection in self._given:
            call.trust = "outside"  # may be others' text, given to the connection before
        if event.action == ASK and event.status == "ok":
            self._answers.add(same_text(str(call.result)))
            # A chosen option may be others' text, so its parts are not the user's words.
            is_word = isinstance(call.result, str) and not call.arguments.get("options")
            self._words += [call.result] if is_word else []
        self._texts.append(call)
        self._ended[event.action].append(call)
        if call.trust != "own":
            self._mixed.add(event.action)
            self.has_read = True

    def followed(self) -> Iterator[str]:
        """Yield the texts to follow whose author the user named and the service confirms."""
        for call in self._calls.values():
            author = (call.tool and call.tool.action.author) or ""
            if not any(author and self.planned.is_call(each, call) for each in self.planned.orders):
                continue
            for record in items_of(call.result):
                # The author comes from a field of the record or the call, never from the text.
                fields = cast("Any", record if isinstance(record, dict) else call.arguments)
                lines = (f"{path.lstrip('.')}: {text}" for _, path, text in authored(record))
                text, whose = "\n".join(lines)[:_LONGEST_FOLLOWED], fields.get(author)
                if isinstance(whose, str) and self.is_stated(whose) and not _QUOTES.search(text):
                    yield text

    def is_own(self, action: str, path: str, text: str, line: int | None) -> bool:
        """Return whether a clean script makes a value of constants and own results alone."""
        sources = self.foreign(action, path, line) if self.is_clean else None
        if sources is None:
            return False
        fields = {source[1:] for source in sources if source[0] == FIELD}
        return all(self._holds_own(each, text, fields) for each in sources if each[0] != FIELD)

    def are_own(self, action: str, arguments: Mapping[str, Any], line: int | None) -> bool:
        """Return whether all values of a call are the user's own."""
        leaves = values_of(arguments)
        return not self.has_read or all(self.is_own(action, *leaf, line) for leaf in leaves)

    def sources(self, action: str, path: str, line: int | None) -> frozenset[str] | None:
        """Return the actions whose results a clean script uses for a value; None if unknown."""
        if self._code is None:  # a strategy's call: the model wrote the arguments
            return frozenset()
        return self._scripts.sources(action, path, line)

    def foreign(self, action: str, path: str, line: int | None) -> AbstractSet[str] | None:
        """Return a value's sources that are not wholly the user's own, and the fields read."""
        sources = self.sources(action, path, line)
        return None if sources is None else {e for e in sources if not self._is_own_action(e)}

    def _sources_in_outline(self, node: ast.expr) -> AbstractSet[str]:
        """Return the actions and fields in an outline, where variables are unknown."""
        return Scripts(self._parameters_of).read(node)

    def _parameters_of(self, action: str) -> Sequence[str] | None:
        tool = self._tool_of(action)
        return None if tool is None else [each.name for each in tool.action.parameters]

    def _is_own_action(self, action: str) -> bool:
        """Return whether all results of an action are the user's own."""
        tool = self._tool_of(action)
        is_own = tool is not None and (self._ended[action] or tool.action.trust == "own")
        return bool(is_own) and action not in self._mixed

    def _holds_own(self, action: str, text: str, fields: Collection[str]) -> bool:
        """Return whether a value is own in the results of an action, of which fields are read."""
        results = self._results[action]
        for call in self._ended[action][results.count :]:
            results.add(call)
        return results.holds_own(same_text(text), fields)

    def unplanned_read(self) -> ReadCall | None:
        """Return the first unplanned read of a model that had read the words of strangers."""
        for call in self._calls.values():
            is_read = not (call.is_clean or call.changes or (call.tool and call.tool.built_in))
            if is_read and not call.has_failed and not self.planned.has(call):
                return call
        return None

    def find(self, text: str) -> Origin:
        """Find the most likely source of a value."""
        if self.is_stated(text):
            return Origin(kind="task", trust="own")
        is_clean, code = self.is_clean, self._code
        if is_clean and code is not None and mentions(code, text):
            return Origin(kind="script", trust="own")
        if found := find_in(self._all_texts(), text):
            return found
        if not is_clean and (code is None or mentions(code, text)):
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
        """Return whether a text of others mentions a value, within a longer text."""
        return any(
            whose == "outside" and names(held, text)
            for call in self._all_texts()
            for whose, _, held in authored(call.result, call.trust)
        )

    def _all_texts(self) -> Sequence[ReadCall]:
        """Return all texts that the task has read, including those of its input files."""
        if self._files is not None:
            held = (_text_at(f"the input file {name}", text) for name, text in self._files())
            self._texts[:0] = held
            self._files = None
        return self._texts


def _text_at(where: str, text: str, trust: Trust = "outside") -> ReadCall:
    return ReadCall(0, where, trust, {}, result=text)
