"""Pages that are made whole from the code: events, the HTTP API, settings, the catalogue."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from delf import errors, events, hookspecs
from delf.errors import DelfError
from delf.events import Event
from delf.hookspecs import HOOKS
from delf.packages.official import module_of
from delf.settings import PluginSettings
from delf.tools.connection import Connection
from delf_console.available import purposes
from delf_serve.openapi import document
from delf_serve.operations import OPERATIONS

_ROOT: Final = Path(__file__).parents[2]
_EVENTS: Final = """\
An event is a step of a task. `delf runs events ID` shows the events of a task, `GET
/tasks/{id}/events` sends them, and an observer gets each one. Every event has a `task_id`, a `seq`
that counts from 1 in the task, and `at`, the Unix time in seconds.
"""
_COMMON_STATUSES: Final = ("400", "401", "403", "408", "413", "415", "421", "422", "429")
_HTTP: Final = f"""\
Every operation of `delf serve`. [Serving](../serve.md) explains keys, pages and proxies;
`GET /openapi.json` of a server gives the same to programs. Any operation may answer
{", ".join(_COMMON_STATUSES)} with a [Problem](#problem), which says what was wrong.
"""
_SETTINGS: Final = """\
A connection's settings are under `[connections.NAME]` in `delf.toml`, or in variables
`DELF_<NAME>_<SETTING>`. Those of any other plugin are under `[plugins.NAME]`, or in
`DELF_<PLUGIN>_<SETTING>`. A setting with the mark *secret* reaches no log, prompt or script.
"""
_CATALOGUE: Final = """\
All plugins of delf, by purpose. `delf plugins install NAME` installs one, and
`delf plugins available` lists them and marks the installed ones.
"""
_COMMON: Final = ("task_id", "seq", "at")
_ROLE: Final = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def events_page() -> str:
    """Return the page with every event of a journal and its fields."""
    lines = [
        "# Events",
        _EVENTS,
        "",
        _plain(inspect.getdoc(events) or "").partition("\n\n")[2],
        "",
    ]
    for cls in sorted(get_args(Event), key=_line_of):
        about, _, _ = (inspect.getdoc(cls) or "").partition("\nArgs:")
        lines += [f"## {cls.__name__}", _plain(about), "", "| field | type |", "|---|---|"]
        lines += [
            f"| `{field.name}` | `{_cell(str(field.type))}` |"
            for field in dataclasses.fields(cls)
            if field.name not in _COMMON
        ]
        lines += [""]
    return "\n".join(lines)


def http_page() -> str:
    """Return the page with every operation of the HTTP API."""
    message = document(OPERATIONS, server="http://127.0.0.1:8080", keyed=True)
    schemas: Mapping[str, Any] = message["components"]["schemas"]
    lines = [
        "# The HTTP API",
        _HTTP,
        "",
    ]
    used: list[str] = []
    for operation in OPERATIONS:
        described = message["paths"][operation.path][operation.method.lower()]
        lines += [f"## {operation.method} {operation.path}", operation.summary, ""]
        right = f"the right `{operation.right}`" if operation.right else "no key"
        lines += [f"Needs {right}.", ""]
        rows = [
            f"| `{param['name']}` | {param['in']} | {_kind(param['schema'])} |"
            f" {_text(param.get('description') or param['schema'].get('description', ''))} |"
            for param in described.get("parameters", ())
        ]
        if rows:
            lines += ["| parameter | in | type | meaning |", "|---|---|---|---|", *rows, ""]
        body = described.get("requestBody", {}).get("content", {})
        for media, content in body.items():
            lines += [f"The body: {_reference(content.get('schema', {}), used)} (`{media}`).", ""]
        lines += ["| status | meaning | answer |", "|---|---|---|"]
        for status, answer in described["responses"].items():
            if status in _COMMON_STATUSES:
                continue
            if answer.get("content"):
                media, content = next(iter(answer["content"].items()))
                what = f"{_reference(content.get('schema', {}), used)} (`{media}`)"
            else:
                what = ""
            lines += [f"| {status} | {_text(answer['description'])} | {what} |"]
        lines += [""]
    lines += ["## Objects", ""]
    for name, schema in schemas.items():
        lines += [f"### {name}", _plain(schema.get("description", "")), ""]
        properties = schema.get("properties")
        if not properties:
            lines += ["```json", json.dumps(schema, indent=1), "```", ""] if name in used else []
            continue
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{field}` | {_kind(shape)} | {_text(shape.get('description', ''))} |"
            for field, shape in properties.items()
        ]
        lines += [""]
    return "\n".join(lines)


def hooks_page() -> str:
    """Return the page with every hook, and the fields of what it returns."""
    lines = ["# Hooks", _plain((inspect.getdoc(hookspecs) or "").partition("\n\n")[2]), ""]
    for name, spec in HOOKS.items():
        about = _plain((inspect.getdoc(spec) or "").partition("\n\nArgs:")[0])
        lines += [f"## {name}", about, "", f"[Its page](../hooks/{name}.md) has an example.", ""]
        lines += [f"Returns `{spec.__name__}`:", "", "| field | type |", "|---|---|"]
        lines += [
            f"| `{field.name}` | `{_cell(str(field.type))}` |" for field in dataclasses.fields(spec)
        ]
        lines += [""]
    return "\n".join(lines)


def errors_table(_text: str = "") -> str:
    """Return the table of all errors of the core: code, class, and what it is a kind of."""
    lines = ["| code | class | is a kind of |", "|---|---|---|"]
    found = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]
    found = [cls for cls in found if issubclass(cls, DelfError)]
    for cls in sorted(found, key=_line_of):
        anchor = f"{cls.code} {cls.__name__}".lower().replace(" ", "-")
        lines += [f"| `{cls.code}` | [{cls.__name__}](#{anchor}) | `{cls.__bases__[0].__name__}` |"]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Return the page with the settings of every plugin."""
    lines = [
        "# Settings of plugins",
        _SETTINGS,
        "",
    ]
    for names in purposes().values():
        for name in names:
            for cls in _settings_of(name):
                page = f"../repository/plugins/{name}/README.md"
                lines += [f"## {name}", f"[The plugin's page]({page})."]
                lines += ["", "| setting | type | default | meaning |", "|---|---|---|---|"]
                lines += [
                    f"| `{field}` | `{_cell(_type(info.annotation))}` | {_default(info)} |"
                    f" {_text(info.description or '')} |"
                    for field, info in cls.model_fields.items()
                ]
                lines += [""]
    return "\n".join(lines)


def catalogue_page() -> str:
    """Return the catalogue: every plugin by purpose, from its own metadata."""
    official = json.loads(
        (_ROOT / "core/src/delf/packages/official.json").read_text(encoding="utf-8")
    )
    lines = [
        "# Plugins by purpose",
        _CATALOGUE,
        "",
    ]
    for purpose, names in purposes().items():
        lines += [f"## {purpose}", "| plugin | purpose | adds |", "|---|---|---|"]
        for name, summary in names.items():
            metadata = tomllib.loads((_ROOT / f"plugins/{name}/pyproject.toml").read_text())
            brings = [
                f"{'class' if kind == 'exports' else kind} `{item}`"
                for kind, items in official.items()
                for item, distribution in items.items()
                if distribution == metadata["project"]["name"]
            ]
            words = ", ".join(metadata["project"]["keywords"][2:])
            lines += [
                (
                    f"| [{name}](../repository/plugins/{name}/README.md) | {_text(summary)}"
                    f" *({words})* | {', '.join(brings)} |"
                )
            ]
        lines += [""]
    lines += ["[Writing one](../plugin-authors.md) takes ten minutes.", ""]
    return "\n".join(lines)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/catalogue.md": catalogue_page,
    "reference/events.md": events_page,
    "reference/hooks.md": hooks_page,
    "reference/http.md": http_page,
    "reference/settings.md": settings_page,
}
"""The function that makes each page, by the page's place in the site."""


def _settings_of(name: str) -> list[type[PluginSettings]]:
    """Return a plugin's settings classes; else those that its connection shares with others."""
    package = module_of(f"delf-plugin-{name}")
    folder = _ROOT / f"plugins/{name}/src" / package
    if (folder / "settings.py").exists():
        module = importlib.import_module(f"{package}.settings")
        found = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
        own = [
            c for c in found if issubclass(c, PluginSettings) and c.__module__ == module.__name__
        ]
    elif (folder / "connection.py").exists():
        module = importlib.import_module(f"{package}.connection")
        found = [cls for _, cls in inspect.getmembers(module, inspect.isclass)]
        own = [
            c.Settings
            for c in found
            if issubclass(c, Connection) and c.__module__ == module.__name__
        ]
    else:
        own = []
    return [cls for cls in own if cls is not None and cls.model_fields]


def _type(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    if get_args(hint):
        return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(hint)).replace("Annotated", "")
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _default(info: Any) -> str:
    if info.is_required():
        return "needed"
    value = info.get_default(call_default_factory=True)
    if value is None or value in ("", [], {}, ()):
        return ""
    return "*secret*" if "Secret" in _type(info.annotation) else f"`{_cell(str(value))}`"


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(map(_kind, schema[word])))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def _reference(schema: Mapping[str, Any], used: list[str]) -> str:
    if "$ref" in schema:
        used.append(schema["$ref"].rpartition("/")[2])
    return _kind(schema)


def _line_of(cls: type) -> int:
    return inspect.getsourcelines(cls)[1]


def _plain(text: str) -> str:
    """Convert a docstring to Markdown."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _text(text: str) -> str:
    return _cell(" ".join(_plain(text).split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
