"""What Monty reports, as outcomes and messages that a model can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.protocols.sandbox import MAX_MESSAGE, Failed, LimitReached, Limits
from delf_sandbox.guest.policy import refusal
from delf_sandbox_monty.script import line_of

MODULES: Final = frozenset(
    {
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "pathlib",
        "random",
        "re",
        "time",
        "tomllib",
        "typing",
        "unicodedata",
    }
)
"""What Monty 1.4 has of Python's library, but for what tells of the machine."""

ALIASES: Final = {
    "ToolError": "DecimalException",
    "ToolException": "Clamped",
    "ToolArgumentError": "Subnormal",
    "ToolNotAllowed": "Rounded",
    "ApprovalRejected": "Inexact",
}
"""Monty has no exceptions of one's own. These built-in ones are in the same family tree, and no
script raises or catches them otherwise."""

PREAMBLE: Final = "import decimal as _decimal\n" + "\n".join(
    f"{name} = _decimal.{alias}" for name, alias in ALIASES.items()
)
_REAL_NAMES: Final = {alias: name for name, alias in ALIASES.items()}

_INSTEAD: Final = {
    "class inheritance": "write plain functions, dicts or a dataclass without a base class",
    "yield": "build a list and return it",
    "'del'": "leave the name, or make a new list or dict without the item",
    "decorator": "write a plain method and call it",
    "type alias": "leave the alias out",
}
_MISSING_NAMES: Final = {
    "exit": "let the script reach its end",
    "quit": "let the script reach its end",
    "input": "nobody can answer; put what is missing into the output",
    "globals": "use variables",
    "dir": "the tools are described in the task",
    "__import__": "write an import",
    "create_task": "use asyncio.gather",
}
_SUBSET: Final = "this sandbox runs a subset of Python"
_ATTRIBUTE: Final = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_MODULE_ATTRIBUTE: Final = re.compile(r"module '(\w+)' has no attribute '(\w+)'")
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
_NO_NAME: Final = re.compile(r"name '(\w+)' is not defined")


def describe(
    error: Any,
    sources: Mapping[str, str],
    tools: Mapping[str, Sequence[str]],
    modules: Sequence[str],
    limits: Limits,
) -> Failed | LimitReached:
    """How a script ended, from an exception of Monty.

    Args:
        error: A ``MontyError``.
        sources: The scripts' texts by the names that Monty gave them.
        tools: Methods by connection.
        modules: What the policy lets scripts import.
        limits: Of the session.
    """
    inner: BaseException = error.exception()
    text = str(inner)[: MAX_MESSAGE + 1]  # before anything looks through it
    line, source = _place(error, sources)
    if isinstance(inner, MemoryError):
        message = f"the script needed more memory than {limits.memory_bytes:,} bytes"
        return LimitReached(limit="memory", message=message, line=line, source=source)
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        message = f"the script used {limits.cpu_seconds:g} s of CPU time"
        return LimitReached(limit="cpu", message=message, line=line, source=source)
    if isinstance(inner, OSError) and "disk write limit" in text:
        message = f"the script filled its scratch space of {limits.scratch_bytes:,} bytes"
        return LimitReached(limit="file", message=message, line=line, source=source)
    kind = _REAL_NAMES.get(type(inner).__name__, type(inner).__name__)
    kind, text = _explain(kind, text, tools, modules)
    return Failed(kind=kind, message=text, line=line, source=source)


def _place(error: Any, sources: Mapping[str, str]) -> tuple[int | None, str | None]:
    """The innermost line of a script."""
    for frame in reversed(error.traceback()):
        if frame.filename in sources:
            return frame.line, line_of(sources[frame.filename], frame.line)
    return None, None


def _explain(
    kind: str, text: str, tools: Mapping[str, Sequence[str]], modules: Sequence[str]
) -> tuple[str, str]:
    """The exception's name and message, with what to do instead where Monty lacks something."""
    if kind == "NotImplementedError" and "monty" in text:
        what = text.rpartition("support ")[2] or text
        instead = next((hint for word, hint in _INSTEAD.items() if word in text), None)
        advice = instead or "write it another way"
        return "NotImplementedError", f"{_SUBSET} without {what}: {advice}"
    if kind == "ModuleNotFoundError" and (found := _NO_MODULE.search(text)):
        have = sorted(name for name in modules if name in MODULES)
        if found[1].partition(".")[0] in modules:
            return "ImportError", f"{_SUBSET} without {found[1]!r}; it has: {', '.join(have)}"
        return "ImportError", refusal(found[1], have)
    if kind == "AttributeError" and (found := _ATTRIBUTE.search(text)) and found[1] in tools:
        name, method = found.groups()
        if method in tools[name]:
            return "AttributeError", f"{_SUBSET}: call {name}.{method}(…) where it is used"
        return "ToolNotAllowed", f"there is no {name}.{method}; it has: {', '.join(tools[name])}"
    if kind == "AttributeError" and (found := _MODULE_ATTRIBUTE.search(text)):
        advice = _MISSING_NAMES.get(found[2], "write it another way")
        return kind, f"{_SUBSET} without {found[1]}.{found[2]}: {advice}"
    if kind == "NameError" and (found := _NO_NAME.search(text)) and found[1] in _MISSING_NAMES:
        return kind, f"{_SUBSET} without {found[1]}(): {_MISSING_NAMES[found[1]]}"
    if "Internal error in monty" in text:
        return kind, f"{_SUBSET}, and stumbled over this script: {text}"
    return kind, text
