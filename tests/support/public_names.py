"""The public interface as it is: every name that plugins and programs import, with its signature.

The core's names are for authors of plugins; all others, ``delf``'s exports, the engine and the
testing kit, are for programs. Which modules count follows from what documentation, examples and
scaffolds import. ``make generated`` writes the lists, with the names that are no Python
(:mod:`support.outside_names`).
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any, Final

import griffe

from delf.hookspecs import EXPORTS_GROUP, PLUGIN_API
from repo.pages import blocks_of
from support.exported import KIT, STUB
from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT

SNAPSHOT: Final = ROOT / "tests/repo/public_names.txt"
PROGRAMS: Final = ROOT / "tests/repo/program_names.txt"
_HEAD: Final = "PLUGIN_API = "
_TEMPLATES: Final = ROOT / "plugins/devkit/src/delf_devkit/templates"
_CONTRACTS: Final = "delf.protocols"
"""The package whose modules all count: plugins implement its protocols."""
_WORDS: Final = "delf.types"
"""The module with the words of states, effects and modes."""
_VARIABLE: Final = re.compile(r'^\w+: Final = "(DELF_[A-Z_]*[A-Z])"', re.MULTILINE)
_SOURCES: Final = tuple(
    folder / "src" for folder in (CORE, *(one.folder for one in (*LIBRARIES, *PLUGINS)))
)
_NONE: Final[Mapping[str, str]] = {}


def public_names(texts: Mapping[str, str] = _NONE) -> list[str]:
    """Return a line for each name that authors of plugins import from the core, sorted.

    Args:
        texts: Other source texts, by module, to see what a change does.
    """
    homes = {module for module, _ in _exports_of_core()}
    contracts = {
        f"{_CONTRACTS}.{path.stem}" for path in _path_of(_CONTRACTS).parent.glob("[!_]*.py")
    }
    named = {module for module in imported_modules() if _is_core(module)}
    found = (_of_module(module, texts) for module in homes | contracts | named | {_WORDS})
    return sorted({line for lines in found for line in lines})


def program_names(texts: Mapping[str, str] = _NONE) -> list[str]:
    """Return a line for each name that programs import, sorted.

    Args:
        texts: Other source texts, by module, to see what a change does.
    """
    lines = {f"delf.{name}" for _, name in _exports_of_core()}
    for plugin in PLUGINS:
        points = plugin.metadata["project"].get("entry-points", {})
        for name, target in points.get(EXPORTS_GROUP, {}).items():
            module, _, attribute = target.partition(":")
            lines |= {*_of_member(module, attribute, f"delf.{name}", texts)}
    stub = griffe.visit("exported", filepath=STUB, code=STUB.read_text(encoding="utf-8"))
    lines |= {line for name in stub.classes for line in _of(stub[name], f"delf.{name}")}
    for module, name in _imports(KIT.read_text(encoding="utf-8")):
        lines |= {*_of_member(module, name, f"delf.testing.{name}", texts)}
    for module in (*imported_modules(), *_settings()):
        if not _is_core(module):
            lines |= {*_of_module(module, texts)}
    return sorted(lines | _variables(texts))


def _settings() -> Iterator[str]:
    """Yield the modules whose fields are keys of ``delf.toml`` and variables."""
    for source in _SOURCES:
        yield from (f"{path.parent.name}.settings" for path in source.glob("delf_*/settings.py"))


@functools.cache
def _modules_with_variables() -> Mapping[str, str]:
    paths = (path for source in _SOURCES for path in source.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    found = {path: text for path, text in texts.items() if _VARIABLE.search(text)}
    return {".".join(path.with_suffix("").parts): text for path, text in found.items()}


def _variables(texts: Mapping[str, str]) -> set[str]:
    """Return the environment variables that sources declare."""
    known = {
        next((new for name, new in texts.items() if module.endswith(f".{name}")), text)
        for module, text in _modules_with_variables().items()
    }
    return {f"environment {name}" for text in known for name in _VARIABLE.findall(text)}


@functools.cache
def imported_modules() -> frozenset[str]:
    """Return the modules of delf that documentation, examples and scaffolds import."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [plugin.folder / "README.md" for plugin in PLUGINS]
    blocks = [block for page in pages for block in blocks_of(page.read_text(encoding="utf-8"))]
    texts = [block.code for block in blocks if block.language == "python"]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    for path in _TEMPLATES.glob("*.toml"):
        files = tomllib.loads(path.read_text(encoding="utf-8"))["files"]
        texts += [_filled(text) for name, text in files.items() if name.endswith(".py")]
    texts += [_filled(path.read_text(encoding="utf-8")) for path in _TEMPLATES.rglob("*.py")]
    found = {module for text in texts for module, _ in _imports(text)}
    return frozenset(module for module in found if module != "delf" and _path_of(module).exists())


def _filled(text: str) -> str:
    """Fill in a scaffold with one name for every variable."""
    template = Template(text)
    return template.safe_substitute(dict.fromkeys(template.get_identifiers(), "name"))


def _imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of delf that a program imports, each with an imported name."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # the example of a page is a part of a file
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            named = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            named = [(alias.name, "") for alias in node.names]
        else:
            continue
        yield from ((module, name) for module, name in named if re.match(r"delf[._]|delf$", module))


def _exports_of_core() -> list[tuple[str, str]]:
    """Return the names that the core itself exports, each with its module."""
    return [
        (module, name)
        for module, name in _imports(_text_of("delf", _NONE))
        if not module.startswith("delf.packages")
    ]


def _is_core(module: str) -> bool:
    return module.partition(".")[0] == "delf"


def _path_of(module: str) -> Path:
    """Return the file of a module; a file that does not exist if there is none."""
    parts = module.replace(".", "/")
    for source in _SOURCES:
        for path in (source / f"{parts}.py", source / parts / "__init__.py"):
            if path.exists():
                return path
    return ROOT / "nothing"


def source_of(module: str) -> str:
    """Return the source text of a module."""
    return _path_of(module).read_text(encoding="utf-8")


def _text_of(module: str, texts: Mapping[str, str]) -> str:
    return texts.get(module) or source_of(module)


def _visited(module: str, texts: Mapping[str, str]) -> Any:
    return _visit(module, _text_of(module, texts))


@functools.cache
def _visit(module: str, text: str) -> Any:
    return griffe.visit(module, filepath=_path_of(module), code=text)


def _of_module(module: str, texts: Mapping[str, str]) -> Iterator[str]:
    visited = _visited(module, texts)
    yield from _of(visited, module)
    if _path_of(module).name == "__init__.py":
        yield from (f"{module}.{name}" for name in visited.exports or ())


def _of_member(module: str, name: str, place: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a member of a module, with what it inherits from plugins and libraries."""
    yield place
    member = _visited(module, texts).members.get(name) if name else None
    if member is None:
        return
    if member.is_alias:
        home, _, name = str(member.target_path).rpartition(".")
        yield from _of_member(home, name, place, texts)
        return
    yield from _line_of(member, place)
    if member.is_class:
        yield from _inherited(member, place, texts)
        for name, method in member.members.items():
            yield from _keywords(method, f"{place}.{name}", texts)


def _keywords(method: Any, where: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the keywords that a method takes by ``**options: Unpack[…]``."""
    for each in (method, *(getattr(method, "overloads", None) or ())) if method.is_function else ():
        given = each.parameters[-1].annotation if len(each.parameters) else None
        found = re.fullmatch(r"Unpack\[(\w+)\]", str(given))
        options = method.module.members.get(found[1]) if found else None
        if options is not None and options.is_alias:
            home, _, name = str(options.target_path).rpartition(".")
            options = _visited(home, texts).members.get(name)
        if options is not None:
            yield from _of(options, f"{where}(**)")
            yield from _inherited(options, f"{where}(**)", texts)


def _inherited(member: Any, place: str, texts: Mapping[str, str]) -> Iterator[str]:
    for base in member.bases:
        found = member.parent.members.get(str(base).partition("[")[0])
        if found is None:
            continue
        if found.is_alias:
            home, _, name = str(found.target_path).rpartition(".")
            if _is_core(home) or not _path_of(home).exists():
                continue
            found = _visited(home, texts).members.get(name)
        if found is not None and found.is_class:
            yield from _of(found, place)
            yield from _inherited(found, place, texts)


def _of(thing: Any, place: str) -> Iterator[str]:
    public_bases = _private_bases_of_public_classes(thing)
    for name, member in thing.members.items():
        is_public = name == "__init__" or not name.startswith("_") or name in public_bases
        if is_public and not member.is_alias:
            yield from _line_of(member, f"{place}.{name}")


def _private_bases_of_public_classes(thing: Any) -> set[str]:
    """Return the private bases whose members public classes of a module inherit."""
    found: set[str] = set()
    classes = [each for name, each in thing.members.items() if not name.startswith("_")]
    while classes:
        member = classes.pop()
        if member.is_alias or not member.is_class:
            continue
        names = {str(base).partition("[")[0] for base in member.bases}
        new = {name for name in names & thing.members.keys() if name.startswith("_")} - found
        classes += [thing.members[name] for name in new]
        found |= new
    return found


def _line_of(member: Any, where: str) -> Iterator[str]:
    if member.is_class:
        bases = [str(base) for base in member.bases]
        is_protocol = any(base == "Protocol" or base.startswith("Protocol[") for base in bases)
        yield f"{where}({', '.join(bases)})"
        yield from _of(member, f"{where}: Protocol" if is_protocol else where)
    elif member.is_function:
        parameters = ", ".join(map(_parameter, member.parameters))
        kind = "async " if "async" in member.labels else ""
        yield f"{where}{kind and ' '}{kind}({parameters}) -> {member.returns}"
    elif member.is_attribute:
        value = _constant(member.value)
        if member.annotation is not None:
            yield f"{where}: {member.annotation}{value}"
        elif value:
            yield f"{where}{value}"


def _constant(value: Any) -> str:
    """Return a default, the value of a member, or a type's alternatives, if written as one."""
    text = str(value)
    # Versions of griffe differ in whether they write arithmetic in parentheses.
    default = re.match(r"(?:field|Field)\(default=\(?([^,()]+)\)?[,)]", text)
    if value is None or (
        default is None and not re.match(r"[\d'\"-]|True$|False$|Literal\[", text)
    ):
        return ""
    return f" = {text if default is None else default[1]}"


def required_members(lines: list[str]) -> set[str]:
    """The members that a plugin's object must have: those of protocols that are not optional.

    Hosts are given to plugins, which make none.
    """
    required = r"(delf\.protocols\.\w+\.(?!Supports|\w*Host:)\w+: Protocol\.\w+)"
    found = (re.match(required, line) for line in lines)
    return {match[1] for match in found if match}


def kept() -> tuple[int, list[str]]:
    """The number of the plugin API and the core's lines, as they were written down."""
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
    """Write the files; refuse a change that would break plugins silently."""
    now = public_names()
    if SNAPSHOT.exists() and (gained := unannounced(*kept(), now)):
        sys.exit("raise PLUGIN_API in hookspecs.py: required are now " + ", ".join(gained))
    sys.path.append(str(ROOT / "scripts"))
    from support.outside_names import OUTSIDE, outside_names

    OUTSIDE.write_text("\n".join(outside_names()) + "\n", encoding="utf-8")
    SNAPSHOT.write_text("\n".join([f"{_HEAD}{PLUGIN_API}", *now]) + "\n", encoding="utf-8")
    PROGRAMS.write_text("\n".join(program_names()) + "\n", encoding="utf-8")


def _parameter(parameter: Any) -> str:
    default = "" if parameter.default is None else f" = {parameter.default}"
    star = {"variadic positional": "*", "variadic keyword": "**"}
    kind = str(getattr(parameter.kind, "value", ""))
    return f"{star.get(kind, '')}{parameter.name}: {parameter.annotation}{default}"


if __name__ == "__main__":
    write()
