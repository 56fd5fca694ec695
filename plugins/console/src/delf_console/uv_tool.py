"""The environment of ``uv tool install``, which uv makes anew from its receipt at each upgrade."""

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
    """Return the receipt of this environment; None if it is not of ``uv tool``."""
    path = Path(sys.prefix) / _RECEIPT
    return path if path.is_file() else None


def install(uv: str, path: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that adds packages to those of the receipt.

    Args:
        uv: The program.
        path: The receipt.
        arguments: The arguments for pip.

    Raises:
        DelfError: If the receipt cannot be read.
    """
    requirements, options = _read(path)
    options = [option for option in options if _place_of(option) not in arguments]
    names = {name for name in map(_name_of, arguments) if name}
    more = [
        each
        for each in requirements
        if _name_of(each) == DISTRIBUTION or _name_of(each) not in names
    ]
    return [*_command(uv, [*more, *arguments]), *options]


def uninstall(uv: str, path: Path, packages: Sequence[str]) -> list[str] | None:
    """Return the command that uninstalls packages; None if the receipt names none of them.

    Args:
        uv: The program.
        path: The receipt.
        packages: Names of distributions.

    Raises:
        DelfError: If the receipt cannot be read.
    """
    requirements, options = _read(path)
    remaining = [each for each in requirements if _name_of(each) not in packages]
    return None if remaining == requirements else [*_command(uv, remaining), *options]


def _command(uv: str, arguments: Sequence[str]) -> list[str]:
    """Build the command: delf's own package first, all other packages with ``--with``."""
    own = next(each for each in arguments if _name_of(each) == DISTRIBUTION)
    command = [uv, "tool", "install", "--quiet"]
    command += ["--editable", own.removeprefix(_EDITABLE)] if own.startswith(_EDITABLE) else [own]
    for each in arguments:
        if each is own:
            continue
        if each.startswith(_EDITABLE):
            command += ["--with-editable", each.removeprefix(_EDITABLE)]
        elif _name_of(each):
            command += ["--with", each]
        else:
            command.append(each)
    return command


def _read(path: Path) -> tuple[list[str], list[str]]:
    """Read the requirements of a receipt as arguments, and its folders of wheels and indexes."""
    try:
        tool: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]
        return [_argument(each) for each in tool["requirements"]], [*_options(tool)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DelfError(
            f"{path} cannot be read as a receipt of uv: {error}",
            hint=f"install it yourself: uv tool install {DISTRIBUTION} --with …",
        ) from error


def _argument(entry: Mapping[str, Any]) -> str:
    """Convert a requirement of the receipt to an argument for pip."""
    extras = entry.get("extras", ())
    name = f"{entry['name']}[{','.join(extras)}]" if extras else str(entry["name"])
    places = entry.keys() - {"name", "extras", "specifier", "marker"}
    match [*places]:
        case []:
            return f"{name}{entry.get('specifier', '')}"
        case ["editable"]:
            bracket = f"[{','.join(extras)}]" if extras else ""
            return f"{_EDITABLE}{entry['editable']}{bracket}"
        case ["directory" | "path" as where]:
            return f"{name} @ {Path(entry[where]).as_uri()}"
        case ["url"]:
            return f"{name} @ {entry['url']}"
        case _:
            raise ValueError(f"{name} comes from {', '.join(sorted(places))}")


def _options(tool: Mapping[str, Any]) -> Iterator[str]:
    tool_options = cast("Mapping[str, Any]", tool.get("options", {}))
    if python := tool.get("python"):
        yield f"--python={python}"
    for place in dict.fromkeys(tool_options.get("find-links", ())):
        yield f"--find-links={place}"
    for index in tool_options.get("index", ()):
        yield f"--index={index['url']}"


def _place_of(option: str) -> str:
    """Return the folder of an option as given on the command line."""
    return unquote(urlsplit(option.partition("=")[2]).path)


def _name_of(argument: str) -> str | None:
    """Return the distribution of an argument of pip; None for an option."""
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
