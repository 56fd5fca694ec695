"""Description of a failed script: the line, the message and the variables.

Objects are inspected without running their code where possible, for example by ``type()`` instead
of ``__class__``, which proxies compute. Inspections that fail are omitted.
"""

from __future__ import annotations

import re
import traceback
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard, TypeVar

from delf_sandbox.guest.calls import ToolError

_MAX_VARIABLES = 60
_MAX_MESSAGE = 4000
_MAX_LINE = 400
_MAX_NOTES = 100
_MAX_ITEMS = 100_000
_MAX_KINDS = 6
MAX_KEYS = 12
"""The maximum number of keys in the description of a dict."""
_MAX_KEY = 30
_HIDDEN_TYPES = (types.ModuleType, types.BuiltinFunctionType)

_MAX_CHAIN = 100

# Read these attributes by the descriptors of the built-in types, because a class of the script may
# override them.
_name_of = type.__dict__["__name__"].__get__
_cause_of = BaseException.__dict__["__cause__"].__get__
_members_of = BaseExceptionGroup.__dict__["exceptions"].__get__
_T = TypeVar("_T")


def is_a(value: object, kind: type[_T]) -> TypeGuard[_T]:
    """Return True if a value is an instance of a type.

    Unlike ``isinstance``, the function runs no code of the value's class.
    """
    return issubclass(type(value), kind)


def kind_name(value: object) -> str:
    """Return the name of a value's type, without running code of its metaclass."""
    return _name_of(type(value))


def attempt(function: Callable[[], _T], fallback: _T) -> _T:
    """Return the result of a function; return ``fallback`` if the function raises."""
    try:
        return function()
    except BaseException:
        return fallback


@dataclass(frozen=True)
class ScriptLine:
    """A line of a script. Its number or its text may be unknown; then the field is None."""

    line: int | None = None
    source: str | None = None


def hide_own_frames(own_path_part: str) -> None:
    """Remove the frames of delf's own code in the sandbox from the tracebacks that scripts print.

    Args:
        own_path_part: A part of the path that all files of this code have in common.
    """

    def without_own_frames(walk: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def walk_script_frames(trace: Any) -> Any:
            for frame, line_number in walk(trace):
                is_own_frame = own_path_part in frame.f_code.co_filename
                if not is_own_frame:
                    yield frame, line_number

        return walk_script_frames

    module: Any = traceback
    # The module finds the frames of an exception by these functions; not every Python has both.
    for name in ("walk_tb", "_walk_tb_with_full_positions"):
        if hasattr(module, name):
            setattr(module, name, without_own_frames(getattr(module, name)))


def find_failed_line(error: BaseException, sources: Mapping[str, str]) -> ScriptLine:
    """Return the innermost line of a script in an exception's traceback.

    For a syntax error in a script, return the line with the error. The result is an empty
    :class:`ScriptLine` if no line of a script is found.

    Args:
        error: The exception.
        sources: The texts of all scripts, by the file name that a traceback shows for the script.
    """
    if is_a(error, SyntaxError) and is_a(error.filename, str) and error.filename in sources:
        number = error.lineno if type(error.lineno) is int else 0  # no script has a line 0
        line = _line_text(sources[error.filename], number)
        if line is not None:
            return ScriptLine(number, line)
    failed_line = ScriptLine()
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        source = sources.get(code.co_filename)
        if source is not None:
            text = _line_text(source, trace.tb_lineno)
            failed_line = ScriptLine(trace.tb_lineno, text)
        trace = trace.tb_next
    return failed_line


def _line_text(source: str, number: int) -> str | None:
    """Return a line of a script, truncated; None if the line is empty or does not exist.

    Lines are separated as in Python's own line numbers, so not by other Unicode separators.
    """
    lines = re.split(r"\r\n?|\n", source)
    if not 0 < number <= len(lines):
        return None
    text = lines[number - 1].strip()
    return text[:_MAX_LINE] or None


def find_failed_call(error: BaseException | None) -> int | None:
    """Return the number of the failed tool call that caused an exception; None without such a call.

    If a script catches a call's failure and raises a new exception, the call counts as the cause
    only with ``raise … from``.

    Args:
        error: The exception; in an exception group, all members are searched.
    """
    chain = [error]
    for _ in range(_MAX_CHAIN):  # a script can link exceptions in a circle
        if not chain:
            break
        current = chain.pop(0)
        if current is None:
            continue
        if is_a(current, ToolError) and type(current.call_number) is int:
            return current.call_number
        if is_a(current, BaseExceptionGroup):
            chain += _members_of(current)
        chain.append(_cause_of(current))
    return None


def message_of(error: BaseException) -> str:
    """Return an exception's message and notes, truncated.

    A message whose ``__str__`` raises is replaced by a text that says so.
    """
    notes: Any = attempt(lambda: getattr(error, "__notes__", None), None)
    parts: list[Any] = [error]
    # A script may set ``__notes__`` to any object, even to a list subclass with its own methods.
    if type(notes) in (list, tuple):
        parts += notes[:_MAX_NOTES]
    elif notes is not None:
        parts.append(notes)
    text = "\n".join(map(_text_of, parts))
    if len(text) <= _MAX_MESSAGE:
        return text
    return f"{text[:_MAX_MESSAGE]}… ({len(text)} characters)"


def _text_of(thing: object) -> str:
    try:
        # str() may return an instance of a subclass, whose methods are the script's own.
        return str.__str__(str(thing))
    except BaseException as broken:
        kind = kind_name(broken)
        reason = attempt(lambda error=broken: f"{kind}: {error}", kind)
        reason = reason.removesuffix(": ")  # of an exception without a message
        return f"(its message cannot be shown: {reason})"


def variables_of_main(error: BaseException, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the local variables that a failed ``main()`` of the script had.

    Many models write the whole script into ``main()``, so these are the variables to report.

    Args:
        error: The exception.
        sources: The texts of all scripts, by the file name that a traceback shows for the script.
    """
    variables: dict[str, Any] = {}
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "main" and code.co_filename in sources:
            variables.update(trace.tb_frame.f_locals)
        trace = trace.tb_next
    return variables


def describe_variables(
    namespace: Mapping[str, Any], hidden_names: frozenset[str]
) -> dict[str, str]:
    """Return descriptions of the types of a script's variables, by the variable's name.

    The newest variables come last. If there are many variables, only the newest are described.

    Args:
        namespace: The script's global variables.
        hidden_names: Names that existed before the first script; they are left out.
    """
    type_by_name: dict[str, str] = {}
    for name, value in namespace.items():
        is_private = str(name).startswith("_")
        if is_private or name in hidden_names or issubclass(type(value), _HIDDEN_TYPES):
            continue
        type_by_name[name] = describe_type(value)
    return dict(list(type_by_name.items())[-_MAX_VARIABLES:])


def describe_type(value: Any) -> str:
    """Describe a value's type in a few words, such as ``DataFrame (10, 3)``.

    For a list, the description has the types of the items: ``list of 24 dict | NoneType``.
    """
    kind = kind_name(value)
    return attempt(lambda: _describe(value, kind), kind)


def _describe(value: Any, kind: str) -> str:
    """Describe a value by its type and by its size, keys or types of items."""
    if _is_collection(value):
        kinds = {kind_name(item) for item in islice(value, _MAX_ITEMS)}
        first = next(iter(value), None)
        first_item = ""
        if _is_dict(first) and first:
            first_item = describe_keys("the first", *_keys_of(first))
        return describe_collection(kind, len(value), kinds, first_item)
    if _is_dict(value):
        return describe_keys("dict", *_keys_of(value))
    if issubclass(type(value), (str, bytes)):
        return f"{kind} of length {len(value)}"
    if is_a(value, type):
        return "class"
    if is_a(value, types.FunctionType):
        return "function"
    # Arrays and tables of data libraries have a shape, such as ``(3, 2)``.
    shape = getattr(value, "shape", None)
    return f"{kind} {shape}" if _is_collection(shape) else kind


def _keys_of(value: dict[Any, Any]) -> tuple[int, Sequence[str]]:
    """Return the number of keys of a dict, and the ``repr`` of the first keys."""
    return len(value), [repr(key) for key in islice(value, MAX_KEYS)]


def describe_collection(kind: str, size: int, item_kinds: Collection[str], first_item: str) -> str:
    """Describe a collection, as in ``list of 24 dict, the first with 2 keys: 'id', 'name'``.

    Args:
        kind: The name of the collection's type.
        size: The number of items.
        item_kinds: The names of the items' types.
        first_item: The description of the first item, if it is a dict with keys; empty otherwise.
    """
    sorted_kinds = sorted(item_kinds, key=str.lower)
    shown_kinds = sorted_kinds[:_MAX_KINDS]
    if len(sorted_kinds) > _MAX_KINDS:
        shown_kinds.append(f"and {len(sorted_kinds) - _MAX_KINDS} more")
    text = f"{kind} of {size} {' | '.join(shown_kinds)}".rstrip()  # an empty list is ``list of 0``
    return f"{text}, {first_item}" if first_item else text


def describe_keys(subject: str, count: int, keys: Sequence[str]) -> str:
    """Describe a dict by its first keys, as in ``dict with 12 keys: 'id', 'name'``.

    Args:
        subject: The words for the dict.
        count: The number of keys.
        keys: The ``repr`` of the first keys, at most :data:`MAX_KEYS`.
    """
    if count == 0:
        return f"empty {subject}"
    shown_keys = ", ".join(key[:_MAX_KEY] for key in keys[:MAX_KEYS])
    return f"{subject} with {count} {'key' if count == 1 else 'keys'}: {shown_keys}"


def _is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    # isinstance() could run code of the value's class, see is_a().
    return issubclass(type(value), (list, tuple, set, frozenset))


def _is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    # isinstance() could run code of the value's class, see is_a().
    return issubclass(type(value), dict)
