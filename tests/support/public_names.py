"""The interface of plugin authors as it is: every name that they import, with its signature.

``cd tests && ../.venv/bin/python -m support.public_names`` writes it again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import griffe

from delf.hookspecs import PLUGIN_API
from support.workspace import ROOT

SNAPSHOT: Final = ROOT / "tests/repo/public_names.txt"
MODULES: Final = (
    "delf.errors", "delf.events", "delf.hookspecs", "delf.messages", "delf.protocols",
    "delf.settings", "delf.specs", "delf.tools.action", "delf.tools.connection",
    "delf.tools.context", "delf.tools.function", "delf.types",
)  # fmt: skip
_HEAD: Final = "PLUGIN_API = "


def public_names() -> list[str]:
    """A line for each name, sorted."""
    core: Any = griffe.load("delf", search_paths=[ROOT / "core/src"])
    kit: Any = griffe.load("delf_devkit", search_paths=[ROOT / "plugins/devkit/src"])
    lines = [line for module in MODULES for line in _of(core[module.removeprefix("delf.")], module)]
    lines += _of(kit["testing.contracts"], "delf.testing")
    return sorted(set(lines))


def required_members(lines: list[str]) -> set[str]:
    """The members that a plugin's object must have: those of protocols that are not optional.

    Hosts are given to plugins, which make none.
    """
    required = r"(delf\.protocols\.\w+\.(?!Supports|\w*Host:)\w+: Protocol\.\w+)"
    found = (re.match(required, line) for line in lines)
    return {match[1] for match in found if match}


def kept() -> tuple[int, list[str]]:
    """The number of the plugin API and the lines, as they were written down."""
    first, *lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    return int(first.removeprefix(_HEAD)), lines


def unannounced(api: int, before: list[str], now: list[str]) -> list[str]:
    """Members that protocols gained while the number of the plugin API stayed.

    A protocol that is new asks nothing of plugins that are there.
    """
    gained = required_members(now) - required_members(before)
    old = {name for name in gained if f"{name.partition(':')[0]}(Protocol)" in before}
    return sorted(old) if api == PLUGIN_API else []


def write() -> None:
    """Write the file; refuse where plugins would break without being told."""
    now = public_names()
    if SNAPSHOT.exists() and (gained := unannounced(*kept(), now)):
        sys.exit("raise PLUGIN_API in hookspecs.py: required are now " + ", ".join(gained))
    SNAPSHOT.write_text("\n".join([f"{_HEAD}{PLUGIN_API}", *now]) + "\n", encoding="utf-8")


def _of(thing: Any, place: str) -> Iterator[str]:
    for name, member in thing.members.items():
        if name.startswith("_") or member.is_alias:
            continue
        where = f"{place}.{name}"
        if member.is_module:
            yield from _of(member, place if place == "delf.testing" else where)
        elif member.is_class:
            bases = [str(base) for base in member.bases]
            is_protocol = any(base == "Protocol" or base.startswith("Protocol[") for base in bases)
            yield f"{where}({', '.join(bases)})"
            yield from _of(member, f"{where}: Protocol" if is_protocol else where)
        elif member.is_function:
            parameters = ", ".join(map(_parameter, member.parameters))
            kind = "async " if "async" in member.labels else ""
            yield f"{where}{kind and ' '}{kind}({parameters}) -> {member.returns}"
        elif member.is_attribute and member.annotation is not None:
            yield f"{where}: {member.annotation}"


def _parameter(parameter: Any) -> str:
    default = "" if parameter.default is None else f" = {parameter.default}"
    star = {"variadic positional": "*", "variadic keyword": "**"}
    kind = str(getattr(parameter.kind, "value", ""))
    return f"{star.get(kind, '')}{parameter.name}: {parameter.annotation}{default}"


if __name__ == "__main__":
    write()
