"""The descriptions of the commands' JSON in ``docs/json.md``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from support.workspace import ROOT

PAGE: Final = ROOT / "docs/json.md"
_JSON: Final = re.compile(r"<!-- json: ([^\n]+?) -->\n((?:\|[^\n]*\n)+)")
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
    "anything": (object,),
}


def json_tables(text: str | None = None) -> dict[str, dict[str, str]]:
    """The fields of JSON output, by what has them: kinds by names of fields.

    Args:
        text: A page; the one about commands by default.
    """
    tables: dict[str, dict[str, str]] = {}
    for match in _JSON.finditer(PAGE.read_text(encoding="utf-8") if text is None else text):
        rows = [row.strip("|").split("|") for row in match[2].splitlines()[2:]]
        fields = {row[0].strip(" `"): row[1].strip() for row in rows}
        for name in match[1].split(", "):
            tables[name] = fields
    return tables


def check_object(value: Any, fields: Mapping[str, str]) -> None:
    """See that an object has these fields, of these kinds, and no others.

    Raises:
        AssertionError: When it does not.
    """
    assert isinstance(value, dict), value
    in_one = cast("dict[str, Any]", value).keys() ^ fields.keys()
    assert not in_one, f"not in both: {sorted(in_one)}"
    for name, kinds in fields.items():
        words = kinds.split(" or ")
        number = isinstance(value[name], bool) and "boolean" not in words  # Python's bool is int
        types = tuple(kind for word in words for kind in _KINDS[word])
        fits = isinstance(value[name], types) and (not number or object in types)
        assert fits, f"{name} = {value[name]!r} is not {kinds}"
