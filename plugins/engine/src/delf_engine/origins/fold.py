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
from delf_engine.origins.outline import Outline
from delf_engine.origins.scripts import FIELD, Scripts
from delf_engine.origins.texts import mentions, mentions_record, normalized_text
from delf_engine.origins.values import items_of, texts_with_trust, values_of

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
_QUOTATION_SIGNS: Final = re.compile(
    r"^\s*>|forwarded|wrote:|\bcomments?\b|^\s*from:\s*\S+@", re.IGNORECASE | re.MULTILINE
)


class Origins:
    """Traces where the values in one task's calls came from.

    Args:
        task: The user's words.
        context_texts: Returns the texts that the model gets in addition to the task, as tuples of
            the trust in the text, the text, and the source in words. The user's earlier messages
            are trusted; an earlier answer may contain untrusted data.
        tool_of: Returns an action of the task by its name.
        files: Reads the input files, which are untrusted, and returns names and texts.
        has_received_untrusted: Whether scripts can read untrusted data without a call, for example
            in input files.
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
        has_received_untrusted: bool = False,
        untrusted_variables: Collection[str] = (),
    ) -> None:
        self._words = [task]
        # The answers of a person to questions of scripts, which count as the user's words.
        self._answers: set[str] = set()
        # Returns each text of the model's first context, as a tuple of the trust in the text, the
        # text, and the text's source in words. None once the model has been called.
        self._unread_context_texts: Callable[[], Iterable[tuple[Trust, str, str]]] | None = (
            context_texts
        )
        self._tool_of = tool_of
        self._files = files
        self._processed_event_count = 0
        # A task without words of the user was written by a script, and counts as untrusted data.
        self.has_received_untrusted = has_received_untrusted or not task
        """True if the task has received untrusted data, even if no model has read the data.

        Always true for a task that a script wrote, and not the user.
        """
        self.is_author_untainted = bool(task)
        """True if the author of the current script or calls had read no untrusted data.

        The author is the user or the model.
        """
        # The current script; None while the strategy itself makes calls.
        self._code: str | None = None
        self._analysed_scripts = Scripts(self._parameters_of, untrusted_variables)
        self._calls: dict[int, ReadCall] = {}
        self._calls_by_action: dict[str, list[ReadCall]] = defaultdict(list)
        # All texts that the task has read, each as a call with its result.
        self._texts: list[ReadCall] = []
        self._finished_calls_by_action: dict[str, list[ReadCall]] = defaultdict(list)
        # The values that each action has returned, collected when they are first needed.
        self._results: dict[str, Results] = defaultdict(Results)
        # The actions that have returned untrusted data.
        self._untrusted_actions: set[str] = set()
        # Connections that received untrusted data; their later results count as untrusted.
        self._tainted_connections: set[str] = set()
        self.outline = Outline(
            self._calls_by_action,
            tool_of,
            self._sources_in_outline,
            self._is_mentioned_in_untrusted_text,
            self.is_in_user_words,
        )

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty if a script wrote the task."""
        return "\n\n".join(filter(None, self._words))

    def follow(self, events: Sequence[Event]) -> None:
        """Process the events that are new since the last call of this method."""
        for event in events[self._processed_event_count :]:
            match event:
                case CallStarted():
                    self._record_call(event)
                case CallFinished(status="ok" | "error"):
                    self._record_result(event)
                case ModelCalled(purpose="generate"):
                    self._record_context_texts()
                    # A tool of the provider, such as a web search, returns untrusted data.
                    if event.server_side:
                        self.has_received_untrusted = True
                    # The model now writes the next script or calls, and reads all data so far.
                    self.is_author_untainted = not self.has_received_untrusted
                    self._code = None
                case ScriptGenerated(code=code):
                    self._code = code
                    # Only the first call of a model makes _unread_context_texts None. A script that
                    # no model wrote comes from a routine, which the user trusts.
                    was_model_called = self._unread_context_texts is None
                    if not was_model_called:
                        self.is_author_untainted = True
                    if self.is_author_untainted:
                        self._analysed_scripts.add(code)
                case ModelReplied(purpose="outline", text=text):
                    self.outline.add(text)
                case Noted(topic=topic, text=text) if text:
                    self._record_text("outside", text, f"a {topic}")
                case ScriptFinished():
                    self._code = None
                case CallFinished(status="refused", raised="ToolNotAllowed"):
                    # The model reads the reason of the connection's own check, and the reason may
                    # quote untrusted data.
                    tool = self._tool_of(event.action)
                    if tool is None or tool.check is not None:
                        self.has_received_untrusted = True
                case _:
                    pass
        self._processed_event_count = len(events)

    def _record_context_texts(self) -> None:
        """Record the model's initial context, when a model is first asked."""
        context_texts = self._unread_context_texts
        for trust, text, where in context_texts() if context_texts else ():
            if trust == "own" and where == CONVERSATION:
                self._words.append(text)
            else:
                self._record_text(trust, text, where)
        self._unread_context_texts = None

    def _record_text(self, trust: Trust, text: str, where: str) -> None:
        self._texts.append(_as_result(where, text, trust))
        self.has_received_untrusted = self.has_received_untrusted or trust != "own"

    def _record_call(self, event: CallStarted) -> None:
        """Record a call and the trust of its result, and mark a connection that the call taints.

        A connection is tainted if a call may send it untrusted data. The author of a call is the
        model, or the user who saved a routine. An untainted author wrote the call before reading
        any untrusted data.
        """
        tool = self._tool_of(event.action)
        declared = tool.trust_of(event.arguments) if tool else None
        call = ReadCall(
            number=event.call_id,
            action=event.action,
            trust=declared or (tool.action.trust if tool else "outside"),
            arguments=event.arguments,
            tool=tool,
            is_author_untainted=self.is_author_untainted,
            changes=event.effect != "read",
        )
        # A service may later return texts that it received, even the search terms of a read.
        can_store_arguments = call.changes or (self.is_author_untainted and call.connection != "")
        may_send_untrusted = self.has_received_untrusted and can_store_arguments
        may_taint = may_send_untrusted and call.connection not in self._tainted_connections
        needs_argument_check = bool(declared) or may_taint
        if needs_argument_check and not self.are_only_from_user(
            event.action, event.arguments, event.line
        ):
            # Untrusted data in the arguments decides what the call finds, so the declared trust of
            # the result does not hold. A call of a tainted author is compared with the outline
            # instead.
            if self.is_author_untainted and declared:
                call.trust = "outside"
            if may_send_untrusted:
                self._tainted_connections.add(call.connection)
        self._calls[event.call_id] = call
        self._calls_by_action[event.action].append(call)

    def _record_result(self, event: CallFinished) -> None:
        """Record a call's result, with its trust."""
        # If the call's start is missing, its arguments are unknown.
        unknown = ReadCall(event.call_id, event.action, "outside", {})
        call = self._calls.get(event.call_id, unknown)
        call.result = event.error if event.result is None else event.result
        call.has_failed = event.status != "ok"
        if call.trust == "own" and call.connection in self._tainted_connections:
            call.trust = "outside"  # the connection may return untrusted data that it received
        if event.action == ASK and event.status == "ok":
            self._answers.add(normalized_text(str(call.result)))
            # A typed answer adds to the user's words. A chosen option does not, because the option
            # may be untrusted data.
            if isinstance(call.result, str) and not call.arguments.get("options"):
                self._words.append(call.result)
        self._texts.append(call)
        self._finished_calls_by_action[event.action].append(call)
        if call.trust != "own":
            self._untrusted_actions.add(event.action)
            self.has_received_untrusted = True

    def texts_to_obey(self) -> Iterator[str]:
        """Yield the texts whose instructions the user tells the agent to obey.

        A text counts if the task's outline has a call that reads the text in order to obey it, if
        the user's words name the text's author, and if the service reports the same author. A text
        that seems to quote another person does not count.
        """
        for call in self._calls.values():
            author_field = None if call.tool is None else call.tool.action.author
            if not author_field:
                continue
            planned_calls = self.outline.calls_with_instructions
            if not any(self.outline.is_call(planned, call) for planned in planned_calls):
                continue
            for record in items_of(call.result):
                # The author comes from a field of the record or the call, never from the text.
                fields = cast("Any", record if isinstance(record, dict) else call.arguments)
                lines = (
                    f"{path.lstrip('.')}: {text}" for _, path, text in texts_with_trust(record)
                )
                text, author = "\n".join(lines)[:_MAX_FOLLOWED_LENGTH], fields.get(author_field)
                # A quotation may contain instructions of another person than the text's author.
                may_quote_others = _QUOTATION_SIGNS.search(text) is not None
                if (
                    isinstance(author, str)
                    and self.is_in_user_words(author)
                    and not may_quote_others
                ):
                    yield text

    def is_only_from_user(self, action: str, path: str, text: str, line: int | None) -> bool:
        """Return whether a value in a call comes only from the user's own data.

        The script's author, a model or the user, must have written the script before reading any
        untrusted data. The script must compute the value only from constants, and from parts of
        results that have the user's own data.

        Args:
            action: The called action.
            path: The path of the value in the arguments.
            text: The value.
            line: The line of the script with the call, if known.
        """
        if not self.is_author_untainted:
            return False
        # A source is the name of an action, or FIELD and the name of a field that the script reads.
        sources = self.untrusted_sources(action, path, line)
        if sources is None:  # the script does not show where the value comes from
            return False
        actions = {source for source in sources if source[0] != FIELD}
        field_names = {source.removeprefix(FIELD) for source in sources - actions}
        # An action may return untrusted data in some fields, and the user's own data in others.
        return all(self._is_only_in_trusted_fields(name, text, field_names) for name in actions)

    def are_only_from_user(
        self, action: str, arguments: Mapping[str, Any], line: int | None
    ) -> bool:
        """Return whether all values in a call come only from the user's own data.

        Args:
            action: The called action.
            arguments: The arguments of the call.
            line: The line of the script with the call, if known.
        """
        # Until the task has received data of others, the user's data is all that there is.
        if not self.has_received_untrusted:
            return True
        return all(
            self.is_only_from_user(action, path, text, line) for path, text in values_of(arguments)
        )

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
        return self._analysed_scripts.sources(action, path, line)

    def untrusted_sources(
        self, action: str, path: str, line: int | None
    ) -> AbstractSet[str] | None:
        """Return the actions that a value comes from and that may have returned others' data.

        The fields that the script reads are included, as ``.field``. None if the script does not
        show where the value comes from.
        """
        sources = self.sources(action, path, line)
        if sources is None:
            return None
        return {source for source in sources if not self._returned_only_own(source)}

    def _sources_in_outline(self, node: ast.expr) -> AbstractSet[str]:
        """Return the actions and fields that an expression in an outline uses.

        An outline is a script with the calls that the user's words ask for; it is never run.
        """
        return Scripts(self._parameters_of).read(node)

    def _parameters_of(self, action: str) -> Sequence[str] | None:
        tool = self._tool_of(action)
        return None if tool is None else [each.name for each in tool.action.parameters]

    def _returned_only_own(self, action: str) -> bool:
        """Return whether the user wrote all data that an action has returned so far."""
        tool = self._tool_of(action)
        if tool is None or action in self._untrusted_actions:
            return False
        # An action with a finished call has returned only the user's own data, because the action
        # is not in _untrusted_actions. Before the first result, the action's declaration decides.
        has_result = bool(self._finished_calls_by_action[action])
        return has_result or tool.action.trust == "own"

    def _is_only_in_trusted_fields(self, action: str, text: str, fields: Collection[str]) -> bool:
        """Return whether a value is in an action's results, and only in trusted parts of them.

        Args:
            action: The action.
            text: The value.
            fields: The fields that the script reads from the results; these must be trusted, too.
        """
        results = self._results[action]
        new_calls = self._finished_calls_by_action[action][results.count :]
        for call in new_calls:
            results.add(call)
        return results.has_only_own(normalized_text(text), fields)

    def unplanned_read(self) -> ReadCall | None:
        """Return the first successful read that the task's outline does not ask for.

        A read that the model wrote before it had received untrusted data is ignored, because
        nobody else can have caused the read.
        """
        for call in self._calls.values():
            is_built_in = call.tool is not None and call.tool.built_in
            is_read = not (call.changes or is_built_in)
            may_be_caused_by_others = is_read and not call.is_author_untainted
            if may_be_caused_by_others and not call.has_failed and not self.outline.has(call):
                return call
        return None

    def find(self, text: str) -> Origin:
        """Find the most likely source of a value."""
        if self.is_in_user_words(text):
            return Origin(kind="task", trust="own")
        code = self._code
        is_in_script = code is not None and mentions(code, text)
        # An untainted author, the model or the user, wrote the script before reading any
        # untrusted data. The value in the script can therefore only come from the user.
        if self.is_author_untainted and is_in_script:
            return Origin(kind="script", trust="own")
        if found := find_in(self._all_read_calls(), text):
            return found
        # The model may have made up the value under the influence of untrusted data. Without a
        # script, the model wrote the call's arguments directly.
        if not self.is_author_untainted and (code is None or is_in_script):
            return Origin(kind="script", trust="outside")
        # There is no untrusted data from which the value could come.
        if not text.strip() or not self.has_received_untrusted:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def is_in_user_words(self, text: str) -> bool:
        """Return whether a value occurs in the user's words."""
        return self.is_answer(text) or any(mentions(words, text) for words in self._words)

    def is_answer(self, text: str) -> bool:
        """Return whether a value is the whole answer of a person to a question."""
        return normalized_text(text) in self._answers

    def _is_mentioned_in_untrusted_text(self, identifier: str) -> bool:
        """Return whether an untrusted text has a record's identifier and also other words.

        A text that is only the identifier, such as a field ``id``, does not mention the record.
        """
        # A text without a call, such as an input file, stands here as the result of a call, too.
        return any(
            trust == "outside" and mentions_record(text, identifier)
            for call in self._all_read_calls()
            for trust, _, text in texts_with_trust(call.result, call.trust)
        )

    def _all_read_calls(self) -> Sequence[ReadCall]:
        """Return all texts that the task has read, as results of calls.

        The task's input files are read when this method is first called.
        """
        read_files = self._files
        if read_files is not None:
            contents = (_as_result(f"the input file {name}", text) for name, text in read_files())
            self._texts[:0] = contents
            self._files = None  # the files are read only once
        return self._texts


def _as_result(source: str, text: str, trust: Trust = "outside") -> ReadCall:
    """Wrap a text that no call returned, such as an input file, to search it like a result."""
    return ReadCall(0, source, trust, {}, result=text)
