"""The modules that scripts may import and the builtins that they see.

This is for clear error messages, not for security: a script can reach any object in its
interpreter. The security boundary is the confinement of the process.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

from delf_sandbox.guest.arguments import FunctionWithUsage
from delf_sandbox.guest.stand_ins import leave

_REFUSED = {
    "breakpoint": "there is no debugger here",
    "compile": "write the code directly",
    "eval": "write the expression directly, or use json.loads or ast.literal_eval for data",
    "exec": "write the code directly",
    "help": "the tools are described in the task",
    "input": "nobody can answer; put what is missing into the output",
}
_REMOVED = ("copyright", "credits", "license", "__loader__", "__spec__")

# An import error lists the allowed modules if there are at most this many.
_MAX_LISTED_MODULES = 20
_NO_NETWORK = "there is no network; call the tools"
_INSTEAD = {
    "subprocess": "programs cannot be started; call the tools",
    **dict.fromkeys(("requests", "httpx", "aiohttp", "urllib3", "socket", "http"), _NO_NETWORK),
    **dict.fromkeys(("smtplib", "imaplib", "ftplib", "ssl"), _NO_NETWORK),
    "urllib": "urllib.parse is allowed; there is no network, call the tools",
    "multiprocessing": "use asyncio.gather",
    "pickle": "use json",
    "dotenv": "there are no secrets here, and the tools need none",
    "pytz": "use zoneinfo",
    "dateutil": "use datetime",
    **dict.fromkeys(("pandas", "numpy", "polars"), "use lists, dicts, csv and statistics"),
    **dict.fromkeys(("tabulate", "rich", "prettytable"), "format the text with f-strings"),
}


def make_builtins(
    modules: Sequence[str], stand_ins: Mapping[str, Any], open_file: Callable[..., Any]
) -> dict[str, Any]:
    """Return the builtins that scripts get, as a mapping from name to object.

    Args:
        modules: The names of the modules that scripts may import, with their submodules.
        stand_ins: A mapping from module name to the module that scripts get instead.
        open_file: The function that scripts see as ``open``.
    """
    # Copy the builtins, because the sandbox's own modules still need all of them.
    provided = {name: value for name, value in vars(builtins).items() if name not in _REMOVED}
    for name, instead in _REFUSED.items():
        provided[name] = _refusing_function(name, instead)
    provided["open"] = FunctionWithUsage("open(file, mode)", open_file)
    provided["__import__"] = _Importer(modules, stand_ins)
    provided["exit"] = provided["quit"] = FunctionWithUsage("exit(code)", leave)
    return provided


def _refusing_function(name: str, instead: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(f"{name}() is not available in scripts: {instead}")

    refuse.__name__ = name
    return refuse


def can_import(name: str, modules: Sequence[str], stand_ins: Mapping[str, Any]) -> bool:
    """Return True if scripts may import a module.

    Args:
        name: The name of the module.
        modules: The allowed modules; their submodules are allowed, too.
        stand_ins: A mapping from module name to the module that scripts get instead.
    """
    return name in stand_ins or _is_covered(name, frozenset(modules))


class _Importer:
    """The function that scripts see as ``__import__``, which imports only allowed modules.

    Args:
        modules: The names of the modules that scripts may import.
        stand_ins: A mapping from module name to the module that scripts get instead.
    """

    def __init__(self, modules: Sequence[str], stand_ins: Mapping[str, Any]) -> None:
        self._allowed_names = frozenset(modules)
        self._stand_ins = stand_ins
        # Read the builtin before a script runs, because a script may replace it.
        self._real_import = builtins.__import__

    def __call__(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        if level:
            raise ImportError("scripts cannot use relative imports")
        # C code, such as that of strptime(), passes a list; an import statement passes a tuple.
        # Such an import needs no check: the check below is no boundary, but gives scripts a clear
        # error. C code ignores the returned module, and takes the module from ``sys.modules``.
        is_import_by_c_code = isinstance(fromlist, list)
        if is_import_by_c_code:
            return self._real_import(name, globals, locals)
        if name in self._stand_ins:
            # Python binds the result of ``import os.path`` to ``os``, so return ``os``. But for
            # ``from os.path import join``, return ``os.path``.
            top_level_name = name.partition(".")[0]
            module = self._stand_ins[name if fromlist else top_level_name]
            _check_members(module, fromlist or ())
            return module
        if not self._is_allowed(name, fromlist or ()):
            raise ImportError(import_refusal(name, sorted(self._allowed_names)))
        return self._real_import(name, globals, locals, fromlist)

    def _is_allowed(self, name: str, members: Sequence[str]) -> bool:
        """Return True if a module is allowed, or all the imported members are allowed modules.

        For example, ``from os import path`` needs only ``os.path``.
        """
        submodules = [f"{name}.{member}" for member in members]
        are_submodules_allowed = bool(submodules) and self._allowed_names.issuperset(submodules)
        return are_submodules_allowed or _is_covered(name, self._allowed_names)


def _check_members(module: Any, names: Iterable[str]) -> None:
    """Raise ImportError if a module lacks one of the names that a script imports.

    The module's own error, which suggests an alternative, is the message. Python's message would
    be only "cannot import name".
    """
    for name in names:
        if name == "*":
            continue
        try:
            getattr(module, name)
        except AttributeError as error:
            raise ImportError(str(error)) from None


def _is_covered(name: str, allowed_names: frozenset[str]) -> bool:
    """Return whether a module or one of its parent packages is allowed."""
    while name:
        if name in allowed_names:
            return True
        name, _, _ = name.rpartition(".")
    return False


def import_refusal(name: str, modules: Sequence[str]) -> str:
    """Return the error message for a forbidden import, with an alternative."""
    instead = _INSTEAD.get(name.split(".", maxsplit=1)[0], "write it with the standard library")
    can_list = len(modules) <= _MAX_LISTED_MODULES
    allowed = f"; there is {', '.join(sorted(modules))}" if can_list else ""
    return f"there is no {name!r} in this sandbox: {instead}{allowed}"


def is_only_missing_here(package: str) -> bool:
    """Return True for a standard module for which :func:`import_refusal` knows no alternative."""
    return package in sys.stdlib_module_names and package not in _INSTEAD


class RestrictedOpen:
    """A function like ``open`` that is restricted to certain files and folders.

    Args:
        readable: Files and folders in which scripts may only read.
        writable: Files and folders in which scripts may read and write.
    """

    def __init__(self, readable: Sequence[str], writable: Sequence[str]) -> None:
        self._input_paths = [os.path.realpath(path) for path in readable]
        self._writable_paths = [os.path.realpath(path) for path in writable]

    def __call__(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        name = _file_name(file)
        # ``name`` may be a link to an input file. With "w" and "x", the script wants a new file:
        # remove the link, so that realpath() does not lead to the input file. With "a" and "r+",
        # the script wants to change the existing file: keep the link, so that realpath() leads to
        # the input file, and _check_write() refuses to change it.
        if "w" in mode or "x" in mode:
            self._remove_link_to_input(name)
        path = os.path.realpath(name)
        if any(letter in mode for letter in "wax+"):
            self._check_write(name, path)
        else:
            self._check_read(name, path)
        return io.open(path, mode, *args, **kwargs)  # noqa: UP020 - scripts get another open()

    def _remove_link_to_input(self, name: str) -> None:
        """Remove a link in a writable folder, so that a new file can have the name of the link.

        The working folder has a link to each input file; see :func:`link_inputs`.
        """
        folder = os.path.realpath(os.path.dirname(name))
        if os.path.islink(name) and _is_inside_any(folder, self._writable_paths):
            os.unlink(name)

    def _check_write(self, name: str, path: str) -> None:
        if _is_inside_any(path, self._input_paths):
            raise PermissionError(
                f"{name!r} is an input file and can only be read; write to a file with "
                "a relative name, or use add_to_output_files"
            )
        if not _is_inside_any(path, self._writable_paths):
            raise _outside_error(name, "write")

    def _check_read(self, name: str, path: str) -> None:
        if not _is_inside_any(path, [*self._input_paths, *self._writable_paths]):
            raise _outside_error(name, "read")


def _file_name(file: Any) -> str:
    """Return the path that a script passed to ``open``, as a text."""
    if isinstance(file, int):
        raise PermissionError("open() takes a path, not a descriptor")
    name = cast("str | bytes", os.fspath(file))
    if isinstance(name, bytes):
        raise TypeError("open() takes a path as text")
    return name


def _outside_error(name: str, purpose: str) -> PermissionError:
    return PermissionError(
        f"{name!r} is outside the folders that scripts may {purpose}; "
        "use a relative name for scratch files, add_to_output_files for results"
    )


def link_inputs(links: Mapping[str, str], scratch: str) -> None:
    """Create a link to each input file in the working folder.

    Libraries that open files themselves then find an input file by its name.

    Args:
        links: The paths of input files inside the sandbox, by their names for scripts.
        scratch: The path of the working folder.
    """
    for name, path in links.items():
        with suppress(OSError):  # the name exists, or links are forbidden
            os.symlink(path, os.path.join(scratch, name))


def _is_inside_any(path: str, roots: Sequence[str]) -> bool:
    """Return whether a path is one of the given files or folders, or is inside one of them."""
    for root in roots:
        folder_prefix = root.rstrip("/") + "/"
        if path == root or path.startswith(folder_prefix):
            return True
    return False
