"""Descriptions of classes and fields, from docstrings and from string literals below fields."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import linecache
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from delf.tools.docstrings import read_docstring

_LIBRARIES: Final = frozenset(
    {"builtins", "typing", "typing_extensions", "enum", "pydantic", "abc", "msgspec", "attr"}
)
# Matches a field with a string literal on the next line.
#
# A source file without such a field is not parsed, because parsing is slow.
_DOCUMENTED: Final = re.compile(
    r"""^[ \t]+\w+[ \t]*[:=].*[^\\\s(\[{,]\s*\n\s*[rR]?["']""", re.MULTILINE
)
_MAX_SOURCE: Final = 1_000_000


def class_doc(owner: type[Any]) -> str:
    """Return the first paragraph of a class's docstring.

    For an enum, the descriptions of its members follow.

    Args:
        owner: A record type or an enum.
    """
    summary = _summary(owner)
    if not issubclass(owner, enum.Enum):
        return summary
    docs = field_docs(owner)
    texts = [summary.rstrip(".")]
    for member in owner:
        text = _member_doc(member) or docs.get(member.name, "")
        if text:
            texts.append(f"{member.value!r}: {text}")
    return "; ".join(filter(None, texts))


def _summary(owner: type[Any]) -> str:
    """Return the first paragraph of the docstring of a class or, without one, of a base class."""
    for each in _documented_classes(owner):
        doc = _doc(each)
        if doc:
            return read_docstring(doc).summary
    return ""


def field_docs(owner: type[Any]) -> Mapping[str, str]:
    """Return the descriptions of a class's fields by the names of their attributes.

    A description is a string literal below the field, or an entry of the section ``Attributes:`` or
    ``Args:`` of the class's docstring.

    Args:
        owner: A record type or an enum.
    """
    docs: dict[str, str] = {}
    # Base classes first, so that the text of a derived class replaces theirs.
    for each in reversed(list(_documented_classes(owner))):
        parsed = read_docstring(_doc(each))
        docs |= {name: _line(text) for name, text in parsed.parameters.items() if text}
        docs |= {name: _line(text) for name, text in parsed.attributes.items() if text}
        docs |= _attribute_docstrings(each)
    return docs


def _documented_classes(owner: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and its base classes, except those of libraries such as pydantic."""
    classes: list[type[Any]] = list(owner.__mro__)
    for base in getattr(owner, "__orig_bases__", ()):  # a TypedDict keeps its bases only here
        origin = getattr(base, "__origin__", base)
        if isinstance(origin, type) and origin not in classes:
            classes += [each for each in origin.__mro__ if each not in classes]
    for each in classes:
        if each.__module__.partition(".")[0] not in _LIBRARIES:
            yield each


def _doc(owner: type[Any]) -> str:
    """Return a class's own docstring; empty if it was generated from the fields."""
    doc = owner.__dict__.get("__doc__")
    if not isinstance(doc, str) or doc.startswith(f"{owner.__name__}("):
        return ""
    return inspect.cleandoc(doc)


def _member_doc(member: enum.Enum) -> str:
    """Return the docstring that an enum's ``__new__`` has set on a member; empty without one."""
    doc = vars(member).get("__doc__")
    return _line(doc) if isinstance(doc, str) else ""


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _attribute_docstrings(owner: type[Any]) -> dict[str, str]:
    """Return the string literals below a class's attributes, by attribute name."""
    try:
        path = inspect.getsourcefile(owner)
    except (TypeError, OSError):  # a built-in class, or one without a source file
        return {}
    if path:
        return dict(_attribute_docstrings_in_file(path).get(owner.__qualname__, {}))
    return {}


@functools.lru_cache(maxsize=32)
def _attribute_docstrings_in_file(path: str) -> Mapping[str, Mapping[str, str]]:
    """Return the string literals below the fields of all classes in a file.

    The result maps the qualified name of a class to a mapping from field name to text.
    """
    source = "".join(linecache.getlines(path))
    if len(source) > _MAX_SOURCE or not _DOCUMENTED.search(source):
        return {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    docs_by_class: dict[str, dict[str, str]] = {}
    # The nodes to search, each with the beginning of the qualified names of classes in the node.
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            child_prefix = prefix
            if isinstance(child, ast.ClassDef):
                docs_by_class[f"{prefix}{child.name}"] = dict(_field_texts(child))
                child_prefix = f"{prefix}{child.name}."
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                child_prefix = f"{prefix}{child.name}.<locals>."
            elif not isinstance(child, (ast.If, ast.Try, ast.With)):  # no class inside
                continue
            pending.append((child_prefix, child))
    return docs_by_class


def _field_texts(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the name of each field that has a string literal below it, and that text."""
    for field, next_statement in zip(owner.body, owner.body[1:], strict=False):
        literal = next_statement.value if isinstance(next_statement, ast.Expr) else None
        if not isinstance(literal, ast.Constant) or not isinstance(literal.value, str):
            continue
        targets: list[Any] = []
        if isinstance(field, ast.AnnAssign):
            targets = [field.target]
        elif isinstance(field, ast.Assign):
            targets = cast("list[Any]", field.targets)
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, _line(literal.value)
