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


def identity(name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return a text that identifies a call among all calls that need approval.

    The identity is computed from the plain arguments of the script, not from the objects that the
    action makes of them: the text of an object may omit a part, such as a secret, so that two
    different calls would look equal.

    Args:
        name: The action.
        arguments: The arguments as the script gave them.
        defaults: The defaults of arguments; an argument that equals its default counts as omitted.
    """
    try:
        explicit = {
            n: v
            for n, v in arguments.items()
            if n not in defaults or not _equals_default(v, defaults[n])
        }
        return call_digest(name, explicit)
    except (RecursionError, UnsupportedValueError):
        return secrets.token_hex(32)  # like no other call


def _equals_default(value: Any, default: Any) -> bool:
    """Return whether a value equals the default in value and type, unlike 1 and True."""
    if type(value) is not type(default):
        return False
    try:
        return dumps(value) == dumps(default)
    except UnsupportedValueError:
        return False
