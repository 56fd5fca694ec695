"""Environments that ``uv tool install`` made.

At each upgrade, uv makes such an environment anew from the file ``uv-receipt.toml``.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from delf.errors import DelfError
from delf.hookspecs import DISTRIBUTION

_RECEIPT: Final = "uv-receipt.toml"
_EDITABLE: Final = "--editable="


def receipt() -> Path | None:
    """Return the path of this environment's receipt, the file in which ``uv tool`` lists packages.

    Return None if ``uv tool`` did not make the environment.
    """
    path = Path(sys.prefix) / _RECEIPT
    return path if path.is_file() else None


def install(uv: str, path: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that installs the packages of a receipt and further packages.

    Args:
        uv: The path of the program uv.
        path: The path of the receipt: the file in which ``uv tool`` records the packages and
            options of an environment.
        arguments: The further packages and options, as arguments for ``pip install``.

    Raises:
        DelfError: If the receipt cannot be read.
    """
    requirements, options = _read(path)
    # ``--find-links /wheels`` in the arguments replaces ``--find-links=file:///wheels``.
    remaining_options = [option for option in options if _folder_of(option) not in arguments]
    # A requirement in the arguments replaces an old one: ``mail==2`` replaces ``mail==1``. The
    # requirement of delf itself, the tool, always stays. For an option, _name_of() returns None.
    replaced_names = set(map(_name_of, arguments)) - {None, DISTRIBUTION}
    remaining = [line for line in requirements if _name_of(line) not in replaced_names]
    return [*_install_command(uv, [*remaining, *arguments]), *remaining_options]


def uninstall(uv: str, path: Path, packages: Sequence[str]) -> list[str] | None:
    """Return the command that uninstalls packages; None if the receipt names none of them.

    Args:
        uv: The path of the program uv.
        path: The path of the receipt.
        packages: The names of distributions.

    Raises:
        DelfError: If the receipt cannot be read.
    """
    requirements, options = _read(path)
    remaining = [
        requirement for requirement in requirements if _name_of(requirement) not in packages
    ]
    if remaining == requirements:
        return None
    return [*_install_command(uv, remaining), *options]


def _install_command(uv: str, arguments: Sequence[str]) -> list[str]:
    """Return ``uv tool install DELF --with PACKAGE …`` for arguments of ``pip install``."""
    delf = next(argument for argument in arguments if _name_of(argument) == DISTRIBUTION)
    command = [uv, "tool", "install", "--quiet"]
    if delf.startswith(_EDITABLE):
        command += ["--editable", delf.removeprefix(_EDITABLE)]
    else:
        command.append(delf)
    for argument in arguments:
        if argument is delf:
            continue
        if argument.startswith(_EDITABLE):
            command += ["--with-editable", argument.removeprefix(_EDITABLE)]
        elif _name_of(argument):
            command += ["--with", argument]
        else:
            command.append(argument)
    return command


def _read(path: Path) -> tuple[list[str], list[str]]:
    """Return the requirements in a receipt of uv as arguments of ``pip install``, and uv's options.

    A receipt is the file ``uv-receipt.toml`` of an installed tool.
    """
    try:
        tool: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]
        requirements = [_argument(entry) for entry in tool["requirements"]]
        options = [*_options(tool)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, error) from error
    if DISTRIBUTION not in map(_name_of, requirements):
        raise _unreadable(path, f"it does not name {DISTRIBUTION}")
    return requirements, options


def _unreadable(path: Path, reason: object) -> DelfError:
    return DelfError(
        f"{path} cannot be read as a receipt of uv: {reason}",
        hint=f"install it yourself: uv tool install {DISTRIBUTION} --with …",
    )


def _argument(entry: Mapping[str, Any]) -> str:
    """Convert a requirement to an argument of ``pip install``.

    Args:
        entry: The requirement, from the receipt: the file in which ``uv tool`` records the packages
            of an environment.
    """
    extras = entry.get("extras", ())
    bracket = f"[{','.join(extras)}]" if extras else ""
    name = f"{entry['name']}{bracket}"
    source_keys = entry.keys() - {"name", "extras", "specifier", "marker"}
    match [*source_keys]:
        case []:
            return f"{name}{entry.get('specifier', '')}"
        case ["editable"]:
            return f"{_EDITABLE}{entry['editable']}{bracket}"
        case ["directory" | "path" as key]:
            return f"{name} @ {Path(entry[key]).as_uri()}"
        case ["url"]:
            return f"{name} @ {entry['url']}"
        case _:
            raise ValueError(f"{name} comes from {', '.join(sorted(source_keys))}")


def _options(tool: Mapping[str, Any]) -> Iterator[str]:
    tool_options = cast("Mapping[str, Any]", tool.get("options", {}))
    if python := tool.get("python"):
        yield f"--python={python}"
    for place in dict.fromkeys(tool_options.get("find-links", ())):
        yield f"--find-links={place}"
    for index in tool_options.get("index", ()):
        yield f"--index={index['url']}"


def _folder_of(option: str) -> str:
    """Return the path of an option such as ``--find-links=file:///wheels``."""
    return unquote(urlsplit(option.partition("=")[2]).path)


def _name_of(argument: str) -> str | None:
    """Return the distribution name of an argument of ``pip install``, also of an editable folder.

    None for any other option.
    """
    if argument.startswith(_EDITABLE):
        folder = Path(argument.removeprefix(_EDITABLE).partition("[")[0])
        try:
            text = (folder / "pyproject.toml").read_text(encoding="utf-8")
            return canonicalize_name(tomllib.loads(text)["project"]["name"])
        except (OSError, ValueError, KeyError):
            return None
    try:
        return canonicalize_name(Requirement(argument).name)
    except InvalidRequirement:
        return None
