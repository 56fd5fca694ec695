"""Tools as typed Python stubs, compact and in a stable order."""

from __future__ import annotations

from collections.abc import Iterable

from delf.engine.toolset import BoundAction

_MAX_SUMMARY = 300


def render_stubs(actions: Iterable[BoundAction]) -> str:
    """The stubs of some actions, grouped by connection in the order given.

    Args:
        actions: What the model may see.
    """
    functions: list[str] = []
    classes: dict[str, list[str]] = {}
    for bound in actions:
        if bound.connection.is_function:
            functions.append(_stub(bound, ""))
            continue
        head = f"class {bound.connection.name}:  # {_one_line(bound.connection.summary)}"
        classes.setdefault(head, []).append(_stub(bound, "    "))
    blocks = [f"{head}\n" + "\n".join(methods) for head, methods in classes.items()]
    return "\n".join([*functions, *blocks])


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
    return line if len(line) <= _MAX_SUMMARY else f"{line[: _MAX_SUMMARY - 1]}…"
