"""Runs pip, or uv if it made the environment, isolated from local settings."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from delf.errors import ConfigurationError, DelfError
from delf.machine.interpreter import is_frozen
from delf.machine.own_files import make_private_folder
from delf.packages.namesake import NAMESAKE
from delf.terminal import visible
from delf_console import uv_tool

_SHOWN: Final = 40
_CONSTRAINTS: Final = "constraints.txt"
_NO_NAMESAKE: Final = f"{NAMESAKE}<0"
"""A pip constraint that refuses a plugin requiring the unrelated package ``delf``."""


def install(arguments: Sequence[str], *, upgrade: bool = False) -> list[str]:
    """Return the installer's command line for installing packages."""
    more = ["--constraint", _CONSTRAINTS, *(["--upgrade"] if upgrade else [])]
    tool, is_uv = _tool()
    receipt = uv_tool.receipt()
    if is_uv and receipt is not None:
        return [*uv_tool.install(tool[0], receipt, arguments), *more, "--no-sources"]
    # Only uv reads the sources named in a package's folder; delf has chosen the sources.
    more += ["--no-sources"] if is_uv else ["--no-input", "--disable-pip-version-check"]
    return [*tool, "install", "--quiet", *(_python() if is_uv else ()), *more, *arguments]


def uninstall(packages: Sequence[str]) -> list[str]:
    """Return the installer's command line for uninstalling packages."""
    tool, is_uv = _tool()
    receipt = uv_tool.receipt()
    if is_uv and receipt is not None:
        command = uv_tool.uninstall(tool[0], receipt, packages)
        if command is not None:
            return [*command, "--no-sources"]
    return [*tool, "uninstall", "--quiet", *(_python() if is_uv else ["--yes"]), *packages]


def agree(lines: Sequence[str], command: Sequence[str], question: str, *, yes: bool) -> None:
    """Show the planned changes, and ask, unless confirmed beforehand.

    Raises:
        ConfigurationError: If nobody can be asked.
        click.exceptions.Exit: If the person declines.
    """
    for line in (*lines, f"runs: {shlex.join(command)}"):
        click.echo(visible(line), err=True)
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigurationError(
            "nothing was done, because nobody could be asked", hint="approve it in advance: --yes"
        )
    if not click.confirm(question, err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def run(
    command: Sequence[str],
    doing: str,
    *,
    constraints: Sequence[str] = (),
    clean: Callable[[str], str] = str,
    hint: str | None = None,
) -> None:
    """Run pip or uv quietly in an empty private folder.

    Args:
        command: The command.
        doing: The message to show while the command runs.
        constraints: pip constraints with the sources of required packages.
        clean: Redacts the output.
        hint: The hint for a failure.

    Raises:
        DelfError: If the command fails, after its output was written.
    """
    click.echo(visible(f"{doing} …"), err=True)
    with _own_folder() as folder:
        lines = "\n".join([_NO_NAMESAKE, *constraints])
        (folder / _CONSTRAINTS).write_text(f"{lines}\n", encoding="utf-8")
        process = subprocess.run(  # noqa: S603 - the user asked for it
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
    if process.returncode:
        output = f"{process.stdout}{process.stderr}".strip().splitlines()
        for line in output[-_SHOWN:]:
            click.echo(f"  {visible(clean(line))}", err=True)
        raise DelfError(f"{doing} failed, with status {process.returncode}", hint=hint)


def _tool() -> tuple[list[str], bool]:
    """Return the installer, and whether it is uv.

    With ``-I``, Python finds pip in its own folders only, wherever it is started.
    """
    if is_frozen():
        raise DelfError(
            f"{sys.executable} is a frozen program: nothing can be installed into it",
            hint="build the program again with the package in it",
        )
    uv = shutil.which("uv")
    if uv and Path(uv).is_absolute():
        return [uv, "pip"], True
    if find_spec("pip") is None:
        raise DelfError(
            f"{sys.prefix} has no pip, and there is no uv",
            hint=f"{sys.executable} -m ensurepip",
        )
    return [sys.executable, "-I", "-m", "pip"], False


def _python() -> list[str]:
    return ["--python", sys.executable]


@contextmanager
def _own_folder() -> Generator[Path]:
    """Make an empty private folder, because uv reads settings from parent folders."""
    from platformdirs import user_cache_path

    cache = user_cache_path("delf") / "install"
    try:
        make_private_folder(cache)
        folder = tempfile.TemporaryDirectory(dir=cache)
    except OSError as error:
        raise DelfError(f"{cache} cannot be written: {error.strerror}") from error
    with folder as path:
        yield Path(path)
