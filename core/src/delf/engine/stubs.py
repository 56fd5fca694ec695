"""Tools as typed Python stubs, compact and in a stable order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from delf.engine.toolset import BoundAction

_MAX_SUMMARY = 300
_MAX_CONNECTION: Final = 24_000
"""The most characters about one connection; beyond, its stubs are shortened, then listed."""
_MOST_CHOSEN: Final = 3_400
"""Characters of the tools that were chosen of many; ``find_tools`` shows any of them whole."""
_SHORT_TYPE: Final = 60
_SHORT_SUMMARY: Final = 70


def render_stubs(actions: Iterable[BoundAction]) -> str:
    """The stubs of some actions, grouped by connection in the order given.

    Args:
        actions: What the model may see.
    """
    functions: list[str] = []
    classes: dict[str, list[BoundAction]] = {}
    for bound in actions:
        if bound.connection.is_function:
            functions.append(_stub(bound, ""))
            continue
        classes.setdefault(_head(bound), []).append(bound)
    blocks = [f"{head}\n{_methods(methods)}" for head, methods in classes.items()]
    return "\n".join([*functions, *blocks])


def fits(actions: Iterable[BoundAction]) -> bool:
    """Whether there is room for the whole stubs of actions that were chosen."""
    return len(render_stubs(actions)) <= _MOST_CHOSEN


def render_fitting(best_first: Sequence[BoundAction], most: int = _MOST_CHOSEN) -> str:
    """The stubs of some actions in so many characters: the best ones as detailed as there is room.

    What is left is shown by its required parameters, and what does not fit at all is left out.

    Args:
        best_first: What the model may see; those built in count as the best.
        most: Characters.
    """
    ranked = sorted(best_first, key=lambda bound: not bound.built_in)
    heads = {id(b.connection): _head(b) for b in ranked if not b.connection.is_function}
    chosen = {id(bound): _listed(bound) for bound in ranked}
    free = most - sum(len(text) + 1 for text in (*heads.values(), *chosen.values()))
    while free < 0 and len(chosen) > 1:
        free += len(chosen.pop(id(ranked.pop()))) + 1
    for bound in ranked:
        for text in (_stub(bound, _indent(bound)), _short_stub(bound)):
            more = len(text) - len(chosen[id(bound)])
            if more <= free:
                chosen[id(bound)], free = text, free - more
                break
    blocks: dict[str, list[str]] = {}
    for bound in ranked:
        blocks.setdefault(heads.get(id(bound.connection), ""), []).append(chosen[id(bound)])
    return "\n".join(line for head, texts in blocks.items() for line in (head, *texts) if line)


def _head(bound: BoundAction) -> str:
    return f"class {bound.connection.name}:  # {_one_line(bound.connection.summary)}"


def _indent(bound: BoundAction) -> str:
    return "" if bound.connection.is_function else "    "


def _methods(methods: Sequence[BoundAction]) -> str:
    """The stubs of one connection, as detailed as its budget allows."""
    whole = "\n".join(_stub(bound, "    ") for bound in methods)
    if len(whole) <= _MAX_CONNECTION:
        return whole
    short = "\n".join(_short_stub(bound) for bound in methods)
    if len(short) <= _MAX_CONNECTION:
        return f"    # signatures are shortened: optional parameters by name only\n{short}"
    lines = [_listed(bound) for bound in methods]
    sizes = accumulate(len(line) + 1 for line in lines)
    fitting = sum(size <= _MAX_CONNECTION for size in sizes)
    more = [f"    # ... and {len(lines) - fitting} more"] if fitting < len(lines) else []
    note = "    # a list of the async methods: required parameters, then what it does"
    return "\n".join([note, *lines[:fitting], *more])


def _short_stub(bound: BoundAction) -> str:
    action = bound.action
    shown = [f"{p.name}: {_short_type(p.type_text)}" for p in action.parameters if p.required]
    shown += [f"{p.name}=..." for p in action.parameters if not p.required]
    head = f"async def {action.name}({', '.join(shown)}) -> {_short_type(action.returns)}:"
    return f'{_indent(bound)}{head}  """{_short_summary(bound)}"""'


def _listed(bound: BoundAction) -> str:
    names = [p.name for p in bound.action.parameters if p.required]
    rest = ["..."] if len(names) < len(bound.action.parameters) else []
    takes = ", ".join([*names, *rest])
    return f"{_indent(bound)}{bound.action.name}({takes})  # {_short_summary(bound)}"


def _short_type(text: str) -> str:
    """A type, or what kind of value it is when it is long."""
    if len(text) <= _SHORT_TYPE:
        return text
    kind = next((k for k in ("list", "dict", "Literal") if text.startswith(f"{k}[")), "dict")
    return "str" if kind == "Literal" else kind


def _short_summary(bound: BoundAction) -> str:
    line = _one_line(bound.action.summary)
    line = line if len(line) <= _SHORT_SUMMARY else f"{line[: _SHORT_SUMMARY - 1]}…"
    return f"{line} [asks]" if bound.asks else line


def _stub(bound: BoundAction, indent: str) -> str:
    action = bound.action
    asks = " [asks]" if bound.asks else ""
    summary = f"{_one_line(action.summary)}{asks}"
    notes = [f"{p.name}: {_one_line(p.doc)}" for p in action.parameters if p.doc]
    lines = [f"{indent}async def {action.name}{action.signature}:"]
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
