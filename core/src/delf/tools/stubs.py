"""Tools as typed Python stubs, compact and in a stable order.

All tools are shown whole while they fit a budget of characters; the text is then the same for every
task. Otherwise the stubs of the chosen tools share the budget with the names of the others: their
types lose depth, but keep every name that the task mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

from delf.protocols.strategy import ToolChoice, ToolDescription
from delf.tools.catalogs import best_first
from delf.tools.ranking import named_by
from delf.tools.resources import add_readers, is_own, readers_mentioned, resource_of, shared_words
from delf.tools.results import Result, Results, named_results
from delf.tools.signature import Parameter
from delf.tools.type_texts import Named, shorten

FIND_TOOLS: Final = "find_tools"
_RESULT_NAMES: Final = 16
"""The most result keys shown at least; more are shown only if there is room."""
_NAMES_SHARE: Final = 0.4
"""The share of the budget that names of further tools may take."""
_ABOUT: Final = "# and about"
_IN_VAIN: Final = 40
"""The number of stubs in a row that do not fit, after which filling stops."""
_ROUNDS: Final = 4
_END: Final = re.compile(r"(?:[^.\s][^.\s][.!?]|;)(?=\s|$)")
"""Matches the end of a sentence, or of the description of a key."""
_OTHER_VALUES: Final = 5
_ROOMY: Final = 1_000
_DOC: Final = 1_500
"""The maximum number of characters of a parameter's or result's description.

Descriptions of keys are not counted.
"""


class Detail(NamedTuple):
    """The limits in characters for each stub.

    Args:
        argument: The limit for the type of a required parameter, or of a parameter that the task
            names.
        other: For the type of any other parameter.
        result: For the type of the result.
        summary: For the summary.
        docs: Whether all parameters are explained; else only required or named ones.
        stub: For the whole stub; longer stubs use :data:`_TIGHT` types.
        values: The most values of an enumeration, in addition to values that the task names.
        notes: The limit for the text after the summary, and for the descriptions of the keys in
            each value.
    """

    argument: int
    other: int
    result: int
    summary: int = 300
    docs: bool = True
    stub: int = 1_000_000
    values: int = 12
    notes: int = 0


_NO_LIMIT: Final = 1_000_000
WHOLE: Final = Detail(_NO_LIMIT, _NO_LIMIT, _NO_LIMIT, notes=6_000)
_TYPES: Final = WHOLE._replace(notes=0)
"""Complete types: a prompt that has no room for these shows some of the tools."""
MIN: Final = Detail(400, 60, 300, 120, docs=False, stub=1_000)
_FIRST: Final = Detail(1_500, 1_000, 1_500)
"""The number of best matching actions that keep complete types if not all tools are shown."""
_FIRSTS: Final = 5
_FIRSTS_SHARE: Final = 0.2
"""The share of the budget for the best matching actions."""
_TIGHT: Final = Detail(120, 30, 160, 90, docs=False, values=4)
_LESS_NOTES: Final = (1_500, 800, 400, 200, 100)
_NO_FIRSTS: Final[Mapping[str, Detail]] = MappingProxyType({})
_FIRST_NOTES: Final = (1_500, 800, 400, 300, 200, 150, 100, 60, 0)
_NOTES_SHARE: Final = 0.04
"""The share of the budget for notes of the best matching actions."""
_DETAILS: Final = (
    *(WHOLE, *(WHOLE._replace(notes=length) for length in _LESS_NOTES), _TYPES),
    *(
        Detail(3_000, 3_000, 3_000, values=60),
        Detail(1_200, 1_200, 1_200),
        Detail(600, 300, 600),
        MIN,
    ),
)


def stubs_of(choice: ToolChoice, task: str) -> str:
    """Return the stubs of a task's tools for the prompt.

    Args:
        choice: The tools to show, and the omitted tools.
        task: The user's task, in plain words.
    """
    room = choice.budget
    shown_tools = [tool for tool in choice.shown if not tool.built_in]
    names = ""
    if choice.left_out:
        shown_names = {tool.name for tool in shown_tools}
        other_names = (e.name for e in choice.catalog if e.name not in shown_names)
        names = names_of(other_names, _without_notes(room))
        room -= len(names)
    task_names = named_by(task)
    firsts = _firsts(choice, task_names, task) if choice.left_out else _NO_FIRSTS
    ways = [(detail, firsts) for detail in _DETAILS[:-1]]
    ways += [
        (MIN, {name: room._replace(notes=max_notes) for name, room in firsts.items()})
        for max_notes in (_FIRST_NOTES if firsts else (0,))
    ]
    fitting = (way for way in ways if _size(shown_tools, way[0], task_names, room, way[1]) <= room)
    detail, firsts = next(fitting, (MIN, _NO_FIRSTS))
    text = "\n".join(_lines(list(choice.shown), detail, task_names, firsts))
    return "\n".join(filter(None, [text, names]))


def fill(choice: ToolChoice, ranked: Iterable[str], task: str) -> frozenset[str]:
    """Return the names of the tools whose stubs fit the budget, taken in ranking order.

    Each name is followed by the actions that read the same resource.

    Args:
        choice: All tools, with none omitted.
        ranked: The names of the tools, best first.
        task: The user's task, in plain words.
    """
    by_name = {tool.name: tool for tool in choice.shown if not tool.built_in}
    if whole_size(by_name.values(), choice.budget) <= choice.budget:
        wanted_names = (name for name in ranked if name in by_name)
        return frozenset(add_readers(wanted_names, choice.catalog))
    budget = _without_notes(choice.budget)
    task_names = named_by(task)
    firsts = _firsts(choice, task_names, task)
    kept_tools: dict[str, ToolDescription] = {}
    order = [name for name in ranked if name in by_name]
    ranks = frozenset(order)
    by_words = [name for name in best_first(choice.catalog, task)[:_FIRSTS] if name in ranks]
    readers = [name for name in readers_mentioned(task, choice.catalog) if name in ranks]
    first = [*by_words, *order[:_FIRSTS], *readers]  # prefilters may miss plain changes
    wanted_names = dict.fromkeys([*first, *add_readers(order, choice.catalog)])
    remaining_tools = [by_name[name] for name in wanted_names]
    for _ in range(_ROUNDS):  # stubs share headers and types, so measure the kept ones together
        names = names_of((name for name in by_name if name not in kept_tools), budget)
        size = _size([*kept_tools.values()], MIN, task_names, budget, firsts) + len(names)
        room = budget - size
        remaining_tools, selected = _select_fitting(
            remaining_tools, room, task_names, firsts, kept_tools, is_listed=_ABOUT not in names
        )
        if not selected:
            break
        kept_tools |= selected
    return frozenset(kept_tools)


def _without_notes(budget: int) -> int:
    """Return the budget for stubs and names, without the share for notes of complete stubs."""
    return int(budget * (1 - _NOTES_SHARE))


def _select_fitting(
    tools: Sequence[ToolDescription],
    room: int,
    task_names: Named,
    firsts: Mapping[str, Detail],
    kept_tools: Mapping[str, ToolDescription],
    *,
    is_listed: bool,
) -> tuple[list[ToolDescription], dict[str, ToolDescription]]:
    """Select the tools whose stubs fit next to the kept ones; return the rest and the selection."""
    shown_texts = {text for tool in kept_tools.values() for text in (tool.connection, tool.returns)}
    selected: dict[str, ToolDescription] = {}
    rest: list[ToolDescription] = []
    for place, tool in enumerate(tools):
        results = named_results((tool, tool))
        detail = firsts.get(tool.name, MIN)
        size = len(_stub(tool, detail, task_names, results)) + 1
        if tool.returns not in shown_texts and (result := results.get(tool.returns)):
            size += len(_definition(result, detail, task_names)) + 5
        size += 0 if tool.connection in shown_texts else len(_head(tool)) + 1
        size -= len(tool.method) + 2 if is_listed else 0  # drops out of the list of names
        if size > room:
            rest.append(tool)
            if len(rest) > _IN_VAIN:
                return [*rest, *tools[place + 1 :]], selected
            continue
        room -= size
        shown_texts |= {tool.connection, tool.returns}
        selected[tool.name] = tool
    return rest, selected


def render_stubs(
    tools: Iterable[ToolDescription], detail: Detail = WHOLE, task_names: Named | None = None
) -> str:
    """Return the stubs of some actions, grouped by connection in the order given.

    Args:
        tools: The tools to show.
        detail: The limits on the length of each stub.
        task_names: Returns the keys and values that the task names; such keys and values are never
            cut.
    """
    return "\n".join(_lines(list(tools), detail, task_names or _never))


def _firsts(choice: ToolChoice, task_names: Named, task: str) -> Mapping[str, Detail]:
    """Return the limits for the best matching tools, whose complete types are shown if they fit."""
    by_name = {tool.name: tool for tool in choice.shown if not tool.built_in}
    room = choice.budget * _FIRSTS_SHARE
    seen_results: set[str] = set()
    for name in best_first(choice.catalog, task)[:_FIRSTS]:
        size = (
            _size([by_name[name]], _FIRST, task_names, choice.budget)
            if name in by_name
            else room + 1
        )
        if size <= room:
            seen_results.add(name)
            room -= size
    return dict.fromkeys(seen_results, _FIRST)


def whole_size(tools: Iterable[ToolDescription], enough: int) -> int:
    """Count the characters of complete stubs, stopping once ``enough`` is exceeded.

    Args:
        tools: The tools.
        enough: The count at which to stop.
    """
    return _size(list(tools), _TYPES, _never, enough)


def _size(
    tools: Sequence[ToolDescription],
    detail: Detail,
    task_names: Named,
    enough: int,
    firsts: Mapping[str, Detail] = _NO_FIRSTS,
) -> int:
    """Count the characters of stubs; stop counting above ``enough``."""
    # Complete stubs are at least as long as this estimate.
    if detail.argument == _NO_LIMIT and sum(len(tool.method) + 30 for tool in tools) > enough:
        return enough + 1
    size = 0
    for line in _lines(tools, detail, task_names, firsts):
        size += len(line) + 1
        if size > enough:
            break
    return size


def _lines(
    tools: Sequence[ToolDescription],
    detail: Detail,
    task_names: Named,
    firsts: Mapping[str, Detail] = _NO_FIRSTS,
) -> Iterable[str]:
    """Yield the stub lines, functions first, then each connection below its header."""
    results = named_results(tools)
    details_of_results = {
        result.name: firsts[tool.name]
        for tool in tools
        if tool.name in firsts
        if (result := results.get(tool.returns))
    }

    def own(tool: ToolDescription, indent: str) -> Iterable[str]:
        found = results.get(tool.returns)
        if found is not None and found.first is tool:
            room = max(details_of_results.get(found.name, detail), detail)
            yield f"{indent}{_definition(found, room, task_names)}"
        yield _stub(tool, max(firsts.get(tool.name, detail), detail), task_names, results)

    for tool in tools:
        if not tool.connection:
            yield from own(tool, "")
    for connection in dict.fromkeys(tool.connection for tool in tools if tool.connection):
        methods = [tool for tool in tools if tool.connection == connection]
        yield _head(methods[0])
        for tool in methods:
            yield from own(tool, "    ")


def _definition(result: Result, detail: Detail, task_names: Named) -> str:
    limit = 2 * detail.result
    kind = shorten(result.record, limit, task_names, 2 * _RESULT_NAMES)
    full_returns = None if result.first.full_types is None else result.first.full_types()
    notes = _cut("" if full_returns is None else full_returns.notes, detail.notes)
    return f"{result.name} = {kind}{f'  # {notes}' if notes else ''}"


def names_of(names: Iterable[str], budget: int) -> str:
    """Return a comment that lists the names of tools whose stubs are not shown, by resource.

    Names that exceed their share of the budget are replaced by their resource and their number, the
    largest groups first.

    Args:
        names: The names of the tools, in order.
        budget: The budget of all tools, in characters.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    all_names = list(names)
    shared = shared_words(all_names)
    for name in all_names:
        connection, _, method = name.rpartition(".")
        groups.setdefault((connection, resource_of(name, shared)), []).append(method)
    if not groups:
        return ""
    lines = {group: f"#   {', '.join(methods)}" for group, methods in groups.items()}
    max_chars = int(budget * _NAMES_SHARE)
    by_size = sorted(lines, key=lambda group: len(lines[group]))
    sizes = accumulate(len(lines[group]) + 1 for group in by_size)
    fitting = {group for group, size in zip(by_size, sizes, strict=True) if size <= max_chars}
    counts_by_connection: dict[str, list[str]] = {}
    for (connection, resource), methods in groups.items():
        if (connection, resource) not in fitting:
            counts_by_connection.setdefault(connection, []).append(f"{resource} ({len(methods)})")
    text = [f'# More tools, by resource; {FIND_TOOLS}("name") shows one whole:']
    for connection in dict.fromkeys(connection for connection, _ in groups):
        text += [f"# {connection}:"] if connection else []
        text += [lines[group] for group in groups if group in fitting and group[0] == connection]
        if connection in counts_by_connection:
            text.append(
                _one_line(f"{_ABOUT} {', '.join(counts_by_connection[connection])}", max_chars // 4)
            )
    return "\n".join(text)


def _never(_name: str) -> bool:
    return False


def _head(tool: ToolDescription) -> str:
    return f"class {tool.connection}:  # {_one_line(tool.about)}"


def _stub(tool: ToolDescription, detail: Detail, task_names: Named, results: Results) -> str:
    text = _text(tool, WHOLE if tool.built_in else detail, task_names, results)
    return (
        text
        if tool.built_in or len(text) <= detail.stub
        else _text(tool, _TIGHT, task_names, results)
    )


def _text(tool: ToolDescription, detail: Detail, task_names: Named, results: Results) -> str:
    """Format a tool as a function with a docstring, within the limits."""
    parameters, returns, result_notes = tool.parameters, tool.returns, ""
    if tool.full_types is not None:
        full_types = tool.full_types()
        parameters, returns, result_notes = (
            full_types.parameters,
            full_types.returns,
            full_types.notes,
        )
    found = results.get(tool.returns)
    result = shorten(returns, detail.result, task_names, _RESULT_NAMES, detail.values)
    result = found.text if found else result
    records = [p.name for p in parameters if p.type_text.startswith("{")]
    about = records[0] if len(records) == 1 else ""
    parameter_texts = ", ".join(
        _parameter(p, detail, task_names, tool.name, p.name == about) for p in parameters
    )
    indent = "    " if tool.connection else ""
    head = f"{indent}async def {tool.method}({parameter_texts}) -> {result}:"
    summary = _one_line(tool.summary, max(detail.summary, detail.notes))
    if tool.notes:
        end = "" if summary.endswith((".", "!", "?", "…", ":", ";")) else "."
        notes_text = _cut(tool.notes, detail.notes) or ("…" if detail.docs else "")
        summary = f"{summary}{end} {notes_text}" if notes_text else summary
    summary = f"{summary} [asks]" if tool.asks else summary
    docs = [
        (p.name, _describe(p.doc, p.notes, detail))
        for p in parameters
        if detail.docs or p.required or task_names(p.name)
    ]
    if detail.docs:
        docs.append(("returns", _describe(tool.returns_doc, "" if found else result_notes, detail)))
    lines = [f"{indent}    {name}: {doc}" for name, doc in docs if doc]
    if not lines:
        return f'{head}  """{summary}"""'
    body = "\n".join(lines)
    return f'{head}\n{indent}    """{summary}\n{body}"""'


def _describe(doc: str, notes: str, detail: Detail) -> str:
    """Return the description of a value, and as much as fits of its notes."""
    texts = filter(None, [_one_line(doc, _DOC), _cut(notes, detail.notes)])
    return "; ".join(texts).replace(".; ", ". ")


def _cut(text: str, max_length: int) -> str:
    """Truncate a text after a whole sentence, and append an ellipsis."""
    line = _one_line(text, _NO_LIMIT)
    if len(line) <= max_length:
        return line
    ends = [sentence_end.end() for sentence_end in _END.finditer(line[:max_length])]
    return f"{line[: ends[-1]] if ends else ''} …".strip() if max_length else ""


def _parameter(
    parameter: Parameter, detail: Detail, task_names: Named, action: str, is_about: bool
) -> str:
    """Format a parameter as in a signature, with its type shortened to the limits."""
    is_wanted = (
        parameter.required
        or (is_about and detail != _TIGHT)
        or _is_plain(parameter.type_text, detail.other)
        or (task_names(parameter.name) and (detail != _TIGHT or is_own(parameter.name, action)))
    )
    limit, names = (detail.argument, 60) if is_wanted else (detail.other, 0)
    is_short = not is_wanted and detail.other < _ROOMY
    values = min(detail.values, _OTHER_VALUES) if is_short else detail.values
    kind = shorten(parameter.type_text, limit, task_names, names, values)
    text = f"{parameter.name}: {kind}"
    return text if parameter.default_text is None else f"{text} = {parameter.default_text}"


def _is_plain(type_text: str, max_length: int) -> bool:
    """Return whether a type has no parts, as ``int | None``: such a type is never shortened."""
    return len(type_text) <= max_length and not {*"[{("} & {*type_text}


def _one_line(text: str, max_length: int = 300) -> str:
    line = " ".join(text.split()).replace('"""', "'''")
    line = f"{line} " if line.endswith('"') else line
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"
