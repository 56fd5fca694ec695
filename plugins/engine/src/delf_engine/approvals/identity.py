"""The identity of calls: two calls with one identity are the same call."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from delf.values.encoding import UnsupportedValueError, dumps


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    return hashlib.sha256(dumps([name, dict(sorted(arguments.items()))])).hexdigest()


def identity(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Make the text that tells a call from all other calls that a person would be asked about.

    It counts what the script gave, which is plain data. An object that is made from it may show
    less than it holds, as a secret or a pattern does.

    Args:
        name: The action.
        given: The arguments as the script gave them.
        defaults: Arguments that may be left out; one that is spelled out counts as left out.
    """
    try:
        said = {n: v for n, v in given.items() if n not in defaults or not _is(v, defaults[n])}
        return call_digest(name, said)
    except (RecursionError, UnsupportedValueError):
        return secrets.token_hex(32)  # like no other call


def _is(value: Any, default: Any) -> bool:
    """Tell whether a value is the default, and no equal one of another type, such as 1 and True."""
    if type(value) is not type(default):
        return False
    try:
        return dumps(value) == dumps(default)
    except UnsupportedValueError:
        return False
