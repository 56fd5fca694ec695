"""The plan of a script: its actions that need approval, shown before it runs."""

from __future__ import annotations

import ast
import warnings

from delf.protocols.sandbox import check_script
from delf_engine.bound_action import BoundAction
from delf_engine.toolset import Toolset


def named_actions(code: str, tools: Toolset) -> tuple[BoundAction, ...]:
    """Return the actions in a script that need approval, for display before it runs.

    Enforcement happens at each call, by the action that is really called, whatever the script calls
    it.

    Args:
        code: The script; an invalid script names nothing.
        tools: The callable tools.
    """
    asking = [bound_action for bound_action in tools if bound_action.asks]
    if not asking or check_script(code) is not None:
        return ()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return tuple(bound_action for bound_action in asking if bound_action.name in names)
