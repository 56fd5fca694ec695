"""Conversion of Monty's errors to outcomes, with messages that a model can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delf.errors import did_you_mean
from delf.protocols.sandbox import MAX_MESSAGE, Failed, LimitReached, Limits
from delf_sandbox.guest.policy import import_refusal, is_only_missing_here
from delf_sandbox_monty.aliases import ALIASES
from delf_sandbox_monty.lowering import SHIMS, SUBSET
from delf_sandbox_monty.script import line_of
from delf_sandbox_monty.uses import replace_type_names

# The modules of the standard library that scripts can import.
STANDARD_MODULES: Final = frozenset(
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
        "heapq",
        "html",
        "io",
        "itertools",
        "json",
        "math",
        "operator",
        "pathlib",
        "pprint",
        "random",
        "re",
        "statistics",
        "time",
        "tomllib",
        "typing",
        "unicodedata",
    }
)
"""The importable standard modules, except machine-related ones."""

_REAL_NAMES: Final = {alias: name for name, alias in ALIASES.items()}

_MISSING_NAMES: Final = {
    "exit": "let the script reach its end",
    "quit": "let the script reach its end",
    "input": "nobody can answer; put what is missing into the output",
    "globals": "use variables",
    "dir": "the tools are described in the task",
    "__import__": "write an import",
    "create_task": "use asyncio.gather",
}
_HELPER_NAME: Final = re.compile(r"'__delf_(\w+?)__'")
# The names of the prelude's types, each with a description for error messages.
_OBJECT_KINDS: Final = {
    "Task": "task",
    "Later": "call that is not awaited",
    "Loop": "event loop",
} | {
    word.capitalize(): word
    for word in (
        "asyncio",
        "sys",
        "html",
        "json",
        "pprint",
        "statistics",
        "heapq",
        "io",
        "operator",
    )
}
_ATTRIBUTE: Final = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_MODULE_ATTRIBUTE: Final = re.compile(r"module '(\w+)' has no attribute '(\w+)'")
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
_NO_NAME: Final = re.compile(r"name '(\w+)' is not defined")


@dataclass(frozen=True)
class Source:
    """The text of a script, with the origin of its lines.

    Args:
        text: The script as the model wrote it.
        lines: For each line that Monty ran, the number of the line in ``text``; empty if both texts
            are the same.
    """

    text: str
    lines: Sequence[int] = ()

    def original_line_number(self, number: int) -> int:
        """Convert the number of a line that Monty ran to the line number in the model's text."""
        if 0 < number <= len(self.lines):
            return self.lines[number - 1]
        return number


def ended_itself(error: Any) -> bool:
    """Return True if a script ended itself, as by ``sys.exit()``."""
    inner: BaseException = error.exception()
    return isinstance(inner, SystemExit) and str(inner) in ("", "0", "None")


def describe(
    error: Any,
    sources: Mapping[str, Source],
    tools: Mapping[str, Sequence[str]],
    modules: Sequence[str],
    limits: Limits,
) -> Failed | LimitReached:
    """Convert an exception of Monty that ended a script to an outcome.

    Args:
        error: The exception, a ``MontyError``.
        sources: A mapping from the file name that Monty gave a script to the script's text.
        tools: A mapping from the name of each connection to its actions.
        modules: The names of the importable modules.
        limits: The limits of the session.
    """
    inner: BaseException = error.exception()
    # Cut the message first: it may be very long, and the replacement searches all of it. Leave one
    # character too many, so that the outcome marks the message as truncated.
    text = replace_type_names(str(inner)[: MAX_MESSAGE + 1])
    line, source = _innermost_line(error, sources)
    if isinstance(inner, MemoryError):
        message = f"the script needed more memory than {limits.memory_bytes:,} bytes"
        return LimitReached(limit="memory", message=message, line=line, source=source)
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        message = f"the script used {limits.cpu_seconds:g} s of CPU time"
        return LimitReached(limit="cpu", message=message, line=line, source=source)
    if isinstance(inner, OSError) and "disk write limit" in text:
        message = f"the script filled its scratch space of {limits.scratch_bytes:,} bytes"
        return LimitReached(limit="file", message=message, line=line, source=source)
    monty_name = type(inner).__name__
    kind = _REAL_NAMES.get(monty_name, monty_name)
    if isinstance(inner, SystemExit):
        text = f"the script ended itself: {text}"
    kind, text = _explain(kind, text, tools, modules)
    return Failed(kind=kind, message=text, line=line, source=source)


def with_input_path(message: str, scratch: str, path_by_name: Mapping[str, str]) -> str:
    """Add the path of an input file to the message about a missing file of the same name.

    Args:
        message: The message of a FileNotFoundError.
        scratch: The path of the scratch folder, to which relative names refer.
        path_by_name: The paths of the input files as scripts see them, by name.
    """
    for name, path in path_by_name.items():
        if f"'{scratch}/{name}'" in message:
            return f"{message}; the input file is {path!r}"
    return message


def _innermost_line(error: Any, sources: Mapping[str, Source]) -> tuple[int | None, str | None]:
    """Return number and text of the innermost line of a traceback that is in a model's script.

    Return ``(None, None)`` if no line of the traceback is in a script.
    """
    for frame in reversed(error.traceback()):
        source = sources.get(frame.filename)
        if source is not None:
            number = source.original_line_number(frame.line)
            return number, line_of(source.text, number)
    return None, None


def _explain(
    kind: str, text: str, tools: Mapping[str, Sequence[str]], modules: Sequence[str]
) -> tuple[str, str]:
    """Return the name and the message of an exception, reworded for the model.

    The message names an alternative to a feature that this subset of Python does not have.
    """
    if kind == "ModuleNotFoundError" and (match := _NO_MODULE.search(text)):
        return "ImportError", _missing_module_message(match[1], modules)
    # Replace names of delf's own helpers, such as '__delf_Later__', by what the script knows.
    text = _HELPER_NAME.sub(lambda match: f"'{_OBJECT_KINDS.get(match[1], 'function')}'", text)
    if kind == "AttributeError":
        explained = _explain_missing_attribute(text, tools)
        if explained is not None:
            return explained
    if kind == "NameError" and (match := _NO_NAME.search(text)):
        advice = _MISSING_NAMES.get(match[1])
        if advice is not None:
            return kind, f"{SUBSET} without {match[1]}(): {advice}"
    if "Internal error in monty" in text:
        return kind, f"{SUBSET}, and failed on this script: {text}"
    return kind, text


def _missing_module_message(name: str, modules: Sequence[str]) -> str:
    """Return the message for the import of a missing module, with the modules to import instead."""
    # The session may also allow modules that are missing in Monty: list only those that Monty has.
    available = sorted(module for module in modules if module in STANDARD_MODULES)
    package = name.partition(".")[0]
    # A session may allow a submodule only, such as ``urllib.parse``: Monty names just its package.
    is_allowed = any(module.partition(".")[0] == package for module in modules)
    if is_allowed or is_only_missing_here(package):
        return f"{SUBSET} without {name!r}; it has: {', '.join(available)}"
    return import_refusal(name, available)


def _explain_missing_attribute(
    text: str, tools: Mapping[str, Sequence[str]]
) -> tuple[str, str] | None:
    """Return an exception's name and a clearer message for the text of an AttributeError.

    Return None if no clearer message is known. Examples of a text are ``'mail' object has no
    attribute 'sent'`` for a connection, and ``module 'os' has no attribute 'fork'``.
    """
    object_match = _ATTRIBUTE.search(text)
    if object_match is not None and object_match[1] in tools:
        connection, action = object_match.groups()
        return _explain_action(connection, action, tools[connection])
    # Some modules are replaced by objects of the prelude, which Monty does not call modules.
    is_replaced_module = object_match is not None and object_match[1] in SHIMS
    module_match = object_match if is_replaced_module else _MODULE_ATTRIBUTE.match(text)
    if module_match is None:
        return None
    module, name = module_match.groups()
    advice = _MISSING_NAMES.get(name, "write it another way")
    return "AttributeError", f"{SUBSET} without {module}.{name}: {advice}"


def _explain_action(connection: str, action: str, actions: Sequence[str]) -> tuple[str, str]:
    if action in actions:  # the script used the action as a value
        return "AttributeError", f"{SUBSET}: call {connection}.{action}(…) where it is used"
    message = f"there is no {connection}.{action}; it has: {', '.join(actions)}"
    return "ToolNotAllowed", message + did_you_mean(action, actions)
