"""The stub with the types of ``from delf import NAME``, for editors.

``python -m support.exported`` writes it anew; a test fails while it is not what plugins bring.
Constructors of connections are written out, because settings are keywords that no signature has.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Final, cast

from pydantic import SecretStr
from pydantic.fields import FieldInfo

import delf.testing
from delf import Connection
from delf.packages.official import all_packages
from delf.plugins.host import PluginHost
from delf.settings import LocalPath, PluginSettings
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
            made = host.load_export(name)
            names.append(name)
            if inspect.ismodule(made):
                parent, _, last = target.rpartition(".")
                imports.named[f"from {parent} import {last} as {name}"] = None
                continue
            settings = _settings_of(made)
            if settings is None:
                imports.named[f"from {module} import {name} as {name}"] = None
            else:
                classes.append(_class(made, name, module, settings, imports))
    public = [f"    {name!r},".replace("'", '"') for name in sorted(names)]
    listed = ["__all__ = [", *public, "]", ""]
    return "\n".join([_HEAD, "", *imports.lines(), "", *listed, *sorted(classes)])


def kit() -> str:
    """Return the stub of ``delf.testing``: each name, imported from its module of the kit."""
    names_by_home: dict[str, list[str]] = {}
    for name in delf.testing.__all__:
        names_by_home.setdefault(getattr(delf.testing, name).__module__, []).append(name)
    imports = [f"from {home} import {', '.join(names)}" for home, names in names_by_home.items()]
    listed = ["__all__ = [", *(f'    "{name}",' for name in delf.testing.__all__), "]"]
    head = "# Generated: cd tests && python -m support.exported"
    return "\n".join([head, *sorted(imports), "", *listed, ""])


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

    def given(self, hint: Any) -> str:
        """Write the type of a setting as callers may give it, before its validation."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint == LocalPath:
            self.modules["pathlib"] = None
            return "str | pathlib.Path"
        if origin is typing.Annotated:
            return self.given(arguments[0])
        if origin in (typing.Union, types.UnionType):
            arms = [arm for one in arguments for arm in self.given(one).split(" | ")]
            return "Any" if "Any" in arms else " | ".join(dict.fromkeys(arms))
        if origin is typing.Literal:
            self.named["from typing import Literal"] = None
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin in (tuple, list, set, frozenset):
            kind = "Sequence" if origin in (tuple, list) else "Collection"
            self.named[f"from collections.abc import {kind}"] = None
            return f"{kind}[{self.given(arguments[0])}]"
        if origin is dict:
            self.named["from collections.abc import Mapping"] = None
            return f"Mapping[str, {self.given(arguments[1])}]"
        if hint is SecretStr:
            self.named["from pydantic import SecretStr"] = None
            return "str | SecretStr"
        if hint in (None, types.NoneType):
            return "None"
        if hint in (str, int, float, bool):
            return hint.__name__
        return "Any"  # a table, which validators take in several forms


def _settings_of(made: Any) -> type[PluginSettings] | None:
    """Return the settings of a connection class, None for anything else."""
    is_connection = isinstance(made, type) and issubclass(made, Connection)
    return cast("Any", made).Settings if is_connection else None


def _class(
    made: Any, name: str, module: str, settings: type[PluginSettings], imports: _Imports
) -> str:
    imports.modules[module] = None
    given = [f"        {text},\n" for text in _parameters(made, settings, imports)]
    base = f"class {name}({module}.{name}):\n"
    return f"{base}    def __init__(\n        self,\n{''.join(given)}    ) -> None: ...\n"


def _parameters(made: Any, settings: type[PluginSettings], imports: _Imports) -> Iterator[str]:
    """Yield the parameters of a class, then those of ``Connection``, then its settings."""
    own = _declared(made)
    listed = {parameter.name for parameter in own}
    common = [
        one
        for one in _declared(Connection)
        if one.name not in listed and one.kind is one.KEYWORD_ONLY
    ]
    starred = False
    for parameter in (*own, *common):
        home = made if parameter.name in listed else Connection
        typed = imports.annotation(str(parameter.annotation), home.__init__.__module__)
        if parameter.kind is parameter.VAR_POSITIONAL:
            first = next(iter(settings.model_fields.items()))
            typed = f"{imports.given(_hint(first[1]))} | {settings.__module__}.{settings.__name__}"
            imports.modules[settings.__module__] = None
            yield f"{first[0]}: {typed} = ..."
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        default = "" if parameter.default is parameter.empty else " = ..."
        yield f"{parameter.name}: {typed}{default}"
    starting = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in own)
    for name, field in list(settings.model_fields.items())[starting:]:
        if name not in listed:
            yield f"{name}: {imports.given(_hint(field))} = ..."


def _hint(field: FieldInfo) -> Any:
    """Return the whole annotation of a field; pydantic moves some of its metadata."""
    if field.annotation is str and typing.get_args(LocalPath)[1] in field.metadata:
        return LocalPath
    return field.annotation


def _declared(made: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(made.__init__).parameters.values())[1:]
    return [one for one in parameters if one.kind is not one.VAR_KEYWORD]


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    KIT.write_text(kit(), encoding="utf-8")
