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
from delf.machine.folders import user_folder
from delf.machine.interpreter import is_frozen
from delf.machine.own_files import make_private_folder
from delf.packages.namesake import NAMESAKE
from delf.terminal import visible
from delf_console import uv_tool

_MAX_OUTPUT_LINES: Final = 40
_CONSTRAINTS_FILE: Final = "constraints.txt"
# A pip constraint that no version of the unrelated package ``delf`` meets.
_FORBID_FOREIGN_DELF: Final = f"{NAMESAKE}<0"
# An option of uv that ignores ``tool.uv.sources``, because delf chooses the packages' sources.
_UV_SOURCES_OFF: Final = "--no-sources"


def install(arguments: Sequence[str], *, upgrade: bool = False) -> list[str]:
    """Return the command that installs packages with pip or uv.

    Args:
        arguments: The packages and options, as arguments for ``pip install``.
        upgrade: Whether to upgrade packages that are installed.
    """
    options = ["--constraint", _CONSTRAINTS_FILE]
    if upgrade:
        options.append("--upgrade")
    command, is_uv = _installer_command()
    if not is_uv:
        options += ["--no-input", "--disable-pip-version-check"]
        return [*command, "install", "--quiet", *options, *arguments]
    options.append(_UV_SOURCES_OFF)
    receipt = uv_tool.receipt()
    if receipt is not None:  # `uv tool install` made this environment, and has to change it
        # The first word of the command is the path of uv.
        return [*uv_tool.install(command[0], receipt, arguments), *options]
    return [*command, "install", "--quiet", *_python_option(), *options, *arguments]


def uninstall(packages: Sequence[str]) -> list[str]:
    """Return the command that uninstalls packages with pip or uv."""
    command, is_uv = _installer_command()
    if not is_uv:
        return [*command, "uninstall", "--quiet", "--yes", *packages]
    receipt = uv_tool.receipt()
    if receipt is not None:
        tool_command = uv_tool.uninstall(command[0], receipt, packages)
        if tool_command is not None:  # the receipt names at least one of the packages
            return [*tool_command, _UV_SOURCES_OFF]
    return [*command, "uninstall", "--quiet", *_python_option(), *packages]


def agree(lines: Sequence[str], command: Sequence[str], question: str, *, yes: bool) -> None:
    """Show the planned changes and the command, and ask a person to confirm.

    Args:
        lines: The description of the planned changes.
        command: The command that will run.
        question: The question to ask.
        yes: Whether the user confirmed beforehand, so that nobody is asked.

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
    redact: Callable[[str], str] = str,
    hint: str | None = None,
) -> None:
    """Run pip or uv quietly in an empty private folder.

    Args:
        command: The command.
        doing: The description of the work, such as ``installing sql``.
        constraints: Further lines for pip's constraints file, such as sources of packages.
        redact: Redacts secrets in a line of output.
        hint: The hint of the error if the command fails.

    Raises:
        DelfError: If the command fails. The end of the command's output is printed before.
    """
    click.echo(visible(f"{doing} …"), err=True)
    with _empty_private_folder() as folder:
        constraints_text = "\n".join([_FORBID_FOREIGN_DELF, *constraints])
        (folder / _CONSTRAINTS_FILE).write_text(f"{constraints_text}\n", encoding="utf-8")
        process = subprocess.run(  # noqa: S603 - the user asked for it
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
    if process.returncode:
        output = f"{process.stdout}{process.stderr}".strip().splitlines()
        for line in output[-_MAX_OUTPUT_LINES:]:
            click.echo(f"  {visible(redact(line))}", err=True)
        raise DelfError(f"{doing} failed, with status {process.returncode}", hint=hint)


def _installer_command() -> tuple[list[str], bool]:
    """Return the beginning of the installer's command line, and whether the installer is uv."""
    if is_frozen():
        raise DelfError(
            f"{sys.executable} is a frozen program: nothing can be installed into it",
            hint="build the program again with the package in it",
        )
    uv = shutil.which("uv")
    # Through a relative entry of PATH, a program of the current folder could be found.
    if uv and Path(uv).is_absolute():
        return [uv, "pip"], True
    if find_spec("pip") is None:
        raise DelfError(
            f"{sys.prefix} has no pip, and there is no uv",
            hint=f"{sys.executable} -m ensurepip",
        )
    # -I: a file pip.py in the current folder must not be run.
    return [sys.executable, "-I", "-m", "pip"], False


def _python_option() -> list[str]:
    return ["--python", sys.executable]


@contextmanager
def _empty_private_folder() -> Generator[Path]:
    """Make a temporary folder in delf's cache, in which the installer runs.

    In a project's folder, uv would use the settings of the project.
    """
    cache = user_folder("cache") / "install"
    try:
        make_private_folder(cache)
        folder = tempfile.TemporaryDirectory(dir=cache)
    except OSError as error:
        raise DelfError(f"{cache} cannot be written: {error.strerror}") from error
    with folder as path:
        yield Path(path)
