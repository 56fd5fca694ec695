"""The workspace as its own tests see it: packages, modules and their syntax trees."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delf.packages.official import module_of

if TYPE_CHECKING:
    from delf.specs import Spec

ROOT: Final = Path(__file__).parents[2]
CORE: Final = ROOT / "core"


@dataclass(frozen=True)
class Library:
    """A folder in libs/ with a pyproject.toml: what several plugins share."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def module(self) -> str:
        return "delf_" + self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.module

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text())

    @property
    def has_hooks(self) -> bool:
        """True if the package has a module of hooks; others name the classes of connections."""
        return (self.source / "plugin.py").exists()

    @functools.cached_property
    def specs(self) -> tuple[Spec, ...]:
        """The capabilities, as delf reads them from the entry points."""
        points = self.metadata["project"].get("entry-points", {})
        # Escape attempts use this module with the standard library alone.
        from delf.hookspecs import CONNECTIONS_GROUP, ENTRY_POINT_GROUP
        from delf.plugins.discovery import Candidate
        from delf.plugins.loader import load, new_manager

        found: list[Spec] = []
        for group in (ENTRY_POINT_GROUP, CONNECTIONS_GROUP):
            for name, target in points.get(group, {}).items():
                given = {"connection": target} if group == CONNECTIONS_GROUP else {}
                record = load(Candidate(name=name, target=target, **given), new_manager())
                assert record.reason is None, record.reason
                found += record.specs
        return tuple(found)


class Plugin(Library):
    """A folder in plugins/ with a pyproject.toml."""

    @property
    def module(self) -> str:
        return module_of(f"delf-plugin-{self.name}")


LIBRARIES: Final = tuple(
    Library(path.parent) for path in sorted(ROOT.glob("libs/*/pyproject.toml"))
)
PLUGINS: Final = tuple(
    Plugin(path.parent) for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))
)


def modules() -> Iterator[Path]:
    """Every module of the core, of the libraries and of the plugins."""
    yield from sorted((CORE / "src").rglob("*.py"))
    for package in (*LIBRARIES, *PLUGINS):
        yield from sorted((package.folder / "src").rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's tree: several tests look at them, and each walk takes seconds."""
    return tuple(ast.walk(tree_of(path)))


def place(path: Path, node: ast.AST | None = None) -> str:
    """A place in a file, as an editor opens it."""
    line = f":{node.lineno}" if node is not None and hasattr(node, "lineno") else ""
    return f"{path.relative_to(ROOT)}{line}"


@functools.cache
def imports_of(path: Path, *, late: bool = True) -> tuple[tuple[ast.stmt, str], ...]:
    """Absolute imports of a module as full dotted names: all of them, or none in functions."""
    return tuple(_imports(tree_of(path), late=late))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node, without a look into their expressions."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, part, ()):
            yield statement
            yield from statements(statement)


def _imports(tree: ast.Module, *, late: bool) -> Iterator[tuple[ast.stmt, str]]:
    for node in statements(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"
