"""Parsing of a call in a model's text, repairing unambiguous mistakes."""

from __future__ import annotations

import html
import io
import json
import re
import tokenize
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, cast

from delf.values.duplicate_keys import DECODER, DuplicateKeyError, read_literal
from delf_strategy_stream.events import Called, UnparsableCall

_ARGUMENT_KEYS: Final = ("args", "arguments", "parameters", "input")
_TRAILING_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)

_UNREADABLE: Final = (
    ValueError,
    TypeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def read_call(text: str) -> Called | UnparsableCall:
    """Parse a tool call that a model wrote as JSON.

    Some deviations from JSON are accepted: line breaks in strings, trailing commas, quotes as HTML
    entities, Python literals, and arguments as a JSON string. Duplicate keys and missing commas
    are ambiguous and make the call unreadable.

    Args:
        text: The call, as ``{"name": …, "args": {…}}``.
    """
    why = "it is not an object"
    for decode in _DECODERS:
        try:
            value = decode(text)
        except DuplicateKeyError as error:
            return UnparsableCall(text, str(error))
        except _UNREADABLE as error:
            is_plain_json = decode is _DECODERS[0]
            if is_plain_json:  # the errors of the other decoders do not help the model
                why = f"it is not JSON: {getattr(error, 'msg', 'it is nested too deeply')}"
            continue
        if isinstance(value, dict):
            return _parse_call(cast("dict[str, Any]", value), text)
    return UnparsableCall(text, why)


def _parse_with_trailing_commas(text: str) -> Any:
    # Group 1 of the pattern is a whole string, which stays: a comma in a string is text.
    return DECODER.decode(_TRAILING_COMMA.sub(lambda m: m.group(1) or "", text))


def _parse_with_entities(text: str) -> Any:
    if '"' in text:
        raise ValueError("only some of its quotes are entities")
    return DECODER.decode(html.unescape(text))


def _parse_python(text: str) -> Any:
    """Parse a Python literal; raise if a key is repeated or strings are written side by side."""
    token_types = [t.type for t in tokenize.generate_tokens(io.StringIO(text).readline)]
    token_types = [kind for kind in token_types if kind not in (tokenize.NL, tokenize.NEWLINE)]
    if (tokenize.STRING, tokenize.STRING) in pairwise(token_types):
        raise ValueError("two texts are side by side")
    # read_literal() raises for a repeated key. The conversion to JSON text and back replaces tuples
    # by lists, for example, and raises for values that JSON does not have.
    return json.loads(json.dumps(read_literal(text)))


_DECODERS: Final[tuple[Callable[[str], Any], ...]] = (
    DECODER.decode,
    _parse_with_trailing_commas,
    _parse_with_entities,
    _parse_python,
)


def _parse_call(value: dict[str, Any], text: str) -> Called | UnparsableCall:
    """Return the call that a JSON object describes.

    Args:
        value: The object.
        text: The text of the object, for a call that cannot be parsed.
    """
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return UnparsableCall(text, 'it has no "name"')
    argument_keys = [key for key in _ARGUMENT_KEYS if key in value]
    has_only_name = len(value) == 1
    if len(argument_keys) != 1 and not has_only_name:
        return UnparsableCall(text, 'its arguments are to be in "args"')
    try:
        arguments = {} if has_only_name else _parse_arguments(value[argument_keys[0]])
    except DuplicateKeyError as error:
        return UnparsableCall(text, str(error))
    except (ValueError, TypeError, RecursionError):
        return UnparsableCall(text, '"args" is not an object')
    return Called(name, arguments)


def _parse_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call, which may be null or the text of an object.

    Raises:
        DuplicateKeyError: If a key of the object is repeated.
        ValueError: If the arguments are an invalid text.
        TypeError: If the arguments are not an object.
    """
    if isinstance(arguments, str):
        arguments = DECODER.decode(arguments or "{}")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise TypeError
    named_arguments = cast("dict[Any, Any]", arguments)
    return {str(key): item for key, item in named_arguments.items()}
