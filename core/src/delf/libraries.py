"""``allowed_libs`` and the standard modules: what scripts may import, decided on the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from delf.errors import ConfigurationError

DEFAULT_MODULES: Final = (
    "__future__",
    "abc",
    "array",
    "ast",
    "asyncio",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "colorsys",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "email",
    "enum",
    "fractions",
    "functools",
    "graphlib",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "io",
    "itertools",
    "json",
    "keyword",
    "locale",
    "math",
    "numbers",
    "operator",
    "pathlib",
    "pprint",
    "random",
    "re",
    "secrets",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "time",
    "tomllib",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "warnings",
    "weakref",
    "xml.etree",
    "zlib",
    "zoneinfo",
)
"""Harmless standard modules. ``os`` and ``sys`` are refused with a hint to what to use."""


def allowed_modules(libraries: Iterable[str] = ()) -> tuple[str, ...]:
    """The modules that a script may import.

    Args:
        libraries: Packages allowed beside the standard ones, by their distribution's name
            (``scikit-learn``), with or without a version.
    """
    names: dict[str, None] = dict.fromkeys(DEFAULT_MODULES)
    for library in libraries:
        names.update(dict.fromkeys(import_names(distribution_name(library))))
    return tuple(names)


def distribution_name(requirement: str) -> str:
    """``pandas`` of ``pandas[excel]>=2``."""
    return re.split(r"[\s\[<>=!~;@(]", requirement.strip(), maxsplit=1)[0]


def import_names(distribution: str) -> Sequence[str]:
    """The top-level modules of a distribution.

    Where it is not installed on the host (a container may have it), its own name with
    underscores is taken.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as find

    try:
        found = find(distribution)
    except (PackageNotFoundError, ValueError):
        return [distribution.replace("-", "_")]
    declared = (found.read_text("top_level.txt") or "").split()
    tops = declared or [path.parts[0].removesuffix(".py") for path in found.files or ()]
    names = dict.fromkeys(name for name in tops if name.isidentifier() and name != "__pycache__")
    return list(names) or [distribution.replace("-", "_")]


def applying(requirements: Iterable[str]) -> tuple[str, ...]:
    """The requirements whose marker is true here, without it; those that have none as they are.

    Args:
        requirements: As in ``allowed_libs``: ``pandas``, ``numpy>=2; python_version > "3.10"``.

    Raises:
        ConfigurationError: When one cannot be read, or its marker cannot be evaluated.
    """
    return tuple(text for text in map(_applying, requirements) if text is not None)


def _applying(written: str) -> str | None:
    """The requirement without its marker; None where that is false."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    text = written.strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise _unreadable(written, f"which is no library with its versions: {reason}") from None
    marker, requirement.marker = requirement.marker, None
    if marker is None:
        return text
    try:
        return str(requirement) if marker.evaluate({"extra": ""}) else None
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise _unreadable(written, f"whose marker means nothing: {error}") from None


def _unreadable(written: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"allowed_libs has {written!r}, {why}",
        hint="write pandas, 'pandas>=2' or 'numpy; python_version > \"3.10\"'",
    )
