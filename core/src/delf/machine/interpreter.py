"""The Python interpreter for child processes, also in frozen and embedded programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final

from delf.errors import ConfigurationError

VARIABLE: Final = "DELF_PYTHON"
"""The environment variable that names the interpreter."""

_VERSION: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
_NAME: Final = re.compile(r"python(\d+(\.\d+)?)?t?(\.exe)?", re.IGNORECASE)
_PROBE: Final = "import sys; print('python', *sys.version_info[:2], sep=' ')"
_SECONDS: Final = 20.0


def own_python() -> str:
    """Return the path of a Python interpreter of this process's version, for child processes.

    The variable ``DELF_PYTHON`` can name the interpreter. Otherwise, the interpreter of an ordinary
    process is ``sys.executable``. In a frozen program (PyInstaller, cx_Freeze, Nuitka) or an
    embedding program, ``sys.executable`` is the program, which would start itself again and again.
    The function then looks for a Python of the same version among the interpreters of the
    installation and in ``PATH``, and runs each candidate once to check its version.

    Raises:
        ConfigurationError: If no such interpreter is found, or ``DELF_PYTHON`` names no such
            interpreter.
    """
    return _find_python(os.environ.get(VARIABLE), sys.executable, is_frozen())


def is_frozen() -> bool:
    """Return True if the program was packed by PyInstaller, cx_Freeze or Nuitka."""
    main = sys.modules.get("__main__")
    return bool(getattr(sys, "frozen", False)) or hasattr(main, "__compiled__")


@cache
def _find_python(configured_path: str | None, program: str | None, frozen: bool) -> str:
    """Find the interpreter for :func:`own_python`.

    Args:
        configured_path: The value of ``DELF_PYTHON``, if set.
        program: The running program, ``sys.executable``.
        frozen: Whether the running program is frozen.
    """
    if configured_path:
        if _is_same_python(configured_path):
            return configured_path
        raise ConfigurationError(
            f"{VARIABLE} is {configured_path!r}, which is not a Python {_VERSION}",
            hint=f"give the path of a Python {_VERSION}, or unset it",
        )
    # A program that is named like an ordinary interpreter is used without a check.
    if program and not frozen and _NAME.fullmatch(os.path.basename(program)):  # noqa: PTH119
        return program
    for candidate in _candidates(frozen):
        if candidate != program and _is_same_python(candidate):
            return candidate
    kind = "a frozen program" if frozen else "not a Python interpreter"
    raise ConfigurationError(
        f"{program or 'this program'} is {kind}, and no Python {_VERSION} was found that its "
        "child processes can run",
        hint=f"install Python {_VERSION} on this machine, or name it: {VARIABLE}=/path/to/python",
    )


def _candidates(frozen: bool) -> Iterator[str]:
    """Yield paths of programs that may be an interpreter of this version, the likeliest first."""
    exact_name = f"python{_VERSION}"
    # The prefixes of a frozen program are its own folder, which has no interpreter.
    if not frozen:
        for folder in dict.fromkeys((sys.exec_prefix, sys.base_exec_prefix)):
            yield f"{folder}/bin/{exact_name}"
    # A relative entry of PATH would let the working folder choose the interpreter.
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117
    for name in (exact_name, "python3", "python"):
        if (executable := shutil.which(name, path=path)) is not None:
            yield executable


def _is_same_python(path: str) -> bool:
    """Run a program, and return True if it is a Python interpreter of this process's version."""
    try:
        process = subprocess.run(  # noqa: S603 - no shell
            [path, "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={},
            cwd="/",
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    version_text = f"python {sys.version_info[0]} {sys.version_info[1]}"
    return process.stdout.decode("ascii", "replace").strip() == version_text
