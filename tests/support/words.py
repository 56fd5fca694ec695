"""Parts of the documentation's pages that are made from the code: lists of words, and rows.

``<!-- words: states -->`` and ``<!-- end -->`` stand around a list. In ``docs/json.md`` the rows
of a field that a class declares are made from the words of the class's docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, get_args

from delf.events import ApprovalRequest, Event
from delf.protocols.sandbox import Limits
from delf.types import Effect, Isolation, TaskState
from delf_serve.operations import OPERATIONS
from support.json_rows import with_rows
from support.kinds import actions, commands, kinds, providers, suites
from support.meanings import in_json, meanings, plain
from support.setting_tables import with_settings
from support.workspace import ROOT

JSON_PAGE: Final = ROOT / "docs/json.md"
_WORDS: Final = re.compile(r"(<!-- words: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
_ACTIONS: Final = re.compile(r"(<!-- actions: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
_COMMANDS: Final = re.compile(r"(<!-- commands: (\w+) -->).*?(<!-- end -->)", re.DOTALL)
_TABLE: Final = r"(<!-- json: {name} -->\n\|[^\n]*\n\|[^\n]*\n)((?:\|[^\n]*\n)+)"
_ROWS: Final[Mapping[str, type]] = {
    "delf approvals list": ApprovalRequest,
    "delf approvals show, delf approvals comment, delf approvals assign": ApprovalRequest,
}
"""Tables whose rows are the fields of a class, with a few rows of their own."""
_KINDS: Final[Mapping[str, str]] = {"int": "number", "float": "number", "bool": "boolean"}
_LISTS: Final = ("tuple", "Sequence", "frozenset")


def pages() -> Iterator[Path]:
    """Yield the pages that may hold such parts."""
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted(ROOT.glob("plugins/*/README.md"))
    yield from sorted(ROOT.glob("libs/*/README.md"))


def made(page: Path, text: str) -> str:
    """Return a page with all of these parts made again."""
    text = _ACTIONS.sub(lambda match: f"{match[1]}{actions(match[2])}{match[3]}", text)
    text = _COMMANDS.sub(lambda match: f"{match[1]}{commands(match[2])}{match[3]}", text)
    text = _WORDS.sub(lambda match: f"{match[1]}{_LISTED[match[2]]()}{match[3]}", text)
    text = with_settings(text)
    if page == JSON_PAGE:
        for of in dict.fromkeys(_ROWS.values()):
            text = _with_tables(text, of, [name for name in _ROWS if _ROWS[name] is of])
        text = with_rows(text)
    return text


def _with_tables(text: str, of: type, names: list[str]) -> str:
    """The page with the tables of a class; a new field gets a row in the first of them."""
    for name in names:
        others = [each for each in names if each != name]
        elsewhere = {field for each in others for field in _names_in(text, each)}
        found = re.search(_TABLE.format(name=name), text)
        assert found is not None, name
        rows = _with_rows(found[2], of, elsewhere, more=name == names[0])
        text = f"{text[: found.start(2)]}{rows}{text[found.end(2) :]}"
    return text


def _with_rows(rows: str, of: type, elsewhere: set[str], *, more: bool) -> str:
    """Rows whose fields a class declares are made from it; others stay as they are."""
    words = {name: in_json(meaning) for name, meaning in meanings(of).items()}
    types = {item.name: str(item.type) for item in fields(of)}
    made_rows: list[str] = []
    names = [row.split("|")[1].strip(" `") for row in rows.splitlines()]
    for row in rows.splitlines(keepends=True):
        name = row.split("|")[1].strip(" `")
        if name in types:
            row = f"| `{name}` | {_kind(types[name])} | {words[name]} |\n"
        made_rows.append(row)
    if more:
        new = [name for name in types if name not in {*names, *elsewhere} and _is_data(types[name])]
        made_rows += [f"| `{name}` | {_kind(types[name])} | {words[name]} |\n" for name in new]
    return "".join(made_rows)


def _names_in(text: str, name: str) -> set[str]:
    """The fields in a table of the page."""
    found = re.search(_TABLE.format(name=name), text)
    assert found is not None, name
    return {row.split("|")[1].strip(" `") for row in found[2].splitlines()}


def _is_data(annotation: str) -> bool:
    return not annotation.startswith(("Callable", "Fit"))


def _kind(annotation: str) -> str:
    """The kind of a value in JSON, by its annotation."""
    plain = annotation.removesuffix(" | None")
    kind = _KINDS.get(plain, "text")
    if plain.startswith(_LISTS):
        kind = "list"
    elif plain.startswith(("Mapping", "dict")):
        kind = "object"
    return f"{kind} or null" if plain != annotation else kind


def _or(words: list[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _limits() -> str:
    words = meanings(Limits)
    lines = ["", "| limit | default | of |", "|---|---|---|"]
    lines += [
        f"| `{item.name}` | {item.default:,} | {words[item.name]} |" for item in fields(Limits)
    ]
    return "\n".join(lines) + "\n"


def _events() -> str:
    lines = ["", "| event | tells |", "|---|---|"]
    for event in get_args(Event):
        first = " ".join((inspect.getdoc(event) or "").partition("\n\n")[0].split())
        lines.append(f"| `{event.__name__}` | {plain(first)} |")
    return "\n".join(lines) + "\n"


def _operations() -> str:
    lines = ["", "| operation | takes | does |", "|---|---|---|"]
    for each in OPERATIONS:
        fields_of_request = [
            *(each.body.model_fields if each.body else ()),
            *each.query.model_fields,
        ]
        takes = ", ".join(f"`{name}`" for name in fields_of_request)
        lines.append(f"| `{each.method} {each.path}` | {takes} | {each.summary} |")
    return "\n".join(lines) + "\n"


_LISTED: Final[Mapping[str, Callable[[], str]]] = {
    "states": lambda: _or(list(TaskState)),
    "effects": lambda: _or(list(get_args(Effect))),
    "isolations": lambda: _or(list(get_args(Isolation))),
    "limits": _limits,
    "events": _events,
    "kinds": kinds,
    "operations": _operations,
    "providers": providers,
    "suites": suites,
}
