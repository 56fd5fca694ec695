"""Missing imports of a script, for names with only one possible meaning."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
# Modules that contain a class or function of the same name, as ``datetime`` does.
#
# Each is mapped to the attributes that only the module has.
_MODULE_ONLY_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "datetime": frozenset({"date", "datetime", "time", "timedelta", "timezone", "UTC"}),
    "time": frozenset({"monotonic", "perf_counter", "sleep", "strftime", "time"}),
}


def missing_imports(
    unknown: Mapping[str, list[str | None]], can_import: Callable[[str], bool], node: Any
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
        module, member = _import_for(word, unknown[word])
        if not module or not can_import(module):
            continue
        alias = ast.alias(name=member or module, **position_of(node))
        if member:
            statements.append(
                ast.ImportFrom(module=module, names=[alias], level=0, **position_of(node))
            )
        else:
            statements.append(ast.Import(names=[alias], **position_of(node)))
    return statements


def _import_for(word: str, attributes: list[str | None]) -> tuple[str, str]:
    """Return the import that defines a name.

    Args:
        word: The undefined name.
        attributes: The attributes that the script reads from the name: ``year`` for a read of
            ``word.year``, and None for a read of ``word`` alone.

    Returns:
        The module, and the member to import from that module. Without a member, the module itself
        is imported. Both are empty if the name is unknown or ambiguous.
    """
    if word in _MODULES:
        return word, ""
    if word in _MODULE_BY_MEMBER:
        return _MODULE_BY_MEMBER[word], word
    if word in _MODULE_ONLY_ATTRIBUTES:
        # The name may mean the module, or the class or function of the same name in this module.
        are_of_module = [part in _MODULE_ONLY_ATTRIBUTES[word] for part in attributes]
        if all(are_of_module):
            return word, ""
        if word == "datetime" and not any(are_of_module):
            return "datetime", "datetime"
        return "", ""
    # ``date`` is also a likely name for a variable, so its attributes must fit the class.
    if word == "date" and set(attributes) <= {None, "today", "fromisoformat"}:
        return "datetime", "date"
    return "", ""
