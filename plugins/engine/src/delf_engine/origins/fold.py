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
from dataclasses import field
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

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
from delf.records import dataclass
from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.origin import Origin, PastCall, Results, find_in
from delf_engine.origins.outline import Outline
from delf_engine.origins.scripts import Scripts
from delf_engine.origins.sources import UNKNOWN, Source, Sources, field_names_used
from delf_engine.origins.texts import (
    letters_and_digits,
    mentions,
    mentions_record,
    normalized_text,
)
from delf_engine.origins.values import items_of, texts_with_trust, values_of

CONVERSATION: Final = "this conversation"
ANSWER: Final = "an earlier answer"
MEMORY: Final = "memory"
VARIABLE: Final = "this conversation's variable"
PARENT: Final = "the words of this task"
# The maximum length of a text whose instructions the agent shall obey, in characters; the rest is
# cut off.
_MAX_FOLLOWED_LENGTH: Final = 20_000
# Patterns that show that a text quotes another person.
_QUOTATION_SIGNS: Final = re.compile(
    r"^[^\S\n]*>|forwarded|wrote:|\bcomments?\b|^[^\S\n]*from:\s*\S+@", re.IGNORECASE | re.MULTILINE
)


class ContextText(NamedTuple):
    """A text that the model gets in addition to the task, such as an earlier answer."""

    trust: Trust
    text: str
    source: str
    """The source of the text, in words."""
    is_description: bool = False
    """True for a text that describes a connection, such as its tables."""


@dataclass()
class _History:
    """The calls of a task so far, and the texts that the task has read without a call."""

    calls: dict[int, PastCall] = field(default_factory=dict[int, PastCall])
    """The calls that have started, by their number in the events."""
    calls_by_action: dict[str, list[PastCall]] = field(default_factory=lambda: defaultdict(list))
    finished_calls_by_action: dict[str, list[PastCall]] = field(
        default_factory=lambda: defaultdict(list)
    )
    searchable_calls: list[PastCall] = field(default_factory=list[PastCall])
    """The finished calls, and a made-up call for each text that no call returned."""
    results: dict[str, Results] = field(default_factory=lambda: defaultdict(Results))
    """The values that each action has returned, collected when they are first needed."""
    untrusted_actions: set[str] = field(default_factory=set[str])
    """The actions that have returned untrusted data."""
    tainted_connections: set[str] = field(default_factory=set[str])
    """Connections that received untrusted data; their later results count as untrusted."""


class Origins:
    """Traces where the values in one task's calls came from.

    Args:
        task: The user's words; empty if a script wrote the task.
        read_context_texts: Returns the texts that the model gets in addition to the task. The
            user's earlier messages are trusted; an earlier answer may contain untrusted data.
        tool_of: Returns an action of the task by its name.
        read_files: Reads the input files, which are untrusted, and returns pairs of a name and a
            text.
        has_received_untrusted: Whether scripts can read untrusted data without a call, for example
            in input files.
        untrusted_variables: The names of the script's variables that already hold untrusted values
            when the first script starts. A routine has such variables if its arguments are
            untrusted.
    """

    def __init__(
        self,
        task: str,
        read_context_texts: Callable[[], Iterable[ContextText]],
        tool_of: Callable[[str], BoundAction | None],
        read_files: Callable[[], Iterable[tuple[str, str]]] | None = None,
        *,
        has_received_untrusted: bool = False,
        untrusted_variables: Collection[str] = (),
    ) -> None:
        # The user's words: the task, earlier messages and typed answers.
        self._user_texts = [task]
        # The answers of a person to questions of scripts, which count as the user's words.
        self._answers: set[str] = set()
        # The texts of the model's initial context, which are recorded at the first model call.
        self._read_context_texts = read_context_texts
        self._was_model_called = False
        # The author of the current script had read the results of this many searchable calls.
        self._read_call_count = 0
        self._tool_of = tool_of
        self._read_files = read_files
        # The number of events that follow() has processed; a further call of follow() skips these.
        self._processed_event_count = 0
        # A task without the user's words was written by a script, perhaps from untrusted data.
        is_written_by_script = not task
        self.has_received_untrusted = has_received_untrusted or is_written_by_script
        """True if untrusted data has reached the task, even if no model has read the data."""
        self.has_author_read_untrusted_data = is_written_by_script
        """True if the author of the running script had read untrusted data before writing it.

        The author is the model, or the user who saved a routine. Without a script, the author is
        the model that made the calls.
        """
        # The current script; None while the strategy itself makes calls.
        self._current_script: str | None = None
        self._analysed_scripts = Scripts(self._parameters_of, untrusted_variables)
        self._history = _History()
        self.outline = Outline(
            self._history.calls_by_action,
            tool_of,
            self._sources_in_outline,
            self._is_mentioned_in_untrusted_text,
            self.is_in_user_words,
        )

    @property
    def user_words(self) -> str:
        """All texts that the user wrote: the task, then earlier messages and typed answers.

        A task that a script wrote is left out.
        """
        return "\n\n".join(filter(None, self._user_texts))

    def follow(self, events: Sequence[Event]) -> None:
        """Process the events that are new since the last call of this method.

        A recorded call belongs to ``_current_script``, or to the model's last answer if no script
        is running.
        """
        for event in events[self._processed_event_count :]:
            match event:
                case CallStarted():
                    self._record_call(event)
                case CallFinished(status="ok" | "error"):
                    self._record_result(event)
                case CallFinished(status="refused", raised="ToolNotAllowed"):
                    # The model reads the reason of the connection's own check, and the reason may
                    # quote untrusted data.
                    tool = self._tool_of(event.action)
                    if tool is None or tool.check is not None:
                        self.has_received_untrusted = True
                case ModelCalled(purpose="generate"):
                    self._record_model_call(event)
                case ScriptGenerated(code=code):
                    self._record_script(code)
                case ModelReplied(purpose="outline", text=text):
                    self.outline.add(text)
                # A script may have written the note from untrusted data, for example for
                # ``rerun()``.
                case Noted(topic=topic, text=text) if text:
                    self._record_text(ContextText("outside", text, f"a {topic}"))
                case ScriptFinished():
                    self._current_script = None
                case _:
                    pass
        self._processed_event_count = len(events)

    def _record_model_call(self, event: ModelCalled) -> None:
        """Record that the model becomes the author of the next script or calls."""
        if not self._was_model_called:
            self._record_context_texts()
            self._was_model_called = True
        # A tool of the provider, such as a web search, returns untrusted data.
        if event.server_side:
            self.has_received_untrusted = True
        # The model reads all data that the task has received so far.
        self.has_author_read_untrusted_data = self.has_received_untrusted
        self._read_call_count = len(self._history.searchable_calls)
        self._current_script = None

    def _record_script(self, code: str) -> None:
        """Record a new script; analyse a script whose author had read no untrusted data."""
        self._current_script = code
        is_from_routine = not self._was_model_called
        if is_from_routine:
            # The author is the user, who saved the routine before this task received any data.
            self.has_author_read_untrusted_data = False
        if not self.has_author_read_untrusted_data:
            self._analysed_scripts.add(code)

    def _record_context_texts(self) -> None:
        """Record the texts of the model's initial context."""
        for each in self._read_context_texts():
            # The user's earlier messages count as the user's words.
            if each.trust == "own" and each.source == CONVERSATION:
                self._user_texts.append(each.text)
            else:
                self._record_text(each)

    def _record_text(self, context: ContextText) -> None:
        trust = context.trust
        # Values may come from a text as from a result: a made-up call has the text as its result.
        call = _as_call(context.source, context.text, trust)
        call.is_description = context.is_description
        self._history.searchable_calls.append(call)
        self.has_received_untrusted = self.has_received_untrusted or trust != "own"

    def _record_call(self, event: CallStarted) -> None:
        """Record a started call.

        If the call may have brought untrusted data into its connection, mark the connection as
        tainted.
        """
        call = self._past_call(event)
        # The arguments are checked last, because the check is slow.
        if self._may_taint_connection(call) and not self._has_own_arguments(event):
            self._history.tainted_connections.add(call.connection)
        self._history.calls[event.call_id] = call
        self._history.calls_by_action[event.action].append(call)

    def _past_call(self, event: CallStarted) -> PastCall:
        """Return the record of a started call, with the trust that its result will have."""
        tool = self._tool_of(event.action)
        return PastCall(
            number=event.call_id,
            action=event.action,
            trust="outside" if tool is None else self._trust_of_result(event, tool),
            arguments=event.arguments,
            tool=tool,
            has_author_read_untrusted_data=self.has_author_read_untrusted_data,
            changes_data=event.effect != "read",
        )

    def _trust_of_result(
        self, event: CallStarted, tool: BoundAction
    ) -> Trust | Mapping[str, Trust]:
        """Return the trust of a call's result, as the connection or the action declares it."""
        trust_by_arguments = tool.trust_of(event.arguments)
        if not trust_by_arguments:
            return tool.action.trust
        # In ``files.read(mail.subject)``, a stranger chooses which of the user's files is read, so
        # the result is untrusted. If the author has read untrusted data, no argument counts as the
        # user's, and every result would be untrusted. In that case, the result keeps its trust, and
        # unplanned_read() finds the reads that the user did not ask for.
        if self.has_author_read_untrusted_data or self._has_own_arguments(event):
            return trust_by_arguments
        return "outside"

    def _has_own_arguments(self, event: CallStarted) -> bool:
        return self.are_only_from_user(event.action, event.arguments, event.line)

    def _may_taint_connection(self, call: PastCall) -> bool:
        """Return whether a call may bring the first untrusted data into a connection.

        The service may return that data later, for example a note that the call adds, or the search
        terms of a read.
        """
        if call.connection in self._history.tainted_connections:
            return False  # there is nothing more to record
        if not self.has_received_untrusted:
            return False
        if call.changes_data:
            return True
        if self.has_author_read_untrusted_data:
            # The model has read untrusted data, so each later read would taint its connection.
            # unplanned_read() checks such reads instead.
            return False
        return call.connection != ""  # a service, and not a plain tool

    def _record_result(self, event: CallFinished) -> None:
        """Record a call's result with its trust: ``own`` for the user's data, else ``outside``."""
        call_without_start = PastCall(event.call_id, event.action, "outside", {})
        call = self._history.calls.get(event.call_id, call_without_start)
        call.result = event.error if event.result is None else event.result
        call.has_failed = event.status != "ok"
        if call.trust == "own" and call.connection in self._history.tainted_connections:
            call.trust = "outside"  # the connection may return untrusted data that it received
        if event.action == ASK and event.status == "ok":
            self._answers.add(normalized_text(str(call.result)))
            # A typed answer adds to the user's words. A chosen option does not, because the option
            # may be untrusted data.
            if isinstance(call.result, str) and not call.arguments.get("options"):
                self._user_texts.append(call.result)
        self._history.searchable_calls.append(call)
        self._history.finished_calls_by_action[event.action].append(call)
        if call.trust != "own":
            self._history.untrusted_actions.add(event.action)
            self.has_received_untrusted = True

    def texts_to_obey(self) -> Iterator[str]:
        """Yield the texts whose instructions the user tells the agent to obey.

        The outline is the list of calls that a model planned from the user's words alone. A text
        counts if it meets all of these conditions:

        - The outline marks the call that read the text as one whose result the agent shall obey.
        - The service reports the text's author, in a field that the action declares.
        - The user's words name this author.
        - The text does not seem to quote another person.
        """
        for call in self._history.calls.values():
            author_field = None if call.tool is None else call.tool.action.author
            if not author_field or not self.outline.says_to_obey(call):
                continue
            for record in items_of(call.result):
                # The author comes from a field of the record or the call, never from the text.
                fields = cast("Any", record if isinstance(record, dict) else call.arguments)
                author = fields.get(author_field)
                if not isinstance(author, str) or not self.is_in_user_words(author):
                    continue
                text = _as_lines(record)[:_MAX_FOLLOWED_LENGTH]
                # A quotation may contain instructions of another person than the text's author.
                may_quote_others = _QUOTATION_SIGNS.search(text) is not None
                if not may_quote_others:
                    yield text

    def is_only_from_user(self, action: str, path: str, text: str, line: int | None) -> bool:
        """Return whether a value in a call comes only from the user's own data.

        Two conditions must be met. The author of the script, a model or the user, wrote the script
        before reading any untrusted data. And the script computes the value only from constants and
        from those parts of results that hold the user's own data.

        Args:
            action: The called action.
            path: The path of the value in the arguments.
            text: The value.
            line: The line of the script with the call, if known.
        """
        if self.has_author_read_untrusted_data:
            return False
        sources = self.untrusted_sources(action, path, line)
        if sources is None or UNKNOWN in sources:
            return False
        # An action may return untrusted data in some fields, and the user's own data in others.
        actions = {source.action for source in sources if source.action is not None}
        return all(
            self._results_of(name).is_only_in_user_data(
                normalized_text(text), field_names_used(sources, name)
            )
            for name in actions
        )

    def are_only_from_user(
        self, action: str, arguments: Mapping[str, Any], line: int | None
    ) -> bool:
        """Return whether all values in a call come only from the user's own data.

        Args:
            action: The called action.
            arguments: The arguments of the call.
            line: The line of the script with the call, if known.
        """
        # A task that has received no data of others has only the user's own data.
        if not self.has_received_untrusted:
            return True
        return all(
            self.is_only_from_user(action, path, text, line) for path, text in values_of(arguments)
        )

    def sources(self, action: str, path: str, line: int | None) -> Sources | None:
        """Return the sources of an argument, by analysis of the script; None if they are unknown.

        Args:
            action: The called action.
            path: The path of a value in the arguments.
            line: The line of the script with the call, if known.
        """
        if self._current_script is None:
            # Without a script, the model itself wrote the arguments of the call.
            return frozenset()
        return self._analysed_scripts.sources(action, path, line)

    def untrusted_sources(self, action: str, path: str, line: int | None) -> Sources | None:
        """Return those sources of an argument that may contain data of other people.

        Return None if the script does not show where the argument comes from.
        """
        sources = self.sources(action, path, line)
        if sources is None:
            return None
        untrusted: set[Source] = set()
        for source in sources:
            is_user_data = source.action is not None and self._returned_only_user_data(
                source.action
            )
            if not is_user_data:
                untrusted.add(source)
        return untrusted

    def _sources_in_outline(self, node: ast.expr) -> Sources:
        """Return the sources of an expression in an outline.

        The sources are the names of the actions that the expression calls, and the fields that it
        reads from their results. An outline lists the calls that the user's words ask for, as a
        script that is never run.
        """
        return Scripts(self._parameters_of).sources_of_expression(node)

    def _parameters_of(self, action: str) -> Sequence[str] | None:
        tool = self._tool_of(action)
        if tool is None:
            return None
        return [each.name for each in tool.action.parameters]

    def _returned_only_user_data(self, action: str) -> bool:
        """Return whether the user wrote all data that an action has returned so far."""
        tool = self._tool_of(action)
        if tool is None or action in self._history.untrusted_actions:
            return False
        has_result = bool(self._history.finished_calls_by_action[action])
        if has_result:
            return True  # a result with data of others would have put it into untrusted_actions
        return tool.action.trust == "own"

    def _results_of(self, action: str) -> Results:
        """Return the texts in the results of an action's finished calls; add new results first."""
        results = self._history.results[action]
        finished_calls = self._history.finished_calls_by_action[action]
        for call in finished_calls[results.count :]:
            results.add(call)
        return results

    def unplanned_read(self) -> PastCall | None:
        """Return the first read that a stranger may have caused; None without such a read.

        A stranger can cause a read only after the model has read untrusted data. Failed reads and
        reads by built-in actions do not count. The reads in the task's outline do not count either,
        because the user asked for them.
        """
        for call in self._history.calls.values():
            # An action of delf itself, such as ``files.read``, sends its arguments to no service.
            is_built_in = call.tool is not None and call.tool.built_in
            if call.changes_data or call.has_failed or is_built_in:
                continue
            if call.has_author_read_untrusted_data and not self.outline.contains(call):
                return call
        return None

    def find(self, text: str) -> Origin:
        """Find the most likely source of a value: the first of these that contains the value.

        - The user's words, which are trusted.
        - The script, if its author had read no untrusted data. The script is then trusted.
        - A text that the task has read, such as the result of a call. For a value in the script,
          the text must have been read before the script was written.

        The source of any other value depends on who may have made it up: see
        :meth:`_origin_of_new_value`. The author of a script is the model, or the user who saved a
        routine.
        """
        if self.is_in_user_words(text):
            return Origin(kind="task", trust="own")
        if self._is_in_script(text) and not self.has_author_read_untrusted_data:
            return Origin(kind="script", trust="own")
        found = find_in(self._possible_source_calls(text), text)
        return self._origin_of_new_value(text) if found is None else found

    def find_mention(self, text: str) -> Origin | None:
        """Find a value as whole words in the texts that others wrote; return None if not found.

        Unlike :meth:`find`, this also finds a short value within a longer text. The descriptions of
        connections are not searched, because nearly every call has words from these, such as the
        names of tables.
        """
        letters = letters_and_digits(text)
        for call in self._possible_source_calls(text):
            # Quick tests first: a result may have a hundred thousand values.
            if call.is_description or letters not in call.searchable_text:
                continue
            for value in call.searchable_values:
                may_have_text = value.trust == "outside" and letters in value.letters
                if may_have_text and mentions(value.text, text):
                    return Origin(
                        kind="result",
                        trust="outside",
                        call_id=call.number,
                        action=call.action,
                        path=value.path,
                        is_part=value.text != text,
                    )
        return None

    def _is_in_script(self, text: str) -> bool:
        return self._current_script is not None and mentions(
            self._current_script, text, is_script=True
        )

    def _origin_of_new_value(self, text: str) -> Origin:
        """Return the origin of a value that occurs in no text that the task has read."""
        # Without a script, the model wrote the call's arguments directly.
        is_written_by_model = self._current_script is None or self._is_in_script(text)
        if is_written_by_model and self.has_author_read_untrusted_data:
            # The model may have made up the value under the influence of untrusted data.
            return Origin(kind="script", trust="outside")
        # A script may compute the value from all data that the task has received.
        may_contain_untrusted = self.has_received_untrusted and text.strip() != ""
        if may_contain_untrusted:
            return Origin(kind="unknown", trust="outside")
        return Origin(kind="script", trust="own")

    def is_in_user_words(self, text: str) -> bool:
        """Return whether a value occurs in the user's words.

        A person's answers to questions count as the user's words, too.
        """
        return self.is_answer(text) or any(mentions(words, text) for words in self._user_texts)

    def is_answer(self, text: str) -> bool:
        """Return whether a value is the whole answer of a person to a question."""
        return normalized_text(text) in self._answers

    def _is_mentioned_in_untrusted_text(self, identifier: str) -> bool:
        """Return whether an untrusted text mentions a record by its identifier.

        A text that is only the identifier, such as a field ``id``, does not mention the record.
        """
        # The results include input files, each as the result of a made-up call.
        for call in self._all_searchable_calls():
            for value in call.searchable_values:
                if value.trust == "outside" and mentions_record(value.text, identifier):
                    return True
        return False

    def _possible_source_calls(self, text: str) -> Sequence[PastCall]:
        """Return the calls from whose results a value may come."""
        if self._is_in_script(text):
            return [*self._file_calls, *self._history.searchable_calls[: self._read_call_count]]
        return self._all_searchable_calls()

    def _all_searchable_calls(self) -> Sequence[PastCall]:
        """Return the input files as made-up calls, then all other searchable calls."""
        return [*self._file_calls, *self._history.searchable_calls]

    @cached_property
    def _file_calls(self) -> Sequence[PastCall]:
        """The task's input files, each as the result of a made-up call."""
        files = () if self._read_files is None else self._read_files()
        return [_as_call(f"the input file {name}", text) for name, text in files]


def _as_lines(record: Any) -> str:
    """Return the texts in a record, one a line, each after its path."""
    texts = texts_with_trust(record)
    return "\n".join(f"{path.lstrip('.')}: {text}" for _, path, text in texts)


def _as_call(source: str, text: str, trust: Trust = "outside") -> PastCall:
    """Return a made-up call whose result is a text, so that the text is searched like a result.

    No real call returned the text, which is, for example, the content of an input file.
    """
    return PastCall(0, source, trust, {}, result=text)
