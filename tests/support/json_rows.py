"""The tables of fields in ``docs/json.md`` that are made from the classes of the commands' JSON.

A command names its class at its option ``--json``. A command without a section gets one when
``make generated`` writes the page.
"""

from __future__ import annotations

import pkgutil
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from delf_cli.as_json import JsonOption
from docs_site.command_line import commands
from support.meanings import in_json, meanings, plain

_SECTION: Final = re.compile(r"<!-- json: ((?:[^\n]*, )?delf [^\n]+?) -->\n(?:\|[^\n]*\n)*")
_OTHERS: Final = "## Other commands\n"
_KINDS: Final[Mapping[Any, str]] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "anything",
    object: "anything",
}


@dataclass(frozen=True)
class Described:
    """The class that describes a command's JSON, and the fields that the command writes."""

    row: type
    fields: tuple[str, ...]


_WITHOUT_CLI: Final[Mapping[str, str]] = {
    "delf google login": "delf_google.command:LoginRow",
    "delf google status": "delf_google.command:LoginRow",
    "delf google logout": "delf_google.command:LogoutRow",
    "delf openapi effects": "delf_mcp.command:EffectsRow",  # the same as of `delf mcp effects`
}
"""The classes of commands whose packages do not depend on ``delf-cli`` and its option ``--json``."""


def described() -> dict[str, Described]:
    """Return the classes of the commands that name one, by the words that start the command."""
    found: dict[str, Described] = {}
    for words, path in _WITHOUT_CLI.items():
        row = pkgutil.resolve_name(path)
        found[words] = Described(row, tuple(get_type_hints(row)))
    for words, ctx in commands().items():
        for option in ctx.command.params:
            if isinstance(option, JsonOption) and option.row is not None:
                row = option.row
                row = pkgutil.resolve_name(row) if isinstance(row, str) else row
                found[words] = Described(row, tuple(option.fields or _written_fields(row)))
    return found


def with_rows(text: str) -> str:
    """Return the page with these tables made again, and with a section for each new command."""
    known = described()

    def make(match: re.Match[str]) -> str:
        of = {
            words: known.get(words) for words in match[1].split(", ") if words.startswith("delf ")
        }
        if not any(of.values()):
            return match[0]
        first, *others = of.values()
        if any(other != first for other in others) or first is None:
            raise ValueError(f"these commands write different JSON: {', '.join(of)}")
        return f"<!-- json: {match[1]} -->\n{_table(first)}"

    text = _SECTION.sub(make, text)
    sections = {words for names in _SECTION.findall(text) for words in names.split(", ")}
    for words in sorted(known.keys() - sections):
        text = _with_section(text, words, known[words])
    return text


def _with_section(text: str, words: str, of: Described) -> str:
    """Return the page with a new section: after those of the same group, or at the page's end."""
    group = " ".join(words.split()[:2])
    places = [match for match in _SECTION.finditer(text) if re.search(rf"\b{group}\b", match[1])]
    end = places[-1].end() if places else len(text)
    section = f"\n### {words}\n<!-- json: {words} -->\n{_table(of)}"
    if not places and _OTHERS not in text:
        section = f"\n{_OTHERS}{section[1:]}"
    return text[:end] + section + text[end:]


def _written_fields(row: type) -> Iterable[str]:
    if not issubclass(row, BaseModel):
        return get_type_hints(row)
    fields = [name for name, field in row.model_fields.items() if not field.exclude]
    return [*fields, *row.model_computed_fields]


def _table(of: Described) -> str:
    hints = get_type_hints(of.row)
    words = meanings(of.row)
    for name in of.fields:
        value = getattr(of.row, name, None)
        if isinstance(value, property):
            hints[name] = get_type_hints(value.fget)["return"]
            words[name] = plain(value.__doc__ or "")
    if issubclass(of.row, BaseModel):
        for name, field in of.row.model_fields.items():
            words[name] = plain(field.description or "")
    lines = ["| field | kind | meaning |", "|---|---|---|"]
    for name in of.fields:
        if name not in words:
            raise ValueError(f"{of.row.__name__} does not describe {name}")
        lines.append(f"| `{name}` | {kind_of(hints[name])} | {in_json(words[name])} |")
    return "\n".join(lines) + "\n"


def kind_of(hint: Any) -> str:
    """Return the kind of a value in JSON, such as ``text or null``, by its resolved type."""
    if hint in _KINDS:
        return _KINDS[hint]
    origin: Any = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(kind_of, get_args(hint))))
    if origin is Literal:
        return " or ".join(dict.fromkeys(kind_of(type(value)) for value in get_args(hint)))
    if issubclass(origin, Path):
        return "text"
    if issubclass(origin, Enum):
        return kind_of(type(next(iter(origin)).value))
    if issubclass(origin, (Sequence, frozenset)):
        return "list"
    return "object"
