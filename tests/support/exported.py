"""The stub that tells editors what ``from delf import NAME`` gives from our plugins.

``python -m support.exported`` writes it anew; a test fails while it is not what plugins bring.
Constructors are written out: not every editor looks into ``**options: Unpack[…]``.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any, Final

from delf.packages.official import all_packages
from delf.plugins.host import PluginHost
from support.workspace import CORE

STUB: Final = CORE / "src/delf/packages/exported.pyi"
_HEAD: Final = '''"""What ``from delf import NAME`` gives from delf's own plugins, for type checkers and editors.

Generated: cd tests && python -m support.exported. It is never imported. A name whose plugin is
not installed is unknown.
"""'''
KIT: Final = CORE / "src/delf/testing.pyi"
_STANDARD: Final = (typing, collections.abc)


def stub() -> str:
    """Return the stub for the plugins that are installed here."""
    host = PluginHost.discover(environ={})
    imports, classes, names = _Imports(), list[str](), list[str]()
    for record in host.records():
        if record.distribution not in all_packages():
            continue
        for name, target in record.plugin.exports:
            module = target.partition(":")[0]
            made = host.exported(name)
            names.append(name)
            if inspect.ismodule(made):
                parent, _, last = target.rpartition(".")
                imports.named[f"from {parent} import {last} as {name}"] = None
                continue
            options = _options_of(made)
            if options is None:
                imports.named[f"from {module} import {name} as {name}"] = None
            else:
                classes.append(_class(made, name, module, options, imports))
    public = [f"    {name!r},".replace("'", '"') for name in sorted(names)]
    listed = ["__all__ = [", *public, "]", ""]
    return "\n".join([_HEAD, "", *imports.lines(), "", *listed, *sorted(classes)])


def kit() -> str:
    """Return the stub of ``delf.testing``: what the plugin that exports ``testing`` gives."""
    host = PluginHost.discover(environ={})
    exports = (dict(record.plugin.exports) for record in host.records())
    target = next(found["testing"] for found in exports if "testing" in found)
    return f"# Generated: cd tests && python -m support.exported\nfrom {target} import *\n"


class _Imports:
    """Names that annotations need."""

    def __init__(self) -> None:
        self.named: dict[str, None] = {}
        self.modules: dict[str, None] = {}

    def lines(self) -> list[str]:
        """The import statements."""
        return [*sorted(f"import {name}" for name in self.modules), *sorted(self.named)]

    def name(self, name: str, module: str) -> str:
        """Write a name that a module knows as one that the stub knows."""
        if hasattr(builtins, name):
            return name
        for home in _STANDARD:
            if getattr(home, name, None) is getattr(sys.modules[module], name, None) is not None:
                self.named[f"from {home.__name__} import {name}"] = None
                return name
        self.modules[module] = None
        return f"{module}.{name}"

    def annotation(self, text: str, module: str) -> str:
        """Write an annotation of a module so that it holds in the stub."""
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self.name(node.id, module)
        return ast.unparse(tree)


def _options_of(made: Any) -> Any:
    """The typed dictionary of what a class is made with beside what it names."""
    begin = getattr(made, "__init__", None)
    is_generic = hasattr(made, "__parameters__") and made.__parameters__
    if not inspect.isclass(made) or is_generic or not inspect.isfunction(begin):
        return None
    found = re.fullmatch(r"Unpack\[(\w+)\]", str(begin.__annotations__.get("options", "")))
    return None if found is None else getattr(sys.modules[begin.__module__], found[1], None)


def _class(made: Any, name: str, module: str, options: Any, imports: _Imports) -> str:
    imports.modules[module] = None
    given = [f"        {text},\n" for text in _parameters(made, options, imports)]
    base = f"class {name}({module}.{name}):\n"
    return f"{base}    def __init__(\n        self,\n{''.join(given)}    ) -> None: ...\n"


def _parameters(made: Any, options: Any, imports: _Imports) -> Iterator[str]:
    has_star = False
    for parameter in list(inspect.signature(made.__init__).parameters.values())[1:-1]:
        typed = imports.annotation(str(parameter.annotation), made.__init__.__module__)
        if parameter.kind is parameter.VAR_POSITIONAL:
            has_star = True
            yield f"*{parameter.name}: {typed}"
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "*"
        default = "" if parameter.default is parameter.empty else " = ..."
        yield f"{parameter.name}: {typed}{default}"
    if not has_star:
        yield "*"
    for name, message in options.__annotations__.items():
        home = message.__forward_module__ or options.__module__
        yield f"{name}: {imports.annotation(message.__forward_arg__, home)} = ..."


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    KIT.write_text(kit(), encoding="utf-8")
