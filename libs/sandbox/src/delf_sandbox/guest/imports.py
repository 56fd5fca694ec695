"""Missing imports of a script, for names with only one possible meaning."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from delf_sandbox.guest.nodes import position_of

_MODULES: Final = frozenset(
    {"base64", "collections", "csv", "decimal", "functools", "hashlib", "io", "itertools", "json"}
    | {"math", "operator", "random", "re", "statistics", "textwrap", "uuid"}
)
_MEMBERS: Final[Mapping[str, Sequence[str]]] = {
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"),
    "dataclasses": ("asdict", "dataclass"),
    "datetime": ("timedelta", "timezone"),
    "decimal": ("Decimal", "ROUND_HALF_UP"),
    "enum": ("Enum", "IntEnum", "StrEnum"),
    "functools": ("lru_cache", "reduce"),
    "io": ("BytesIO", "StringIO"),
    "itertools": ("groupby",),
    "pathlib": ("Path",),
    "pprint": ("pprint",),
    "typing": (
        *("Any", "Callable", "Dict", "Iterable", "List", "Literal", "NamedTuple", "Optional"),
        *("Sequence", "Set", "Tuple", "TypedDict", "Union"),
    ),
    "zoneinfo": ("ZoneInfo",),
}
_MODULE_BY_MEMBER: Final = {word: module for module, words in _MEMBERS.items() for word in words}
# Modules that contain a class or function of the same name, as ``datetime`` does. Each module is
# mapped to the attributes that the class or function does not have.
_MODULE_ONLY_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "datetime": frozenset({"date", "datetime", "time", "timedelta", "timezone", "UTC"}),
    "time": frozenset({"monotonic", "perf_counter", "sleep", "strftime", "time"}),
}


def missing_imports(
    unknown: Mapping[str, set[str | None]], can_import: Callable[[str], bool], node: Any
) -> list[ast.stmt]:
    """Return import statements for names that a script uses and does not define.

    Args:
        unknown: A mapping from each undefined name to the attributes that the script reads from it,
            with None for each read of the name alone.
        can_import: Returns True if the script may import a module.
        node: The node whose source position the new statements get.
    """
    statements: list[ast.stmt] = []
    for word in sorted(unknown):
        module = _module_of(word, unknown[word])
        if module is not None and can_import(module.name):
            statements.append(_import_statement(word, module, node))
    return statements


class _Module(NamedTuple):
    """The module that a script needs for an undefined name."""

    name: str
    is_member_imported: bool
    """True for ``from datetime import date``, False for ``import math``."""


def _import_statement(word: str, module: _Module, node: Any) -> ast.stmt:
    names = [ast.alias(name=word, **position_of(node))]
    if module.is_member_imported:
        return ast.ImportFrom(module=module.name, names=names, level=0, **position_of(node))
    return ast.Import(names=names, **position_of(node))


def _module_of(word: str, attributes: set[str | None]) -> _Module | None:
    """Return the module to import for an undefined name; None if the meaning is uncertain.

    Args:
        word: The undefined name.
        attributes: The attributes that the script reads from the name: ``year`` for a read of
            ``word.year``, and None for a read of ``word`` alone.
    """
    module_attributes = _MODULE_ONLY_ATTRIBUTES.get(word, frozenset())
    # ``datetime.timedelta(1)`` alone means the module ``datetime``.
    is_only_module = bool(module_attributes) and attributes <= module_attributes
    if word in _MODULES or is_only_module:
        return _Module(word, is_member_imported=False)
    if word in _MODULE_BY_MEMBER:
        return _Module(_MODULE_BY_MEMBER[word], is_member_imported=True)
    # ``datetime.now()`` alone means the class ``datetime``. A script that has both
    # ``datetime.timedelta(1)`` and ``datetime.now()`` may mean either.
    is_class_datetime = word == "datetime" and attributes.isdisjoint(module_attributes)
    # ``date`` is also a likely name for a variable, so its attributes must fit the class.
    is_class_date = word == "date" and attributes <= {None, "today", "fromisoformat"}
    if is_class_datetime or is_class_date:
        return _Module("datetime", is_member_imported=True)
    return None
