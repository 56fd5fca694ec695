"""Scripts of ``sed`` that only print: no ``e``, ``r``, ``w``, nor a flag of ``s`` that does so."""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_COMMAND: Final = re.compile(r"[dDgGhHlnNpPqQxz=](?:\s*\d+)?")
_FLAGS: Final = re.compile(r"[gpiIm\d]*")
_BRACKET: Final = re.compile(r"\[\^?(?:\[:[a-z]+:\]|[^\[\]\\\n])+\]")
_BETWEEN: Final = re.compile(r"[\s;]*")


def only_prints(script: str) -> bool:
    """Tell whether a script is made of addresses and of commands that print, delete and replace.

    Args:
        script: The script. What is not understood is none.
    """
    at = _skip(script, 0)
    while at < len(script):
        end = _command(script, at)
        if end is None:
            return False
        after = _skip(script, end)
        if after < len(script) and not set(script[end:after]) & {";", "\n"}:
            return False
        at = after
    return True


def _skip(script: str, at: int) -> int:
    found = _BETWEEN.match(script, at)
    return found.end() if found else at


def _command(script: str, at: int) -> int | None:
    """Find the end of the command here; None for one that may do harm."""
    for _ in range(2):
        after = _address(script, at)
        if after is None:
            return None
        if after == at:
            break
        at = _blanks(script, after)
        if script[at : at + 1] != ",":
            break
        at = _blanks(script, at + 1)
    while script[at : at + 1] == "!":
        at = _blanks(script, at + 1)
    if script[at : at + 1] in ("s", "y"):
        return _replacement(script, at)
    found = _COMMAND.match(script, at)
    return found.end() if found else None


def _address(script: str, at: int) -> int | None:
    """Find the end of an address; here, where there is none; None for an unknown one."""
    found = _ADDRESS.match(script, at)
    if found:
        return found.end()
    if script[at : at + 1] != "/":
        return at
    end = _delimited(script, at + 1, "/")
    if end is None:
        return None
    while script[end : end + 1] in ("I", "M"):
        end += 1
    return end


def _replacement(script: str, at: int) -> int | None:
    kind, delimiter = script[at], script[at + 1 : at + 2]
    if not delimiter or delimiter.isalnum() or delimiter.isspace() or delimiter in "\\;":
        return None
    middle = _delimited(script, at + 2, delimiter)
    end = None if middle is None else _delimited(script, middle, delimiter)
    if end is None or kind == "y":
        return end
    found = _FLAGS.match(script, end)
    return found.end() if found else end


def _delimited(script: str, at: int, delimiter: str) -> int | None:
    """Find the end of a part, after its delimiter.

    Only simple brackets are understood, without the delimiter: of others, programs differ.
    """
    while at < len(script):
        sign = script[at]
        if sign == "\n":
            return None
        if sign == delimiter:
            return at + 1
        if sign == "[":
            found = _BRACKET.match(script, at)
            if found is None or delimiter in found[0]:
                return None
            at = found.end()
        else:
            at += 2 if sign == "\\" else 1
    return None


def _blanks(script: str, at: int) -> int:
    while script[at : at + 1] in (" ", "\t"):
        at += 1
    return at
