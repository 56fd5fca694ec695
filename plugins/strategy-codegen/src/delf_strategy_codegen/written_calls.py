"""Scripts that a model wrote as a tool call in its text: JSON, or tags of many kinds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from delf.values.duplicate_keys import DECODER, DuplicateKeyError, read_literal
from delf_strategy_codegen.choice import Reading
from delf_strategy_codegen.python import repair_script

_CODE_KEYS: Final = ("code", "script", "python", "source", "program", "cmd")
_NESTING_KEYS: Final = (
    "arguments", "parameters", "input", "args", "tool_input", "function", "tool_calls", "calls"
)  # fmt: skip
_CODE_KEY: Final = re.compile(rf"\\?[\"'](?:{'|'.join(_CODE_KEYS)})\\?[\"']\s*:")
# The second group matches if the end tag is missing. The match then takes the rest of the text, so
# that the search for an end tag is not repeated after each further tag.
_PARAMETER: Final = (
    re.compile(
        r"<parameter(?:=|\s+name=)[\"']?(?:code|script|python)[\"']?>(.*?)(?:</parameter>|(\Z))",
        re.DOTALL | re.IGNORECASE,
    ),
    re.compile(
        r"<arg_key>\s*(?:code|script)\s*</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|(\Z))",
        re.DOTALL,
    ),
    re.compile(r"<\|python_tag\|>(.*?)(?=<\|e\w+\|>|\Z)", re.DOTALL),
    re.compile(r"<\|interpreter\|>(.*?)(?=<\|action_end\|>|\Z)", re.DOTALL),
)
_TAG: Final = re.compile(
    r"<(?P<tag>code|python|script|execute|execute_python|execute_ipython|tool_code|ipython|"
    r"python_code|antartifact|artifact)(?:\s[^<>]*)?>"
    r"(?P<code>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CDATA: Final = re.compile(r"\s*<!\[CDATA\[(.*?)\]\]>\s*", re.DOTALL)
_OBJECT: Final = re.compile(r"[\[{]\s*[\"'\[{]")
_MAX_TRIES: Final = 20
_MAX_CALLS: Final = 50
_MAX_DEPTH: Final = 6
BROKEN: Final = "The call in that answer cannot be read: {}."


def from_arguments(arguments: str, extract: Callable[[str], Reading]) -> Reading:
    """Return the script in the arguments of a tool call that the provider reported.

    Args:
        arguments: The arguments as text: JSON, or the script itself.
        extract: Extracts a script from a text.
    """
    if not arguments.lstrip().startswith(("{", "[", '"')):
        return extract(arguments)
    try:
        content = DECODER.decode(arguments)
    except (ValueError, RecursionError) as error:
        content = _parse_python_literal(arguments)
        if content is None:
            return Reading(None, BROKEN.format(error))
    return _join_scripts(content, extract)


def from_json(text: str, extract: Callable[[str], Reading]) -> Reading | None:
    """Find tool calls that a model wrote as JSON.

    Args:
        text: An answer, or a block of an answer.
        extract: Extracts a script from a text.

    Returns:
        A reading with the joined scripts of the calls. If a call is invalid JSON, a reading without
        a script, whose feedback is the error. None if the text has no call.
    """
    if _CODE_KEY.search(text) is None:
        return None
    try:
        values, parse_error = _find_json_calls(text)
    except DuplicateKeyError as error:
        return Reading(None, BROKEN.format(error))
    if values:
        return _join_scripts(values, extract)
    # Models also write calls as Python literals, which are invalid JSON.
    content = _parse_python_literal(text)
    if content is not None:
        return _join_scripts(content, extract)
    if parse_error:
        return Reading(None, BROKEN.format(parse_error))
    return None


def _find_json_calls(text: str) -> tuple[list[Any], str]:
    """Find the JSON values with scripts in a text.

    Returns:
        The values and an empty string. If an object is invalid, no values and the error.

    Raises:
        DuplicateKeyError: If an object has the same key twice.
    """
    values: list[Any] = []
    position = 0
    for _ in range(_MAX_TRIES):
        start = _next_bracket(text, position)
        if start < 0:
            break
        try:
            content, position = DECODER.raw_decode(text, start)
        except DuplicateKeyError:
            raise
        except (ValueError, RecursionError) as error:
            if _OBJECT.match(text, start):  # do not search within an invalid object
                return [], str(error)
            position = start + 1
            continue
        if _scripts_in(content):
            values.append(content)
    return values, ""


class TaggedText(NamedTuple):
    """The text between an opening and a closing tag.

    ``start`` is the index of the opening tag's start, and ``end`` the index of the closing tag's
    end.
    """

    content: str
    start: int
    end: int


def from_tags(text: str) -> list[TaggedText]:
    """Return the scripts between tags."""
    # A tool call as XML has the script in a parameter, as in <parameter name="code">.
    for pattern in _PARAMETER:
        # A match with a second group has no end tag.
        matches = [match for match in pattern.finditer(text) if match.lastindex == 1]
        if matches:
            return [TaggedText(_content(match[1]), match.start(), match.end()) for match in matches]
    # Other tags, such as <python>, contain only the script.
    scripts = [
        TaggedText(_content(match["code"]), match.start(), match.end())
        for match in _TAG.finditer(text)
    ]
    return scripts[:_MAX_CALLS]


def _content(code: str) -> str:
    marked = _CDATA.fullmatch(code)
    return code if marked is None else marked[1]


def _next_bracket(text: str, position: int) -> int:
    starts = [at for at in (text.find("{", position), text.find("[", position)) if at >= 0]
    return min(starts, default=-1)


def _parse_python_literal(text: str) -> Any:
    """Parse a tool call that a model wrote as a Python literal, such as a dict with single quotes.

    None for any other text.
    """
    try:
        value: Any = read_literal(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    is_call = not isinstance(value, str) and bool(_scripts_in(value))
    return value if is_call else None


def _join_scripts(content: Any, extract: Callable[[str], Reading]) -> Reading:
    """Join the scripts in the parsed arguments of one or several calls."""
    codes: list[str] = []
    problems: list[str] = []
    for text in _scripts_in(content):
        reading = extract(text)
        if reading == Reading():  # nothing found: the text may be a script with a mistake
            reading = Reading(repair_script(text))
        if reading.code is None:
            problems.append(reading.why)
        else:
            codes.append(reading.code)
    if codes and not problems:
        return Reading("\n\n".join(codes))
    # One problem makes the answer unusable. The model gets the first specific feedback.
    return Reading(None, next(filter(None, problems), ""))


def _scripts_in(content: Any) -> list[str]:
    """Return the scripts of at most ``_MAX_CALLS`` tool calls in parsed JSON.

    The script of a tool call is the value of a key such as ``code``.
    If the JSON is only a string, the string is the script.
    """
    if isinstance(content, str):
        return [content]
    return list(_nested_scripts(content, depth=0))[:_MAX_CALLS]


def _nested_scripts(content: Any, depth: int) -> Iterator[str]:
    """Yield the script of each tool call in parsed JSON: the value of a key such as ``code``.

    Tool calls that are nested deeper than ``_MAX_DEPTH`` are skipped.
    """
    if depth > _MAX_DEPTH:
        return
    if isinstance(content, list):
        for item in cast("list[Any]", content):
            yield from _nested_scripts(item, depth + 1)
        return
    if not isinstance(content, dict):
        return
    fields = cast("dict[str, Any]", content)
    script = _script_of(fields)
    if script is not None:
        yield script
        return
    for key in _NESTING_KEYS:
        value = fields.get(key)
        # The arguments of a call may be JSON in a string.
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = DECODER.decode(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, (dict, list)):
            yield from _nested_scripts(value, depth + 1)


def _script_of(fields: Mapping[str, Any]) -> str | None:
    """Return the script in the fields of a tool call; None if no field has a script."""
    for key in _CODE_KEYS:
        value = fields.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            lines = _items(value)
            if all(isinstance(line, str) for line in lines):
                return "\n".join(lines)
    return None


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value)
