"""Scripts that a model wrote as a tool call in its text: JSON, or tags of many kinds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from delf.values.duplicate_keys import DECODER, DuplicateKeyError, read_literal
from delf_strategy_codegen.choice import Reading
from delf_strategy_codegen.python import repair_script

_CODE: Final = ("code", "script", "python", "source", "program", "cmd")
_WITHIN: Final = (
    "arguments", "parameters", "input", "args", "tool_input", "function", "tool_calls", "calls"
)  # fmt: skip
_SAYS_CODE: Final = re.compile(rf"\\?[\"'](?:{'|'.join(_CODE)})\\?[\"']\s*:")
_PARAMETER: Final = (
    re.compile(
        r"<parameter(?:=|\s+name=)[\"']?(?:code|script|python)[\"']?>(.*?)</parameter>",
        re.DOTALL | re.IGNORECASE,
    ),
    re.compile(
        r"<arg_key>\s*(?:code|script)\s*</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL
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
_DEEP: Final = 6
BROKEN: Final = "The call in that answer cannot be read: {}."


def from_arguments(arguments: str, extract: Callable[[str], Reading]) -> Reading:
    """Return the script in the raw arguments of a provider's call.

    Args:
        arguments: JSON, or the script itself.
        extract: Extracts a script from a text.
    """
    if not arguments.lstrip().startswith(("{", "[", '"')):
        return extract(arguments)
    try:
        content = DECODER.decode(arguments)
    except (ValueError, RecursionError) as error:
        content = _literal(arguments)
        if content is None:
            return Reading(None, BROKEN.format(error))
    return _join_scripts(content, extract)


def from_json(text: str, extract: Callable[[str], Reading]) -> Reading | None:
    """Return the script in the JSON of a text; None if there is none.

    Args:
        text: An answer, or a block of it.
        extract: Extracts a script from a text.
    """
    if _SAYS_CODE.search(text) is None:
        return None
    values: list[Any] = []
    why = ""
    place, tries = 0, 0
    while tries < _MAX_TRIES and (begin := _begin(text, place)) >= 0:
        tries += 1
        try:
            content, place = DECODER.raw_decode(text, begin)
        except DuplicateKeyError as error:
            return Reading(None, BROKEN.format(error))
        except (ValueError, RecursionError) as error:
            if _OBJECT.match(text, begin):
                why = str(error)
                break  # do not search within an invalid object
            place = begin + 1
            continue
        if _codes(content):
            values.append(content)
    if values and not why:
        return _join_scripts(values, extract)
    content = _literal(text)
    if content is not None:
        return _join_scripts(content, extract)
    return Reading(None, BROKEN.format(why)) if why else None


def from_tags(text: str) -> list[tuple[str, int, int]]:
    """Return the scripts between the tags of a text, with their positions."""
    for pattern in _PARAMETER:
        if matches := [(_content(m[1]), m.start(), m.end()) for m in pattern.finditer(text)]:
            return matches
    return [(_content(m["code"]), m.start(), m.end()) for m in _TAG.finditer(text)][:_MAX_CALLS]


def _content(code: str) -> str:
    marked = _CDATA.fullmatch(code)
    return code if marked is None else marked[1]


def _begin(text: str, place: int) -> int:
    starts = [at for at in (text.find("{", place), text.find("[", place)) if at >= 0]
    return min(starts, default=-1)


def _literal(text: str) -> Any:
    """Return an object parsed as a Python literal with unique keys."""
    try:
        value: Any = read_literal(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if not isinstance(value, str) and _codes(value) else None


def _join_scripts(content: Any, extract: Callable[[str], Reading]) -> Reading:
    """Join the scripts of one or several calls."""
    texts = _codes(content)
    read = [extract(text) for text in texts]
    # A text in the place of code is run as it is; if invalid, the model gets its syntax error.
    read = [
        Reading(repair_script(text)) if reading == Reading() else reading
        for text, reading in zip(texts, read, strict=True)
    ]
    if not read or any(reading.code is None for reading in read):
        return next((reading for reading in read if reading.why), Reading())
    return Reading("\n\n".join(reading.code for reading in read if reading.code is not None))


def _codes(content: Any, depth: int = 0) -> list[str]:
    """Return the texts that are scripts in JSON of some kind."""
    if isinstance(content, str) and not depth:
        return [content]
    return list(_walk(content, depth))[:_MAX_CALLS]


def _walk(content: Any, depth: int) -> Iterator[str]:
    if depth > _DEEP:
        return
    if isinstance(content, list):
        for item in cast("list[Any]", content):
            yield from _walk(item, depth + 1)
    if not isinstance(content, dict):
        return
    fields = cast("dict[str, Any]", content)
    for key in _CODE:
        value = fields.get(key)
        if isinstance(value, str):
            yield value
            return
        if isinstance(value, list) and value and all(isinstance(v, str) for v in _items(value)):
            yield "\n".join(_items(value))
            return
    for key in _WITHIN:
        value = fields.get(key)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = DECODER.decode(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, (dict, list)):
            yield from _walk(value, depth + 1)


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value)
