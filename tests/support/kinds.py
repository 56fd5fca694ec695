"""Tables about plugins: hooks, protocols, contract suites, actions and providers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import delf.testing
from delf.hookspecs import HOOKS
from delf.plugins.host import PluginHost
from delf.specs import CommandSpec, ConnectionSpec, ModelSpec
from delf_devkit.testing.contracts.base import Contract
from support.workspace import LIBRARIES, PLUGINS, Library


def kinds() -> str:
    """Return the kinds of plugins as a table."""
    lines = [
        "",
        "| kind | hook | brings | what its factory makes | libraries of its plugins | suite |",
        "|---|---|---|---|---|---|",
    ]
    for hook, spec in HOOKS.items():
        about = _plain(inspect.getdoc(spec) or "")
        brings = about.partition("\n\n")[0].rstrip(".")
        its_own = re.search(r"^The factory is (an? [^,]+?)(?:,|\.$)", about, re.MULTILINE)
        protocol = (spec.protocol or "").replace(":", ".")
        libraries = ", ".join(f"`{name}`" for name in sorted(_libraries_of(spec.kind)))
        link = f"[{hook}](../hooks/{hook}.md)"
        cells = [
            f"`{spec.kind}`",
            link,
            brings,
            its_own[1] if its_own else f"`{protocol}`",
            libraries,
            f"`{suite_of(spec.kind)}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def actions(connection: str) -> str:
    """Return the actions of a connection as a table."""
    host = PluginHost.discover(environ={})
    spec = host.spec(ConnectionSpec, connection)
    lines = ["", "| action | group | effect | what it does |", "|---|---|---|---|"]
    for action in host.resolve(spec).inspect(verbose=True)["methods"]:
        given = [_parameter(each) for each in action["parameters"]]
        group = f"`{action['permission']}`" if "permission" in action else ""
        about = " ".join(action["description"].split()).rstrip(".").replace("|", "\\|")
        called = f"`{action['name']}({', '.join(given)})`"
        lines.append(f"| {called} | {group} | {action['effect']} | {about} |")
    return "\n".join(lines) + "\n"


def commands(plugin: str) -> str:
    """Return the commands of a plugin as a table."""
    (package,) = (each for each in PLUGINS if each.name == plugin)
    lines = ["", "| command | does |", "|---|---|"]
    lines += [
        f"| `delf {spec.name}` | {spec.summary.rstrip('.')} |"
        for spec in package.specs
        if isinstance(spec, CommandSpec)
    ]
    return "\n".join(lines) + "\n"


def providers() -> str:
    """Return the providers of ``model-http`` as a table."""
    spec = PluginHost.discover(environ={}).spec(ModelSpec, "http")
    lines = ["", "| model names | `provider` | key |", "|---|---|---|"]
    shown: set[str] = set()
    for provider in spec.providers:
        patterns = (*provider.models, *(f"{word}/*" for word in provider.words))
        names = [pattern for pattern in patterns if pattern not in shown]
        shown.update(names)
        cells = [", ".join(f"`{each}`" for each in names), f"`{provider.name}`"]
        cells.append(" or ".join(f"`{key}`" for key in provider.keys))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _parameter(given: Mapping[str, Any]) -> str:
    return given["name"] if given["required"] else f"{given['name']}={given['default']}"


def suite_of(kind: str) -> str:
    """Return the name of the contract suite of a kind."""
    return f"{kind.title()}Contract"


def suites() -> str:
    """Return the contract suites, with the fixtures and flags that a subclass sets, as a table."""
    lines = ["", "| suite | fixtures | flags |", "|---|---|---|"]
    for name in delf.testing.__all__:
        suite = getattr(delf.testing, name)
        if not (isinstance(suite, type) and issubclass(suite, Contract)):
            continue
        settings = _settings_of(suite)
        fixtures = [key for key, value in settings.items() if _is_fixture(value)]
        flags = [key for key in settings if key not in fixtures]
        cells = [
            f"`{name}`",
            *(", ".join(f"`{each}`" for each in part) for part in (fixtures, flags)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _settings_of(suite: type) -> dict[str, object]:
    """The class attributes and fixtures that a suite lets its subclasses set."""
    found: dict[str, object] = {}
    for cls in suite.__mro__:
        if cls is Contract or not issubclass(cls, Contract):
            continue
        for name, value in vars(cls).items():
            plain = not name.startswith(("_", "test_")) and not inspect.isfunction(value)
            if plain and not isinstance(value, property) and not _is_cached(value):
                found.setdefault(name, value)
    found.pop("question", None)
    return found


def _is_cached(value: object) -> bool:
    return type(value).__name__ == "cached_property"


def _is_fixture(value: object) -> bool:
    return type(value).__name__.startswith("Fixture")


def _libraries_of(kind: str) -> set[str]:
    """Libraries that plugins of one kind use; that of commands is theirs alone."""
    found: set[str] = set()
    for package in (*PLUGINS, *LIBRARIES):
        offered = {spec.kind for spec in package.specs}
        own = {"delf-cli"} if "command" in offered else set[str]()
        if offered == {"command"} == {kind}:
            found |= _needs(package) & own
        elif offered - {"command"} == {kind}:
            found |= _needs(package) - own
    return found


def _needs(package: Library) -> set[str]:
    lines = package.metadata["project"]["dependencies"]
    libraries = {f"delf-{library.name}" for library in LIBRARIES}
    return libraries & {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


def _plain(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
