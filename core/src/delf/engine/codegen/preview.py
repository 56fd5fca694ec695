"""Step 5, preview: which actions that need approval a script names.

For people to look at, before it runs; with ``confirm_mode="plan"`` they approve the script as
a whole. What is enforced, is enforced at each call: by the name of the action that is really
called, whatever the script calls it.
"""

from __future__ import annotations

import ast

from delf.engine.codegen.extract import parse_script
from delf.engine.task import TaskRun
from delf.engine.toolset import BoundAction, Toolset
from delf.protocols.sandbox import Failed


def confirmed_actions(code: str, tools: Toolset) -> tuple[str, ...]:
    """The actions in a script that a person will be asked about, by name.

    Args:
        code: The script; one that does not parse names nothing.
        tools: What it may call.
    """
    return tuple(bound.name for bound in _named(code, tools))


async def preview(run: TaskRun, code: str, attempt: int) -> Failed | None:
    """Have a whole script approved, if that is how the agent asks.

    Args:
        run: The task.
        code: The script.
        attempt: The pass through the loop, from 1.

    Returns:
        None when it may run, else a failure as of a script whose call was rejected.
    """
    config = run.config
    if config.confirm_mode != "plan" or config.approval_mode != "interactive":
        return None
    named = _named(code, run.tools)
    if not named:
        return None
    async with run.step("preview", attempt):
        reason = await run.approvals.decide_script(code, attempt, named, run.replay.plan(attempt))
    if reason is None:
        return None
    message = f"the script was not run: it was rejected: {reason}"
    return Failed(kind="ApprovalRejected", message=message)


def _named(code: str, tools: Toolset) -> tuple[BoundAction, ...]:
    tree = parse_script(code)
    if tree is None:
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return tuple(b for b in tools.actions if b.asks and b.name in names)
