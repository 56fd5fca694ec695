"""The limits for scripts of a task: shown in the prompt, checked before a script runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Final

from delf.protocols.sandbox import Limits
from delf_engine.bound_action import BoundAction
from delf_engine.forecast import least_calls
from delf_engine.task_run import TaskRun

_KB = 1024
_MB = 1024 * 1024
_MANY_CALLS: Final = 1_000
# Matches a number of three digits; scripts without such a number rarely make many calls.
_LARGE_NUMBER: Final = re.compile(r"\d{3}|\d_\d")


def may_delegate(bound_action: BoundAction) -> bool:
    """Return True if an action may start child tasks."""
    action = bound_action.action
    # An action with ``resumes=True`` does all its work in child tasks. A user's function that takes
    # a CallContext may call its delegate().
    takes_context = action.context is not None
    is_function_with_context = bound_action.connection.is_function and takes_context
    return action.resumes or is_function_with_context


def limits_of(run: TaskRun, *, scripts: bool) -> str:
    """Describe the limits of a task for its model.

    Args:
        run: The task.
        scripts: Whether the model writes scripts, which have further limits.
    """
    ledger = run.models.ledger
    tools = [*run.tools]
    parts = [f"{run.clock.seconds:g} s without waiting for people"]
    if scripts:
        parts += _script_limits(run.session_spec.limits, has_tools=bool(tools))
    if any(map(may_delegate, tools)):
        parts.append(
            f"at most {run.config.max_children} child tasks, all scripts together (for more, give "
            "each several pieces of the work)"
        )
        if ledger.available_usd is not None:
            parts.append(f"${ledger.available_usd:.2f} for models, child tasks included")
    return "; ".join(parts)


def _script_limits(limits: Limits, *, has_tools: bool) -> Iterator[str]:
    """Yield the limits of scripts for the prompt, in the words that :class:`Limits` declares."""
    for item in fields(limits):
        prompt: str | None = item.metadata.get("prompt")
        if prompt is None or (item.name == "calls" and not has_tools):
            continue
        value = getattr(limits, item.name)
        is_size = item.name.endswith("_bytes")
        yield prompt.format(_size(value) if is_size else f"{value:,}")


def excess(
    code: str, tools: Iterable[BoundAction], *, calls_left: int, children_left: int
) -> str | None:
    """Describe a limit that a script certainly exceeds; None without such a limit.

    Args:
        code: The script.
        tools: The actions that the script can call.
        calls_left: The number of calls that the task can still make.
        children_left: The number of child tasks that the task can still start.
    """
    tools = [*tools]
    # Only actions that do all their work in child tasks declare ``resumes``.
    child_starters = {bound_action.name for bound_action in tools if bound_action.action.resumes}
    rarely_exceeds_calls = calls_left >= _MANY_CALLS and _LARGE_NUMBER.search(code) is None
    if rarely_exceeds_calls and not child_starters:
        return None  # saves the forecast, which takes 15 ms for a script of 60 lines
    min_calls = least_calls(code, [bound_action.name for bound_action in tools])
    child_count = sum(min_calls[name] for name in child_starters)
    if child_count > children_left:
        return (
            f"the script starts at least {child_count:,} child tasks, and the task can have "
            f"{children_left:,} more: make fewer calls, each with a larger part of the work"
        )
    call_count = sum(min_calls.values())
    if call_count > calls_left:
        return (
            f"the script makes at least {call_count:,} calls, and the task can make "
            f"{calls_left:,} more"
        )
    return None


def excess_if_all_delegate(
    code: str, tools: Iterable[BoundAction], *, children_left: int
) -> str | None:
    """Return a text that says by how much a script could exceed the limit of child tasks.

    The text counts the calls that the script certainly makes, and assumes that each call that may
    start a child task starts one. None if the script then stays within the limit.

    Args:
        code: The script.
        tools: The actions that the script may call.
        children_left: The number of child tasks that the task may still start.
    """
    delegating = [bound_action.name for bound_action in tools if may_delegate(bound_action)]
    started = sum(least_calls(code, delegating).values())
    if started <= children_left:
        return None
    return (
        f"the script makes at least {started:,} calls that may start a child task each, and the "
        f"task can have {children_left:,} more"
    )


def _size(count: int) -> str:
    """Format a number of bytes: ``64 MB``, ``1.5 MB``, ``512 kB`` or ``100 bytes``."""
    if count >= _MB:
        is_whole = count % _MB == 0
        return f"{count / _MB:g} MB" if is_whole else f"{count / _MB:.1f} MB"
    if count >= _KB:
        return f"{count // _KB} kB"
    return f"{count} bytes"
