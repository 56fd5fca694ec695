"""Flows: detection of calls that a stranger's text may have caused.

A text that a task reads, such as a mail, may contain a stranger's instructions. A call passes if
all values that decide its effect are known to be the user's own. Values of unknown origin count as
a stranger's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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
from delf_engine.origins.origin import Origin
from delf_engine.origins.outline import SourcesByParameter
from delf_engine.origins.sources import Source, Sources
from delf_engine.origins.texts import has_address_or_code, parts_of
from delf_engine.origins.values import MAX_LEAVES, is_content, names_in, parameter_of, values_of

# The maximum number of values whose origins are compared, to show the most suspicious one.
_MAX_TRACED_VALUES: Final = 20
# The maximum number of parts of one call's values, such as quoted texts, that are searched for.
_MAX_PARTS: Final = 100
# The minimum number of characters of a word that two texts do not share by chance.
_MIN_LENGTH: Final = 3


class TaskFlows:
    """Traces the values of a task's calls, and finds the calls that a stranger may have caused.

    Args:
        origins: Finds where the values of calls came from.
        request_outline: Asks a model for an outline: the calls that the user's words ask for. Its
            argument are the texts that the user wants the agent to obey, such as a file with
            instructions.
        log: The task's events.
        allowed_flows: Data flows that need no review, from the settings, such as
            ``mail.read.sender -> mail.send.to``.
    """

    def __init__(
        self,
        origins: Origins,
        request_outline: Callable[[Sequence[str]], Awaitable[None]],
        log: TaskLog,
        allowed_flows: Sequence[str],
    ) -> None:
        self._origins = origins
        self._request_outline = request_outline
        self._log = log
        self._allowed_flows = tuple(allowed_flows)
        # The number of texts that the model got when last asked for an outline: the task, and each
        # text that the user wants the agent to obey. 0 if the model has not been asked.
        self._shown_text_count = 0
        self._outline_lock = asyncio.Lock()

    def sources(self, arguments: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
        """Return the origin of each value in a call's arguments, as plain data by value path."""
        self._origins.follow(self._log.events)
        texts = values_of(self._log.redactor.redact_value(arguments))
        return {path: self._origins.find(text).data() for path, text in islice(texts, MAX_LEAVES)}

    def current_reason(self, call: Call, learned_rules: Sequence[str] = ()) -> str | None:
        """Return why a person should review a call; None if no review is needed.

        Unlike :meth:`reason_to_review`, this method does not ask the model to extend the outline.

        Args:
            call: The call.
            learned_rules: Data flows that a person's approvals allow, in addition to the settings.
        """
        return self._reason_unless_harmless(call, _Suspect.reason_to_review, learned_rules)

    def reason_to_show(self, call: Call) -> str | None:
        """Return a remark for a person who is asked about a call anyway; None without a remark.

        The model is not asked for an outline, so the remark only says where values of the call
        occur.
        """
        return self._reason_unless_harmless(call, _Suspect.reason_to_notice)

    def _reason_unless_harmless(
        self,
        call: Call,
        reason_of: Callable[[_Suspect], str | None],
        learned_rules: Sequence[str] = (),
    ) -> str | None:
        """Return what ``reason_of`` says about a call; None if no stranger can profit by the call.

        No stranger can profit by:

        - a read without ``egress``, which changes nothing and sends no data out
        - a call of a built-in action
        - a call before the task has received untrusted data

        Any other call with more than ``MAX_LEAVES`` values has a reason, whatever ``reason_of``
        says. Values that a person edited are no stranger's, so ``reason_of`` does not see them.
        """
        action = call.bound.action
        is_harmless_read = action.effect == "read" and not action.egress
        if call.bound.built_in or is_harmless_read:
            return None
        self._origins.follow(self._log.events)
        if not self._origins.has_received_untrusted:
            return None
        redacted = self._log.redactor.redact_value(call.arguments)
        text_by_path = dict(islice(values_of(redacted), MAX_LEAVES + 1))
        if len(text_by_path) > MAX_LEAVES:
            return "it has too many values to look for each of them"
        rules = (*self._allowed_flows, *learned_rules)
        unedited = {
            path: text
            for path, text in text_by_path.items()
            if parameter_of(path) not in call.edited
        }
        edited = frozenset(call.edited)
        suspect = _Suspect(self._origins, call.bound, redacted, unedited, edited, call.line, rules)
        return reason_of(suspect)

    async def reason_to_review(
        self, call: Call, read_rules: Callable[[], Awaitable[Sequence[str]]] | None = None
    ) -> str | None:
        """Return why a person should review a call; None if no review is needed.

        If the call is suspicious, a model first lists the calls that the user's words ask for. A
        listed call needs no review.

        Args:
            call: The call.
            read_rules: Reads the rules from a person's approvals; called only if needed.
        """
        reason = self.current_reason(call)
        if reason is None:
            return None
        rules = () if read_rules is None else await read_rules()
        # Ask again even if there are no rules: a concurrent call may have extended the outline.
        reason = self.current_reason(call, rules)
        while reason is not None and await self._extend_outline():
            reason = self.current_reason(call, rules)
        return reason

    async def _extend_outline(self) -> bool:
        """Ask the model to extend the outline; return whether the outline has been extended.

        If a concurrent call of this method has extended the outline, the model is not asked again.
        """
        outline = self._origins.outline
        previous_count = outline.answer_count
        async with self._outline_lock:
            if outline.answer_count == previous_count:
                await self._ask_about_new_texts()
            return outline.answer_count > previous_count

    async def _ask_about_new_texts(self) -> None:
        """Ask the model for an outline of the calls that the user wants.

        The model reads the user's texts: the task, and other texts that the user wants the agent to
        obey, such as a file. Without a text that is new to the model, the model is not asked.
        """
        origins = self._origins
        if not origins.user_words:  # a script wrote the task
            return
        texts_to_obey = [*origins.texts_to_obey()]
        text_count = 1 + len(texts_to_obey)  # with the task
        # A resume sets the count of shown texts back to 0. The outline still has the earlier
        # answers, and the model has seen at least one new text for each of them.
        seen_text_count = max(self._shown_text_count, origins.outline.answer_count)
        if seen_text_count >= text_count:
            return
        self._shown_text_count = text_count
        # The answer is recorded as an event, from which follow() adds it to the outline.
        await self._request_outline(texts_to_obey)
        origins.follow(self._log.events)


@dataclass(frozen=True)
class _Suspect:
    """A call that instructions in untrusted data may have caused.

    Args:
        origins: The origins of the task's values.
        bound: The called action.
        arguments: The arguments.
        text_by_path: The text of each value in the arguments, by its path; without edited values.
        edited: The names of the arguments that people edited.
        line: The line of the script with the call, if known.
        rules: Data flows that need no review.
    """

    origins: Origins
    bound: BoundAction
    arguments: Mapping[str, Any]
    text_by_path: Mapping[str, str]
    edited: Collection[str]
    line: int | None
    rules: Sequence[str]

    def reason_to_review(self) -> str | None:
        """Return why a person has to review the call; None if nobody has to.

        A call needs no review if all values that decide its effect are the user's own, or if the
        user's words ask for the call.
        """
        if self.origins.has_author_read_untrusted_data:
            return self._reason_after_untrusted_read(self._deciding_paths)
        return self._reason_before_untrusted_read(self._deciding_paths)

    def reason_to_notice(self) -> str | None:
        """Return why a person should notice the call; None if there is no such reason.

        If the author of the call has read no untrusted data, or if the call has no values, return
        the reason of :meth:`reason_to_review`. Otherwise, the first of these applies:

        - A value occurs in untrusted data.
        - A value occurs nowhere, because the script computed the value.
        - The values have too many parts to search for all of them: return the reason of
          :meth:`reason_to_review`.
        """
        # A call without values has no origins to look at. If the call's author has read no
        # untrusted data, reason_to_review() already looks only at the origins of the values.
        if not self.origins.has_author_read_untrusted_data or not self.text_by_path:
            return self.reason_to_review()
        reason_about_computed_value = None
        paths = self._deciding_paths or [*self.text_by_path]
        for path, origin in self._origins_of_values(paths):
            if origin.is_from_untrusted_data:
                return self._reason_about_value(path, origin)
            if origin.kind == "unknown" and reason_about_computed_value is None:
                reason_about_computed_value = self._reason_about_value(path, origin)
        if reason_about_computed_value is not None:
            return reason_about_computed_value
        if self._has_unsearched_parts(paths):
            # One of the unsearched parts may be a stranger's. Without an outline,
            # reason_to_review() returns a reason for each call.
            return self.reason_to_review()
        return None

    def _has_unsearched_parts(self, paths: Sequence[str]) -> bool:
        """Return whether values have more parts than :meth:`_origins_of_values` looks for."""
        count_up_to_limit = sum(1 for _ in islice(self._parts(paths), _MAX_PARTS + 1))
        return count_up_to_limit > _MAX_PARTS

    def _parts(self, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each part of the values at some paths."""
        return ((path, part) for path in paths for part in parts_of(self.text_by_path[path]))

    def _origins_of_values(self, paths: Sequence[str]) -> Iterator[tuple[str, Origin]]:
        """Yield the path and origin of each value, and of parts found in untrusted data.

        Parts of a value are literals, such as quoted texts, and words, such as ``DELETE``.
        """
        for path in paths:
            text = self.text_by_path[path]
            # Most keys of records, and very short words, are in some text by chance.
            is_key = "[key " in path
            is_short_word = len(text) < _MIN_LENGTH and not text.isdigit()
            can_be_by_chance = is_key or is_short_word
            yield path, self._origin_of(text, can_be_by_chance=can_be_by_chance)
        for path, part in islice(self._parts(paths), _MAX_PARTS):
            origin = self._origin_of(part, can_be_by_chance=len(part) == 1)
            if origin.is_from_untrusted_data:
                yield path, replace(origin, is_part=True, is_mixed=True)

    def _origin_of(self, text: str, *, can_be_by_chance: bool) -> Origin:
        """Return the origin of a value, or of a part of a value.

        A text from the script or of unknown origin may still be a stranger's. So look for the text,
        as whole words, in all that others wrote, unless ``can_be_by_chance`` is true.
        """
        origin = self.origins.find(text)
        if origin.kind in ("script", "unknown") and not can_be_by_chance:
            return self.origins.find_mention(text) or origin
        return origin

    @property
    def _deciding_paths(self) -> Sequence[str]:
        """The paths of the values that decide the call's effect: all except content."""
        return [
            path for path, text in self.text_by_path.items() if not self._is_content(path, text)
        ]

    def _reason_before_untrusted_read(self, deciding_paths: Sequence[str]) -> str | None:
        """Return why a call needs review although the model itself has read no untrusted data.

        The arguments may still contain untrusted data, because the script may have computed them
        from the results of earlier calls.

        Args:
            deciding_paths: The paths of the values that decide the effect of the call.

        Returns:
            The reason; None if the call needs no review.
        """
        paths_to_review = self._paths_to_review(deciding_paths)
        if not paths_to_review:
            return None
        differences = self._differences_from_plan(self._untrusted_sources(paths_to_review))
        if not differences:  # no call of the action is planned
            parameters = [*map(parameter_of, paths_to_review)]
            return self._reason_about_parameters(parameters, paths_to_review)
        fewest_differences = min(differences, key=len)
        if not fewest_differences:  # the call is planned
            return None
        return self._reason_about_parameters(fewest_differences, paths_to_review)

    def _paths_to_review(self, deciding_paths: Sequence[str]) -> Sequence[str]:
        """Return the paths of the values that need review; empty if the call needs no review."""
        if deciding_paths:
            return [path for path in deciding_paths if self._needs_review(path)]
        # In ``note(title="Invoices", text=mail.body)``, all values are content. The user's own
        # title shows that the user wants the call, so the text may be a stranger's.
        content_paths = self._content_paths_to_check
        return content_paths if all(map(self._needs_review, content_paths)) else []

    def _reason_after_untrusted_read(self, deciding_paths: Sequence[str]) -> str | None:
        """Return why a call of a model that has read untrusted data needs review.

        Args:
            deciding_paths: The paths of the values that decide the effect of the call.

        Returns:
            The reason; None if the call needs no review.
        """
        # For each call of this action that the user planned, the parameters that differ.
        differences = self._differences_from_plan(sources_by_parameter=None)
        equal_count = sum(not differing_parameters for differing_parameters in differences)
        if equal_count > 0:
            # The user asked for this call, or for several equal calls. But its content may be a
            # stranger's, and the call may have been made often enough already.
            return self._reason_about_content() or self._admit_or_reason(equal_count)
        if differences:
            parameters = min(differences, key=len)  # compared with the most similar planned call
        elif deciding_paths:
            parameters = [*map(parameter_of, deciding_paths)]
        else:
            return "the model wrote this call after it had read what others wrote"
        return self._reason_about_parameters(
            parameters, deciding_paths or self._content_paths_to_check
        )

    @property
    def _has_only_content_names(self) -> bool:
        """True if the names of all arguments look like content, as in ``note(title, text)``.

        False if the action itself declares which of its parameters are content, or which of them
        decide the effect of a call. The names do not matter then.
        """
        action = self.bound.action
        if action.sinks is not None or action.contents is not None:
            return False
        return all(self._is_content(path, text="") for path in (*self.text_by_path, *self.edited))

    @property
    def _content_paths_to_check(self) -> Sequence[str]:
        """The paths of a call's values if all of them look like content, as in ``note(text=...)``.

        No value of such a call decides what the call does, but a stranger's text could make the
        agent send data out with the call. Empty for any other call.
        """
        return [*self.text_by_path] if self._has_only_content_names else []

    def _differences_from_plan(
        self, sources_by_parameter: SourcesByParameter | None
    ) -> Sequence[Sequence[str]]:
        """Compare the call with the planned calls of its action.

        Content, such as the body of a mail, may differ.

        Args:
            sources_by_parameter: The parameters to compare, each with the sources of its argument:
                the untrusted results and fields from which the script computes the argument. The
                argument equals a planned argument that has the same sources or the same value. If
                None, all parameters are compared, and only by their values.

        Returns:
            For each planned call, the parameters in which the call differs; an empty list for an
            equal call. Parameters that people edited may differ.
        """
        differences = self.origins.outline.differing_arguments(
            self.bound.name,
            self.arguments,
            self._is_content,
            has_only_content=self._has_only_content_names,
            sources_by_parameter=sources_by_parameter,
        )
        return [[name for name in names if name not in self.edited] for names in differences]

    def _is_content(self, path: str, text: str) -> bool:
        return is_content(self.bound, path, text)

    def _untrusted_sources(self, paths: Sequence[str]) -> SourcesByParameter:
        """Return the untrusted sources of each parameter that occurs in some paths."""
        sources: dict[str, Sources | None] = {}
        for path in paths:
            # Paths of one parameter, such as ``to[0]`` and ``to[1]``, have the same sources.
            sources[parameter_of(path)] = self.origins.untrusted_sources(
                self.bound.name, path, self.line
            )
        return sources

    def _needs_review(self, path: str) -> bool:
        """Return whether a person has to review the value at a path of the arguments."""
        action = self.bound.name
        is_own = self.origins.is_only_from_user(action, path, self.text_by_path[path], self.line)
        # A value without sources is a constant in the script, such as ``"euro"``.
        comes_from_a_result = bool(self.origins.sources(action, path, self.line))
        # An action with ``egress``, such as a web search, would publish the user's own data.
        carries_data_out = self.bound.action.egress and comes_from_a_result
        if is_own and not carries_data_out:
            return False
        return not self._is_allowed_by_rule(path)

    def _is_allowed_by_rule(self, path: str) -> bool:
        """Return whether a rule such as ``mail.read.sender -> mail.send.to`` allows a value."""
        if not self.rules:
            return False
        origin = self.origins.find(self.text_by_path[path])
        if origin.kind != "result":
            return False
        # The result has only a part of the value. The other parts may be from elsewhere.
        if origin.is_mixed and not self._is_computed_from(path, origin):
            return False
        flow = flow_between(str(origin.action), origin.path, self.bound.name, path)
        return any(_is_flow_allowed(flow, rule) for rule in self.rules)

    def _is_computed_from(self, path: str, origin: Origin) -> bool:
        """Return whether the script computes a value only from constants and the origin's field.

        If not, a part of the value may be from elsewhere, as in ``a@b.de,c@d.de``.
        """
        sources = self.origins.untrusted_sources(self.bound.name, path, self.line)
        fields = {Source("field", name) for name in names_in(origin.path)}
        return sources is not None and sources <= {Source("action", str(origin.action)), *fields}

    def _reason_about_parameters(
        self, parameters: Collection[str], checked_paths: Sequence[str]
    ) -> str:
        """Return the reason to show a person for the review of a call's parameters.

        The reason is about the most suspicious value of the parameters. If the call leaves out the
        parameters, the reason says so.

        Args:
            parameters: The parameters that need review.
            checked_paths: The paths of the call's values that the reason may be about.
        """
        paths = [path for path in checked_paths if parameter_of(path) in parameters]
        if not paths:
            return f"it leaves out {', '.join(parameters)}, which the task asks for"
        traced_paths = paths[:_MAX_TRACED_VALUES]
        origins = {path: self.origins.find(self.text_by_path[path]) for path in traced_paths}
        path = min(origins, key=lambda traced_path: _rank(origins[traced_path]))
        return self._reason_about_value(path, origins[path])

    def _reason_about_value(self, path: str, origin: Origin) -> str:
        """Return the reason to review the value at a path, which depends on the value's origin."""
        value = f"{path}: {origin.text}"
        if origin.kind == "task":
            finding = self._finding("the task does not ask for this value here")
            return f"{value}, but {finding}"
        if origin.kind != "result" or origin.is_from_untrusted_data:
            return value  # the text of such an origin is a reason in itself
        # The value is the user's own. A read, such as a web search, needs review only because it
        # sends the value out.
        if self.bound.action.effect == "read":
            return f"it sends your own data out as {value}"
        finding = self._finding("the task does not say that this value is meant")
        return f"{value}; {finding}"

    def _finding(self, text: str) -> str:
        """Return a text for people about the comparison of the call with the outline.

        Args:
            text: The finding, which is returned if there is an outline. Without an outline,
                nothing was compared, and the returned text says so.
        """
        has_outline = self.origins.outline.answer_count > 0  # False with flows = "show"
        return text if has_outline else "it was not checked whether the task means this value here"

    def _reason_about_content(self) -> str | None:
        """Return why content of the call, such as the body of a mail, needs review; otherwise None.

        Content that the user's words or the outline contain needs no review. Other content needs
        review in two cases:

        - The model has made a read that the outline does not ask for. The content may contain a
          part of the result.
        - The content contains an address or a code.
        """
        outline = self.origins.outline
        for path, text in self.text_by_path.items():
            if not self._is_content(path, text) or self.origins.is_in_user_words(text):
                continue
            name = parameter_of(path)
            if outline.has_literal_argument(self.bound.name, name, self.arguments[name]):
                continue
            if (read := self.origins.unplanned_read()) is not None:
                result = f"what {read.action} (call {read.number}) returned"
                return f"{path} may contain {result}, which the task does not ask for"
            if has_address_or_code(text):
                return f"{path} holds an address or a code: {self.origins.find(text).text}"
        return None

    def _admit_or_reason(self, planned_count: int) -> str | None:
        """Admit and count the call, and return None; otherwise return why the call is not admitted.

        At most ``planned_count`` equal calls are admitted.
        """
        is_admitted = self.origins.outline.admit_call(
            self.bound.name, self.arguments, self._is_content, planned_count
        )
        return None if is_admitted else "the task does not ask to do this once more"


def _is_flow_allowed(flow: tuple[str, str], rule: str) -> bool:
    """Return whether a rule such as ``mail.read.* -> mail.send.to`` allows a data flow."""
    patterns = [pattern.strip() for pattern in rule.split(ARROW, 1)]
    # A field's name may end with a blank, which a pattern cannot have.
    names = [name.strip() for name in flow]
    return all(map(fnmatchcase, names, patterns))


def _rank(origin: Origin) -> int:
    """Return 0 for untrusted data, 2 for the task's own words, and 1 for any other origin.

    The reason that a person reads is about the value of the lowest rank.
    """
    if origin.is_from_untrusted_data:
        return 0
    return 2 if origin.kind == "task" else 1
