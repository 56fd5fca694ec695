"""The words of docstrings, as the documentation's tables show them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Final

_IN_JSON: Final[Mapping[str, str]] = {"None": "null", "True": "true", "False": "false"}


def meanings(of: type) -> dict[str, str]:
    """The words of a class's docstring for each of its fields."""
    given = (inspect.getdoc(of) or "").partition("Args:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", given, re.MULTILINE)
    return {name: plain(" ".join(words.split())) for name, words in found}


def plain(text: str) -> str:
    """Return text of a docstring as text of a table's cell."""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
    return text.replace("|", "\\|").rstrip(".")


def in_json(text: str) -> str:
    """Return words about a value of Python as words about the same value in JSON."""
    text = re.sub(r"(?<=\. )None\b", "Null", text)
    return re.sub(r"\b(?:None|True|False)\b", lambda match: _IN_JSON[match[0]], text)
