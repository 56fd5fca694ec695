"""Step 5, preview: which actions that need approval a script names.

For people to look at, before it runs. What is enforced, is enforced at each call.
"""

from __future__ import annotations

import ast

from delf.engine.codeblock import parse_script
from delf.engine.toolset import Toolset


def confirmed_actions(code: str, tools: Toolset) -> tuple[str, ...]:
    """The actions in a script that a person will be asked about.

    Args:
        code: The script; one that does not parse names nothing.
        tools: What it may call.
    """
    tree = parse_script(code)
    if tree is None:
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return tuple(b.name for b in tools.actions if b.asks and b.name in names)
