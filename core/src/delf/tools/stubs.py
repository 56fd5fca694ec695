"""Tools as typed Python stubs, compact and in a stable order.

If the complete stubs of all tools fit a budget of characters, the prompt contains these, and is the
same for every task. Otherwise the stubs of the selected tools share the budget with the names of
the other tools: types are shortened, but keep every name that the task mentions.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from delf.protocols.prefilter import Catalog
from delf.protocols.strategy import ToolChoice, ToolDescription
from delf.tools.catalogs import best_first
from delf.tools.ranking import named_by
from delf.tools.resources import (
    add_readers,
    is_about_resource,
    readers_mentioned,
    resource_of,
    shared_words,
)
from delf.tools.results import NamedRecord, Result, Results, named_results
from delf.tools.signature import FullTypes, Parameter
from delf.tools.type_texts import NameTest, mentions_no_name, shorten

FIND_TOOLS: Final = "find_tools"
# The number of a result's keys that are shown even if the type exceeds its limit.
_MIN_RESULT_KEYS: Final = 16
# The same for a record that several tools return.
_MIN_RECORD_KEYS: Final = 24
# The shares of the budget for the names of tools whose stubs are not shown. The first share is for
# all names. If all names need more, the second share is for the names that match the task best, and
# the other names are only counted.
_ALL_NAMES_SHARE: Final = 0.3
_SOME_NAMES_SHARE: Final = 0.15
# The counts for a connection take at most this part of the characters for names: a quarter.
_COUNTS_DIVISOR: Final = 4
_MORE_RESOURCES: Final = "# and about"
# The minimum number of characters of a stub in addition to the tool's name.
_MIN_STUB_EXTRA: Final = 30
# The number of keys that the type of an important parameter shows even beyond its limit.
_MIN_PARAMETER_KEYS: Final = 60
# Matches the end of a sentence, or of the description of a key, after which a text may be cut. The
# full stop of an abbreviation, as in ``e.g.``, ends no sentence.
_TEXT_END: Final = re.compile(r"(?:[^.\s][^.\s][.!?]|;)(?=\s|$)")
_MAX_VALUES_IF_SHORT: Final = 5
_SHORT_LIMIT: Final = 1_000
# The maximum length of the description of a parameter or result. Descriptions of keys do not count.
_MAX_DESCRIPTION: Final = 1_500


class StubLimits(NamedTuple):
    """The limits for each stub; all limits but ``values`` are in characters.

    Args:
        important_parameter: The limit for the type of a required parameter, or of a parameter that
            the task names.
        other_parameter: The limit for the type of any other parameter.
        result: The limit for the type of the result.
        summary: The limit for the summary.
        is_detailed: Whether to describe the result and all parameters, and to mark omitted notes
            with an ellipsis. If False, only required parameters and those that the task names are
            described.
        max_stub: The limit for the whole stub. A stub above this limit is written again with the
            limits of :data:`_SHORTEST`.
        values: The maximum number of values of an enumeration, in addition to values that the task
            names.
        notes: The limit for the text after the summary, and for the descriptions of the keys of
            each parameter and result.
    """

    important_parameter: int
    other_parameter: int
    result: int
    summary: int = 300
    is_detailed: bool = True
    max_stub: int = 1_000_000
    values: int = 12
    notes: int = 0

    def or_larger(self, other: StubLimits) -> StubLimits:
        """Return limits of which each is the larger of this object's and the other's."""
        return StubLimits._make(map(max, self, other))


_NO_LIMIT: Final = 1_000_000
WHOLE: Final = StubLimits(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT, notes=6_000)
# If the stubs of all tools with these limits exceed the budget, the prompt shows only some tools.
_COMPLETE_TYPES: Final = WHOLE._replace(notes=0)
_MIN_LIMITS: Final = StubLimits(400, 60, 300, 120, is_detailed=False, max_stub=1_000)
# The limits for the best matching actions, if not all tools are shown.
_BEST_LIMITS: Final = StubLimits(1_500, 1_000, 1_500)
_MAX_BEST: Final = 5
_BEST_BUDGET_SHARE: Final = 0.2
_SHORTEST: Final = StubLimits(120, 30, 160, 90, is_detailed=False, values=4)
_NOTES: Final = (6_000, 1_500, 800, 400, 200, 100, 0)
_MIN_BEST_NOTES: Final = 100
_BEST_NOTES: Final = (1_500, 800, 400, 300, 200, 150, 100, 60, 0)
_NOTES_BUDGET_SHARE: Final = 0.04
_LIMITS: Final = (
    *(WHOLE._replace(notes=length) for length in _NOTES),
    StubLimits(3_000, 3_000, 3_000, values=60),
    StubLimits(1_200, 1_200, 1_200),
    StubLimits(600, 300, 600),
)


class _Limits(NamedTuple):
    """The limits of all stubs.

    Args:
        usual: The limits of most tools.
        best: The limits of the tools that match the task best. A limit that is larger in ``usual``
            is taken from there.
        best_names: The names of the tools that match the task best.
    """

    usual: StubLimits
    best: StubLimits = _BEST_LIMITS
    best_names: frozenset[str] = frozenset()

    def of(self, name: str) -> StubLimits:
        """Return the limits for the stub of a tool."""
        return self.usual.or_larger(self.best) if name in self.best_names else self.usual


def stubs_of(choice: ToolChoice, task: str) -> str:
    """Return the stubs of a task's tools for the prompt.

    Args:
        choice: The tools to show, and the omitted tools.
        task: The user's task, in plain words.
    """
    shown_tools = [tool for tool in choice.shown if not tool.built_in]
    is_mentioned = named_by(task)
    text_of_omitted_names = ""
    best_names = frozenset[str]()
    if choice.left_out:
        matches = best_first(choice.catalog, task)
        # The few tools that match the task best get larger limits than the other shown tools.
        best_names = _best_names(choice, is_mentioned, matches)
        shown_names = {tool.name for tool in shown_tools}
        omitted_names = (name for name in matches if name not in shown_names)
        # select_fitting() has chosen the shown tools so that they and these names fit this budget.
        budget = _budget_without_notes(choice.budget)
        text_of_omitted_names = omitted_names_text(omitted_names, budget)
    max_size = choice.budget - len(text_of_omitted_names)
    fitting_limits = (
        limits
        for limits in _limit_options(best_names)
        if _size(shown_tools, limits, is_mentioned, max_size) <= max_size
    )
    limits = next(fitting_limits, _Limits(_MIN_LIMITS))  # the largest that fit
    text = "\n".join(_lines(list(choice.shown), limits, is_mentioned))
    return "\n".join(filter(None, [text, text_of_omitted_names]))


def _limit_options(best_names: frozenset[str]) -> Iterator[_Limits]:
    """Yield ever smaller limits for stubs.

    Args:
        best_names: The names of the tools that match the task best.
    """
    # First the other tools lose details, while the best tools keep short notes. Then the other
    # tools have the smallest limits, and the notes on the best tools get shorter.
    for limits in _LIMITS:
        yield _Limits(limits, _BEST_LIMITS._replace(notes=_MIN_BEST_NOTES), best_names)
    for max_notes in _BEST_NOTES:
        yield _Limits(_MIN_LIMITS, _BEST_LIMITS._replace(notes=max_notes), best_names)


def select_fitting(choice: ToolChoice, ranked: Iterable[str], task: str) -> frozenset[str]:
    """Return the names of the tools to show, as many as fit the budget.

    Tools that match the words of the task come first, then the others by rank, each with the
    actions that read the same resource.

    Args:
        choice: All tools, with none omitted.
        ranked: The names of the tools, best first.
        task: The user's task, in plain words.
    """
    by_name = {tool.name: tool for tool in choice.shown if not tool.built_in}
    ranked_names = [name for name in ranked if name in by_name]
    all_fit = whole_size(by_name.values(), choice.budget) <= choice.budget
    if all_fit:  # show every tool that is ranked; a prefilter may have ranked only some
        return frozenset(add_readers(ranked_names, choice.catalog))
    is_mentioned = named_by(task)
    # Word search comes first, because a prefilter may rank an action low that the task names
    # plainly.
    matches = [name for name in best_first(choice.catalog, task) if name in by_name]
    wanted_names = [*_names_by_priority(choice.catalog, matches, ranked_names, task)]
    limits = _Limits(_MIN_LIMITS, best_names=_best_names(choice, is_mentioned, matches))
    budget = _budget_without_notes(choice.budget)

    def is_too_long(tool_count: int) -> bool:
        """Return True if the stubs of so many tools and the names of the others are too long."""
        shown_names = frozenset(wanted_names[:tool_count])
        omitted_names = [name for name in matches if name not in shown_names]
        max_size = budget - len(omitted_names_text(omitted_names, budget))
        tools = [tool for name, tool in by_name.items() if name in shown_names]
        return _size(tools, limits, is_mentioned, max_size) > max_size

    # Find the largest count that fits. Making the complete types of a tool takes long: because the
    # count is doubled from 1, the types of only a few tools are made in vain.
    max_count = 1
    while max_count < len(wanted_names) and not is_too_long(max_count):
        max_count = min(2 * max_count, len(wanted_names))
    # The counts start at 1, so the index of the first count that is too long is the largest count
    # that fits.
    counts = range(1, max_count + 1)
    fitting_count = bisect.bisect_left(counts, True, key=is_too_long)
    return frozenset(wanted_names[:fitting_count])


def _names_by_priority(
    catalog: Catalog, matches: Sequence[str], ranked_names: Sequence[str], task: str
) -> Iterable[str]:
    """Return the names of tools in the order in which their stubs are chosen, without repeats.

    The best tools of the word search come first, then the best tools of the prefilter, then tools
    that find records which the task names. The other tools of the prefilter follow.

    Args:
        catalog: All actions.
        matches: The names of the tools, in the order of a word search for the task's words.
        ranked_names: The names of the tools that the prefilter chose, in the prefilter's order.
        task: The user's task, in plain words.
    """
    # Scripts have to find records, such as a customer, before they can use the other tools.
    read_names = readers_mentioned(task, catalog)
    chosen_names = frozenset(ranked_names)
    first_names = [name for name in matches[:_MAX_BEST] if name in chosen_names]
    first_names += ranked_names[:_MAX_BEST]
    first_names += [name for name in read_names if name in chosen_names]
    return dict.fromkeys([*first_names, *add_readers(ranked_names, catalog)])


def _budget_without_notes(budget: int) -> int:
    """Return the number of characters for stubs and names of tools.

    The rest of the budget is reserved for notes on the best matching tools.
    """
    return int(budget * (1 - _NOTES_BUDGET_SHARE))


def render_stubs(
    tools: Iterable[ToolDescription],
    limits: StubLimits = WHOLE,
    is_mentioned: NameTest | None = None,
) -> str:
    """Return the stubs of actions, grouped by connection in the order given.

    Args:
        tools: The actions.
        limits: The limits on the length of each stub.
        is_mentioned: Returns True for a key of an argument, or one of its values, that the task or
            the search words mention. These keys and values are never left out.
    """
    return "\n".join(_lines(list(tools), _Limits(limits), is_mentioned or mentions_no_name))


def _best_names(
    choice: ToolChoice, is_mentioned: NameTest, matches: Sequence[str]
) -> frozenset[str]:
    """Choose the best matching tools, whose stubs have larger limits than those of other tools.

    At most ``_MAX_BEST`` tools are chosen, and no more than fit a fixed share of the budget.

    Args:
        choice: The tools of the task.
        is_mentioned: Returns True for a key or value that the text of the task mentions.
        matches: The names of the tools, in the order of a word search for the task's words.
    """
    by_name = {tool.name: tool for tool in choice.shown if not tool.built_in}
    remaining_size = choice.budget * _BEST_BUDGET_SHARE
    best_names: list[str] = []
    for name in matches[:_MAX_BEST]:
        if name not in by_name:
            continue
        size = _size([by_name[name]], _Limits(_BEST_LIMITS), is_mentioned, choice.budget)
        if size <= remaining_size:
            best_names.append(name)
            remaining_size -= size
    return frozenset(best_names)


def whole_size(tools: Iterable[ToolDescription], max_size: int) -> int:
    """Return the number of characters of the complete stubs of tools.

    Args:
        tools: The tools.
        max_size: Counting stops once the number exceeds ``max_size``; the result is then only known
            to be larger than ``max_size``.
    """
    return _size(list(tools), _Limits(_COMPLETE_TYPES), mentions_no_name, max_size)


def _size(
    tools: Sequence[ToolDescription], limits: _Limits, is_mentioned: NameTest, max_size: int
) -> int:
    """Return the number of characters of :func:`_lines`; stop counting above ``max_size``."""
    # Stubs with complete types take long to make: make none if their minimum size is too large.
    # Whether the stubs also have notes makes no difference here.
    has_complete_types = limits.usual._replace(notes=0) == _COMPLETE_TYPES
    if has_complete_types:
        min_size = sum(
            len(tool.method) + len(", ".join(map(str, tool.parameters))) + _MIN_STUB_EXTRA
            for tool in tools
        )
        if min_size > max_size:
            return max_size + 1
    size = 0
    for line in _lines(tools, limits, is_mentioned):
        size += len(line) + 1
        if size > max_size:
            break
    return size


def _lines(
    tools: Sequence[ToolDescription], limits: _Limits, is_mentioned: NameTest
) -> Iterator[str]:
    """Yield the stubs of tools: functions first, then the actions of each connection.

    A record that several tools return is defined before the stub of the first of these tools.

    Args:
        tools: The tools.
        limits: The limits of all stubs.
        is_mentioned: Returns True for a key or value that the text of the task mentions.
    """
    results = named_results(tools)
    record_limits = _limits_by_record(results, limits)
    tools_by_connection: dict[str, list[ToolDescription]] = {"": []}  # the functions come first
    for tool in tools:
        tools_by_connection.setdefault(tool.connection, []).append(tool)
    for connection, methods in tools_by_connection.items():
        if connection:
            yield _class_line(methods[0])
        # The descriptions in the connection's stubs so far, because each is written only once.
        described: set[str] = set()
        for tool in methods:
            result = results.get(tool.name)
            records = () if result is None else result.records
            for record in records:
                if record.first_tool is tool:
                    indent = "    " if connection else ""
                    yield indent + _definition(record, record_limits[record.name], is_mentioned)
            stub = _stub(tool, limits.of(tool.name), is_mentioned, results)
            yield stub.text(described)
            described.update(stub.descriptions)


def _limits_by_record(results: Results, limits: _Limits) -> dict[str, StubLimits]:
    """Return the limits of each named record: the largest limits of a tool that returns it."""
    limits_by_record: dict[str, StubLimits] = {}
    for tool_name, result in results.items():
        for record in result.records:
            known_limits = limits_by_record.get(record.name, limits.usual)
            limits_by_record[record.name] = known_limits.or_larger(limits.of(tool_name))
    return limits_by_record


def _definition(record: NamedRecord, limits: StubLimits, is_mentioned: NameTest) -> str:
    """Return the line ``Name = {...}  # notes`` that defines a record.

    Args:
        record: The record.
        limits: The limits on the record's text and on the notes.
        is_mentioned: Returns True for a key or value that the text of the task mentions. These
            keys and values are never left out.
    """
    record_text = record.text
    # A long record is shortened from its complete text: only the keys of its inner records show
    # whether the task mentions them.
    if len(record_text) > limits.result:
        record_text = shorten(record.complete_text, limits.result, is_mentioned, _MIN_RECORD_KEYS)
    definition = f"{record.name} = {record_text}"
    notes = _truncate(_record_notes(record), limits.notes)
    if not notes:
        return definition
    return f"{definition}  # {notes}"


def _record_notes(record: NamedRecord) -> str:
    """Return the notes on a record, from the tool that describes the record.

    A tool without ``full_types`` has no notes, because its types are complete.
    """
    make_full_types = record.described_by.full_types
    return "" if make_full_types is None else make_full_types().notes


def omitted_names_text(names: Iterable[str], budget: int) -> str:
    """Return comment lines with the names of tools whose stubs are not shown, grouped by resource.

    If the names exceed their share of the budget, only the first are listed, and the others are
    counted by resource.

    Args:
        names: The names of the tools, best matches for the task first.
        budget: The budget of all stubs and names, in characters.
    """
    all_names = list(names)
    if not all_names:
        return ""
    shared = shared_words(all_names)
    max_chars = int(budget * _ALL_NAMES_SHARE)
    all_names_fit = sum(map(_listed_size, all_names)) <= max_chars
    if not all_names_fit:
        max_chars = int(budget * _SOME_NAMES_SHARE)
    listed: dict[str, dict[str, list[str]]] = {}  # method names by connection and resource
    unlisted_counts: dict[str, Counter[str]] = {}  # how many more, by connection and resource
    size = 0
    for name in all_names:
        connection, _, method = name.rpartition(".")
        resource = resource_of(name, shared)
        size += _listed_size(name)
        if size <= max_chars:
            listed.setdefault(connection, {}).setdefault(resource, []).append(method)
        else:
            unlisted_counts.setdefault(connection, Counter())[resource] += 1
    lines = [f'# More tools, by resource; {FIND_TOOLS}("name") shows one whole:']
    for connection in listed | unlisted_counts:
        if connection:
            lines.append(f"# {connection}:")
        lines += [f"#   {', '.join(methods)}" for methods in listed.get(connection, {}).values()]
        if connection in unlisted_counts:
            counts_text = _counts_text(unlisted_counts[connection])
            lines.append(_one_line(counts_text, max_chars // _COUNTS_DIVISOR))
    return "\n".join(lines)


def _counts_text(count_by_resource: Mapping[str, int]) -> str:
    counts = [f"{resource} ({count})" for resource, count in count_by_resource.items()]
    return f"{_MORE_RESOURCES} {', '.join(counts)}"


def _listed_size(name: str) -> int:
    """Return the number of characters of a tool's name in a list, with a comma and a blank."""
    _, _, method = name.rpartition(".")
    return len(method) + 2


def _class_line(tool: ToolDescription) -> str:
    """Return the line before the stubs of a connection's actions, with a description."""
    return f"class {tool.connection}:  # {_one_line(tool.about)}"


class _Stub(NamedTuple):
    """The stub of a tool: a function with a docstring.

    Args:
        indent: The blanks before the function.
        head: The line with the function's name, parameters and result.
        summary: The first line of the docstring.
        descriptions: The other lines of the docstring, such as ``path: Relative to the folder``.
    """

    indent: str
    head: str
    summary: str
    descriptions: tuple[str, ...]

    def text(self, omitted: Container[str] = ()) -> str:
        """Return the text of the stub.

        Args:
            omitted: Descriptions to leave out, because an earlier stub has them.
        """
        lines = [f"{self.indent}    {line}" for line in self.descriptions if line not in omitted]
        if not lines:
            return f'{self.head}  """{self.summary}"""'
        body = "\n".join(lines)
        return f'{self.head}\n{self.indent}    """{self.summary}\n{body}"""'


def _stub(
    tool: ToolDescription, limits: StubLimits, is_mentioned: NameTest, results: Results
) -> _Stub:
    """Return the stub of a tool.

    A stub longer than ``limits.max_stub`` is written with the limits ``_SHORTEST`` instead. The
    stub of a built-in tool is complete.
    """
    if tool.built_in:
        return _stub_within(tool, WHOLE, is_mentioned, results)
    stub = _stub_within(tool, limits, is_mentioned, results)
    if len(stub.text()) <= limits.max_stub:
        return stub
    return _stub_within(tool, _SHORTEST, is_mentioned, results)


def _stub_within(
    tool: ToolDescription, limits: StubLimits, is_mentioned: NameTest, results: Results
) -> _Stub:
    """Format a tool as a function with a docstring.

    Args:
        tool: The tool.
        limits: The maximum lengths of the summary, the types and the descriptions.
        is_mentioned: Returns True for a key or value that the text of the task mentions.
        results: The result types that the prompt defines by name.
    """
    if tool.full_types is None:
        types = FullTypes(parameters=tool.parameters, returns=tool.returns)
    else:
        types = tool.full_types()
    named_result = results.get(tool.name)
    return_type, result_notes = _result_type_and_notes(types, named_result, limits, is_mentioned)
    doc_by_name: dict[str, str] = {}
    for parameter in types.parameters:
        is_described = limits.is_detailed or parameter.required or is_mentioned(parameter.name)
        if is_described:
            doc_by_name[parameter.name] = _describe(parameter.doc, parameter.notes, limits)
    result_doc = _describe(tool.returns_doc, result_notes, limits) if limits.is_detailed else ""
    indent = "    " if tool.connection else ""
    parameters = _parameters(types.parameters, limits, is_mentioned, tool.name)
    head = f"{indent}async def {tool.method}({parameters}) -> {return_type}:"
    summary = _summary_and_notes(tool, limits)
    needs_approval = tool.asks
    if needs_approval:
        summary += " [asks]"
    # The result is not a key in doc_by_name, because a parameter may be called "returns".
    docs = (*doc_by_name.items(), ("returns", result_doc))
    descriptions = tuple(f"{name}: {doc}" for name, doc in docs if doc)
    return _Stub(indent, head, summary, descriptions)


def _result_type_and_notes(
    types: FullTypes, named_result: Result | None, limits: StubLimits, is_mentioned: NameTest
) -> tuple[str, str]:
    """Return the result type to show in a stub, and the notes on the result.

    The type may name records, such as ``Message``, whose definitions are shown elsewhere. The notes
    are omitted if one of these definitions already has them.
    """
    if named_result is not None and len(named_result.text) <= limits.result:
        return_type = named_result.text
    else:
        return_type = shorten(
            types.returns, limits.result, is_mentioned, _MIN_RESULT_KEYS, limits.values
        )
    if named_result is None:
        return return_type, types.notes
    record_notes = map(_record_notes, named_result.records)
    is_in_definition = named_result.is_record or types.notes in record_notes
    return return_type, "" if is_in_definition else types.notes


def _describe(doc: str, notes: str, limits: StubLimits) -> str:
    """Join the description of a parameter or result with its notes, each within its limit."""
    texts = filter(None, [_one_line(doc, _MAX_DESCRIPTION), _truncate(notes, limits.notes)])
    return "; ".join(texts).replace(".; ", ". ")  # a whole sentence needs no semicolon


def _truncate(text: str, max_length: int) -> str:
    """Truncate a text after a whole sentence, and append an ellipsis.

    Return only the ellipsis if no sentence fits, and an empty text if the maximum length is 0.
    """
    line = _one_line(text, _NO_LIMIT)
    if len(line) <= max_length:
        return line
    if max_length == 0:
        return ""
    ends = [sentence_end.end() for sentence_end in _TEXT_END.finditer(line[:max_length])]
    if not ends:
        return "…"
    whole_sentences = line[: ends[-1]]
    return f"{whole_sentences} …"


def _summary_and_notes(tool: ToolDescription, limits: StubLimits) -> str:
    """Return the summary of a tool and the notes after it, within the limits."""
    # The summary matters more than the notes, so its limit is never smaller than theirs.
    summary = _one_line(tool.summary, max(limits.summary, limits.notes))
    if not tool.notes:
        return summary
    end = "" if summary.endswith((".", "!", "?", "…", ":", ";")) else "."
    notes_text = _truncate(tool.notes, limits.notes)
    if not notes_text and limits.is_detailed:
        notes_text = "…"  # no part of the notes fits, but a detailed stub says that there are notes
    return f"{summary}{end} {notes_text}" if notes_text else summary


def _parameters(
    parameters: Sequence[Parameter], limits: StubLimits, is_mentioned: NameTest, action: str
) -> str:
    """Format the parameters of an action as in a signature."""
    # If only one parameter is a record, a script probably needs it: its type is shortened less.
    record_names = [each.name for each in parameters if each.type_text.startswith("{")]
    texts: list[str] = []
    for each in parameters:
        is_only_record = record_names == [each.name]
        texts.append(_parameter(each, limits, is_mentioned, action, is_only_record=is_only_record))
    return ", ".join(texts)


def _parameter(
    parameter: Parameter,
    limits: StubLimits,
    is_mentioned: NameTest,
    action: str,
    *,
    is_only_record: bool,
) -> str:
    """Format a parameter as in a signature, with its type shortened.

    Args:
        parameter: The parameter.
        limits: The limits for the stub.
        is_mentioned: Returns True for a name that the text of the task mentions.
        action: The name of the action.
        is_only_record: Whether the parameter's type is a record, and no other parameter of the
            action has a record type.
    """
    max_values = limits.values
    if _is_important(parameter, limits, is_mentioned, action, is_only_record=is_only_record):
        max_length = limits.important_parameter
        min_keys = _MIN_PARAMETER_KEYS
    else:
        max_length = limits.other_parameter
        min_keys = 0
        if max_length < _SHORT_LIMIT:  # there is no room for the values of a long enumeration
            max_values = min(max_values, _MAX_VALUES_IF_SHORT)
    type_text = shorten(parameter.type_text, max_length, is_mentioned, min_keys, max_values)
    text = f"{parameter.name}: {type_text}"
    if parameter.default_text is None:
        return text
    return f"{text} = {parameter.default_text}"


def _is_important(
    parameter: Parameter,
    limits: StubLimits,
    is_mentioned: NameTest,
    action: str,
    *,
    is_only_record: bool,
) -> bool:
    """Return True if a script probably needs a parameter, or if its type is short anyway.

    The stub shows more of an important parameter's type than of other types. A script probably
    needs a required parameter, a parameter that the task mentions, and the only parameter with a
    record type. In the shortest stubs, an optional parameter counts only if the task mentions the
    parameter and the action is about the resource of this name.
    """
    if parameter.required or _is_simple(parameter.type_text, limits.other_parameter):
        return True
    is_in_task = is_mentioned(parameter.name)
    if limits == _SHORTEST:  # keep only parameters such as ``ticket`` of ``update_ticket``
        return is_in_task and is_about_resource(parameter.name, action)
    return is_in_task or is_only_record


def _is_simple(type_text: str, max_length: int) -> bool:
    """Return True for a short type without brackets, such as ``int | None``."""
    return len(type_text) <= max_length and set("[{(").isdisjoint(type_text)


def _one_line(text: str, max_length: int = 300) -> str:
    line = " ".join(text.split()).replace('"""', "'''")
    if line.endswith('"'):  # a docstring cannot end with a quote
        line += " "
    if len(line) <= max_length:
        return line
    return f"{line[: max_length - 1]}…"
