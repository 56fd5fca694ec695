"""Tools as typed Python stubs, compact and in a stable order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.protocols.strategy import ToolDescription
from delf.tools.catalogs import places

FIND_TOOLS: Final = "find_tools"
_MAX_SUMMARY: Final = 300
_MAX_CONNECTION: Final = 24_000
"""The most characters about one connection; beyond, its stubs are shortened, then listed."""
_MOST_CHOSEN: Final = 3_400
"""Characters of the tools that were chosen of many; ``find_tools`` shows any of them whole."""
_SHORT_TYPE: Final = 60
_SHORT_SUMMARY: Final = 70


def stubs_of(tools: Sequence[ToolDescription], task: str) -> str:
    """The tools of a task as a prompt shows them.

    Where some were chosen of many, so that ``find_tools`` is among them, what fits the task best
    is shown whole, and the rest in the room that is left.

    Args:
        tools: What the model may see.
        task: What the user wants, in plain words.
    """
    if any(tool.built_in and tool.name == FIND_TOOLS for tool in tools):
        return render_fitting(_best_first(tools, task))
    return render_stubs(tools)


def _best_first(tools: Sequence[ToolDescription], task: str) -> list[ToolDescription]:
    catalog = Catalog(
        CatalogEntry(
            name=tool.name,
            summary=tool.summary,
            tags=tool.tags,
            parameters=tuple((p.name, p.doc) for p in tool.parameters),
        )
        for tool in tools
    )
    best = dict.fromkeys((*places(catalog, task, len(tools)), *range(len(tools))))
    return [tools[place] for place in best]


def render_stubs(tools: Iterable[ToolDescription]) -> str:
    """The stubs of some actions, grouped by connection in the order given.

    Args:
        tools: What the model may see.
    """
    functions: list[str] = []
    classes: dict[str, list[ToolDescription]] = {}
    for tool in tools:
        if not tool.connection:
            functions.append(_stub(tool, ""))
            continue
        classes.setdefault(_head(tool), []).append(tool)
    blocks = [f"{head}\n{_methods(methods)}" for head, methods in classes.items()]
    return "\n".join([*functions, *blocks])


def fits(tools: Iterable[ToolDescription]) -> bool:
    """Tell whether there is room for the whole stubs of actions that were chosen."""
    return len(render_stubs(tools)) <= _MOST_CHOSEN


def render_fitting(best_first: Sequence[ToolDescription], most: int = _MOST_CHOSEN) -> str:
    """The stubs of some actions in so many characters: the best ones as detailed as there is room.

    What is left is shown by its required parameters, and what does not fit at all is left out.

    Args:
        best_first: What the model may see; those built in count as the best.
        most: Characters.
    """
    ranked = sorted(best_first, key=lambda tool: not tool.built_in)
    heads = {tool.connection: _head(tool) for tool in ranked if tool.connection}
    chosen = {id(tool): _listed(tool) for tool in ranked}
    free = most - sum(len(text) + 1 for text in (*heads.values(), *chosen.values()))
    while free < 0 and len(chosen) > 1:
        free += len(chosen.pop(id(ranked.pop()))) + 1
    for tool in ranked:
        for text in (_stub(tool, _indent(tool)), _short_stub(tool)):
            more = len(text) - len(chosen[id(tool)])
            if more <= free:
                chosen[id(tool)], free = text, free - more
                break
    blocks: dict[str, list[str]] = {}
    for tool in ranked:
        blocks.setdefault(heads.get(tool.connection, ""), []).append(chosen[id(tool)])
    return "\n".join(line for head, texts in blocks.items() for line in (head, *texts) if line)


def _head(tool: ToolDescription) -> str:
    return f"class {tool.connection}:  # {_one_line(tool.about)}"


def _indent(tool: ToolDescription) -> str:
    return "    " if tool.connection else ""


def _methods(methods: Sequence[ToolDescription]) -> str:
    """The stubs of one connection, as detailed as its budget allows."""
    whole = "\n".join(_stub(tool, "    ") for tool in methods)
    if len(whole) <= _MAX_CONNECTION:
        return whole
    short = "\n".join(_short_stub(tool) for tool in methods)
    if len(short) <= _MAX_CONNECTION:
        return f"    # signatures are shortened: optional parameters by name only\n{short}"
    lines = [_listed(tool) for tool in methods]
    sizes = accumulate(len(line) + 1 for line in lines)
    fitting = sum(size <= _MAX_CONNECTION for size in sizes)
    more = [f"    # ... and {len(lines) - fitting} more"] if fitting < len(lines) else []
    note = "    # a list of the async methods: required parameters, then what it does"
    return "\n".join([note, *lines[:fitting], *more])


def _short_stub(tool: ToolDescription) -> str:
    shown = [f"{p.name}: {_short_type(p.type_text)}" for p in tool.parameters if p.required]
    shown += [f"{p.name}=..." for p in tool.parameters if not p.required]
    head = f"async def {tool.method}({', '.join(shown)}) -> {_short_type(tool.returns)}:"
    return f'{_indent(tool)}{head}  """{_short_summary(tool)}"""'


def _listed(tool: ToolDescription) -> str:
    names = [p.name for p in tool.parameters if p.required]
    rest = ["..."] if len(names) < len(tool.parameters) else []
    takes = ", ".join([*names, *rest])
    return f"{_indent(tool)}{tool.method}({takes})  # {_short_summary(tool)}"


def _short_type(text: str) -> str:
    """A type, or what kind of value it is when it is long."""
    if len(text) <= _SHORT_TYPE:
        return text
    kind = next((k for k in ("list", "dict", "Literal") if text.startswith(f"{k}[")), "dict")
    return "str" if kind == "Literal" else kind


def _short_summary(tool: ToolDescription) -> str:
    line = _one_line(tool.summary)
    line = line if len(line) <= _SHORT_SUMMARY else f"{line[: _SHORT_SUMMARY - 1]}…"
    return f"{line} [asks]" if tool.asks else line


def _stub(tool: ToolDescription, indent: str) -> str:
    asks = " [asks]" if tool.asks else ""
    summary = f"{_one_line(tool.summary)}{asks}"
    notes = [f"{p.name}: {_one_line(p.doc)}" for p in tool.parameters if p.doc]
    lines = [f"{indent}async def {tool.method}{tool.signature}:"]
    if notes:
        body = "\n".join(f"{indent}    {note}" for note in notes)
        lines.append(f'{indent}    """{summary}\n{body}"""')
    else:
        lines[0] += f'  """{summary}"""'
    return "\n".join(lines)


def _one_line(text: str) -> str:
    line = " ".join(text.split()).replace('"""', "'''")
    line = f"{line} " if line.endswith('"') else line
    return line if len(line) <= _MAX_SUMMARY else f"{line[: _MAX_SUMMARY - 1]}…"
