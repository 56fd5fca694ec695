"""Names that people, files and programs use: commands, keys, variables, JSON, HTTP, events.

The names are those of the running code. ``make generated`` writes the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import click
from pydantic import BaseModel

from delf.hookspecs import CONNECTIONS_GROUP, ENTRY_POINT_GROUP, EXPORTS_GROUP
from delf.llm import SETTINGS
from delf.plugins.host import PluginHost
from delf_cli import errors as exits
from delf_devkit.new import KINDS
from delf_devkit.testing import pytest_plugin
from delf_engine.config import LLM_KEYS, AgentConfig
from delf_engine.project.files import PREFER, SECTIONS
from delf_engine.project.prices import KEYS as PRICE_KEYS
from delf_engine.project.texts import OTHER_VARIABLES
from delf_engine.toolset import RESERVED
from delf_sandbox.guest.calls import EXCEPTIONS
from delf_serve.openapi import document
from delf_serve.operations import OPERATIONS
from delf_workers.definition import WorkerDefinition
from docs_site.command_line import commands
from support.commands import json_tables
from support.public_names import source_of
from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT

OUTSIDE: Final = ROOT / "tests/repo/outside_names.txt"
_VARIABLE: Final = re.compile(r"""["'](DELF_[A-Z_]*[A-Z])["']""")
_ERROR: Final = re.compile(r"^## (\S+) (\w+)$", re.MULTILINE)
_NO_CONTRACT: Final = frozenset({"DELF_BAIT", "DELF_CONTRACT_SECRET"})
"""Variables that delf gives to a child of its own."""


def outside_names() -> list[str]:
    """Return a line for each name, sorted."""
    return sorted(
        {
            *_of_commands(),
            *_of_settings(),
            *_of_json(),
            *_of_http(),
            *_of_plugins(),
            *(f"exit status {name} = {getattr(exits, name)}" for name in _EXITS),
            *(f"name in scripts {name}" for name in RESERVED),
            *(f"exception in scripts {name}" for name in EXCEPTIONS),
            *_of_models("key of a worker", WorkerDefinition),
            *(f"kind of scaffold {kind}" for kind in KINDS),
            *(
                f"fixture {name}"
                for name, value in vars(pytest_plugin).items()
                if _is_fixture(value)
            ),
        }
    )


_EXITS: Final = ("OK", "FAILED", "USAGE", "UNDECIDED", "INTERRUPTED")


def _of_commands() -> Iterator[str]:
    found = commands()
    everywhere = {parameter.name for parameter in found["delf"].command.params}
    for words, context in found.items():
        yield f"command {words}"
        for parameter in context.command.params:
            if words != "delf" and parameter.name in everywhere:
                continue
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                yield f"option {words} {option}"
            if isinstance(parameter.type, click.Choice):
                yield from (f"choice {words} {parameter.name} {c}" for c in parameter.type.choices)
            if parameter.envvar:
                yield f"variable {parameter.envvar} of {words}"


def _of_settings() -> Iterator[str]:
    yield from (f"section of delf.toml {name}" for name in (*SECTIONS, PREFER))
    yield from _of_models("key of [agent]", AgentConfig)
    yield from (f"key of a model {name}" for name in LLM_KEYS)
    yield from (f"setting of a model {name}" for name in SETTINGS)
    yield from (f"key of pricing.json {name}" for name in PRICE_KEYS)
    yield from (f"variable {name}" for name in OTHER_VARIABLES)
    for folder in (CORE, *(one.folder for one in (*LIBRARIES, *PLUGINS))):
        for path in (folder / "src").rglob("*.py"):
            found = _VARIABLE.findall(path.read_text(encoding="utf-8"))
            yield from (f"variable {name}" for name in found if name not in _NO_CONTRACT)


def _of_models(what: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield the keys of a table, with those of tables in it."""
    for name, field in model.model_fields.items():
        yield f"{what} {name}"
        for each in (field.annotation, *get_args(field.annotation)):  # as in ``Table | None``
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from _of_models(f"{what} {name}", each)


def _of_json() -> Iterator[str]:
    for where, fields in json_tables().items():
        yield from (f"JSON of {where}: {name}" for name in fields)
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    yield from (f"error {code} {name}" for code, name in _ERROR.findall(page))


def _of_http() -> Iterator[str]:
    content: Mapping[str, Any] = document(OPERATIONS, server="/", keyed=True)
    for path, methods in content["paths"].items():
        for method, operation in methods.items():
            place = f"HTTP {method.upper()} {path}"
            yield place
            for parameter in operation.get("parameters", ()):
                yield f"{place} {parameter['in']} {parameter['name']}"
    for name, schema in content["components"]["schemas"].items():
        yield from (f"HTTP {name}.{field}" for field in schema.get("properties", ()))
        for field, value in schema.get("properties", {}).items():
            if "const" in value:
                yield f"HTTP {name}.{field} = {value['const']}"
    yield from (f"HTTP header {one['name']}" for one in _headers(content))


def _headers(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (x for x in content["components"]["securitySchemes"].values() if "name" in x)


def _of_plugins() -> Iterator[str]:
    groups = (ENTRY_POINT_GROUP, CONNECTIONS_GROUP, EXPORTS_GROUP)
    yield from (f"group of entry points {group}" for group in groups)
    for record in PluginHost.discover().records():
        yield f"plugin {record.name}"
        for spec in record.specs:
            yield f"{spec.kind} {spec.name}"
            for several in ("modes", "serves"):
                yield from (f"{spec.kind} {several} {one}" for one in getattr(spec, several, ()))
            if spec.kind not in _WITHOUT_OPTIONS:
                yield from (f"{spec.kind} {spec.name} option {o}" for o in _options(spec.factory))


_WITHOUT_OPTIONS: Final = frozenset({"command", "connection", "format", "model"})
"""Kinds whose settings are fields of a class, or who take no options."""


def _options(factory: str) -> Iterator[str]:
    """Yield the names of a factory's options, from its source."""
    module, _, name = factory.partition(":")
    for node in ast.parse(source_of(module)).body:
        if getattr(node, "name", None) != name:
            continue
        makers = [node, *(n for n in getattr(node, "body", ()) if _name(n) == "__init__")]
        if isinstance(makers[-1], (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = makers[-1].args
            for argument in (*arguments.args, *arguments.kwonlyargs):
                if argument.arg not in ("self", "context"):
                    yield argument.arg


def _name(node: ast.AST) -> str | None:
    return getattr(node, "name", None)


def _is_fixture(value: object) -> bool:
    return type(value).__name__ == "FixtureFunctionDefinition"
