"""Modules that scripts may import: harmless standard ones, and those of ``allowed_libs``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from delf.protocols.sandbox import SessionSpec

DEFAULT_MODULES: Final = (
    "__future__",
    "abc",
    "argparse",
    "array",
    "ast",
    "asyncio",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "codecs",
    "collections",
    "colorsys",
    "configparser",
    "contextlib",
    "contextvars",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "email",
    "enum",
    "errno",
    "fnmatch",
    "fractions",
    "functools",
    "glob",
    "graphlib",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "locale",
    "logging",
    "math",
    "mimetypes",
    "numbers",
    "operator",
    "pathlib",
    "pprint",
    "queue",
    "random",
    "re",
    "secrets",
    "shlex",
    "sqlite3",
    "stat",
    "statistics",
    "string",
    "struct",
    "tempfile",
    "textwrap",
    "time",
    "timeit",
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
    "zipfile",
    "zlib",
    "zoneinfo",
)
"""Harmless standard modules; ``os``, ``sys`` and ``threading`` are replaced by subsets."""


def allowed_modules(libraries: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the modules that a script may import.

    Args:
        libraries: Requirements of further allowed distributions, such as ``scikit-learn>=1.5``.
    """
    names: dict[str, None] = dict.fromkeys(DEFAULT_MODULES)
    for library in libraries:
        names.update(dict.fromkeys(import_names(distribution_name(library))))
    return tuple(names)


def modules_of(spec: SessionSpec) -> tuple[str, ...]:
    """Return the names of the modules that the scripts of a session may import."""
    if spec.modules is None:
        return allowed_modules(spec.libraries)
    return spec.modules


def distribution_name(requirement: str) -> str:
    """Return the distribution name of a requirement, such as ``pandas`` of ``pandas[excel]>=2``."""
    return re.split(r"[\s\[<>=!~;@(]", requirement.strip(), maxsplit=1)[0]


def import_names(distribution: str) -> Sequence[str]:
    """Return the names of the top-level modules of a distribution.

    For a distribution that is not installed on the host, return its own name with underscores: the
    sandbox's container may have it.
    """
    from importlib.metadata import PackageNotFoundError

    try:
        return _installed_names(distribution) or [distribution.replace("-", "_")]
    except (PackageNotFoundError, ValueError):
        return [distribution.replace("-", "_")]


@cache
def _installed_names(distribution: str) -> Sequence[str]:
    """Return the names of the top-level modules of an installed distribution."""
    from importlib import metadata

    installed = metadata.distribution(distribution)
    names = (installed.read_text("top_level.txt") or "").split()
    if not names:
        names = [path.parts[0].removesuffix(".py") for path in installed.files or ()]
    unique_names = dict.fromkeys(names)
    unique_names.pop("__pycache__", None)
    return tuple(filter(str.isidentifier, unique_names))
