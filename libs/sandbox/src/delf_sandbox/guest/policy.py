"""The modules that scripts may import and the builtins that they see.

This is for clear error messages, not for security: a script can reach any object in its
interpreter. The security boundary is the confinement of the process.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Mapping, Sequence
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

# The number of allowed modules up to which an import error lists them.
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
    """Return a mapping from name to object of the builtins for scripts.

    Args:
        modules: The names of the modules that scripts may import. A top-level name includes all
            submodules; a dotted name stands for one module.
        stand_ins: A mapping from module name to the module that scripts get instead.
        open_file: The function that scripts see as ``open``.
    """
    # A copy, because the sandbox's own modules still need all builtins.
    names = {name: value for name, value in vars(builtins).items() if name not in _REMOVED}
    for name, instead in _REFUSED.items():
        names[name] = _refusing_function(name, instead)
    names["open"] = FunctionWithUsage("open(file, mode)", open_file)
    names["__import__"] = _build_importer(modules, stand_ins)
    names["exit"] = names["quit"] = FunctionWithUsage("exit(code)", leave)
    return names


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
        stand_ins: By module name, the objects that scripts get instead of these modules.
    """
    return name in stand_ins or _is_covered(name, frozenset(modules))


def _build_importer(modules: Sequence[str], stand_ins: Mapping[str, Any]) -> Callable[..., Any]:
    """Build the function that scripts see as ``__import__``, which imports only allowed modules.

    An import that C code makes is not checked.
    """
    allowed_names = frozenset(modules)
    # Read the builtin before a script runs, because a script may replace it.
    real_import = builtins.__import__

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if level:
            raise ImportError("scripts cannot use relative imports")
        if isinstance(fromlist, list):
            # The import is by C code, such as that of strptime(): import statements pass a tuple.
            # C code needs no check, because the check only serves to give scripts a clear error.
            # No names are passed on: C code then takes the module from ``sys.modules``.
            return real_import(name, globals, locals, (), 0)
        if name in stand_ins:
            # ``import os.path`` binds the module ``os`` and so needs this module;
            # ``from os.path import join`` needs ``os.path``.
            top_level_name = name.partition(".")[0]
            return stand_ins[name if fromlist else top_level_name]
        submodules = [f"{name}.{item}" for item in fromlist or ()]
        # For example, ``from os import path`` needs only ``os.path``.
        are_submodules_allowed = bool(submodules) and allowed_names.issuperset(submodules)
        if not _is_covered(name, allowed_names) and not are_submodules_allowed:
            raise ImportError(import_refusal(name, modules))
        return real_import(name, globals, locals, fromlist, 0)

    return import_module


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


def make_open(readable: Sequence[str], writable: Sequence[str]) -> Callable[..., Any]:
    """Build a function like ``open`` that is restricted to certain files and folders.

    Args:
        readable: Files and folders in which scripts may only read.
        writable: Files and folders in which scripts may read and write.
    """
    input_paths = [os.path.realpath(path) for path in readable]
    writable_paths = [os.path.realpath(path) for path in writable]
    readable_paths = [*input_paths, *writable_paths]

    def is_in_scratch_folder(name: str) -> bool:
        folder = os.path.realpath(os.path.dirname(name))
        return _is_inside_any(folder, writable_paths)

    def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int):
            raise PermissionError("open() takes a path, not a descriptor")
        name = cast("str | bytes", os.fspath(file))
        if isinstance(name, bytes):
            raise TypeError("open() takes a path as text")
        path = os.path.realpath(name)
        makes_new_file = "w" in mode or "x" in mode
        if makes_new_file and os.path.islink(name) and is_in_scratch_folder(name):
            os.unlink(name)  # replace the link to an input file by a scratch file
            path = os.path.realpath(name)
        is_writing = any(letter in mode for letter in "wax+")
        if is_writing and _is_inside_any(path, input_paths):
            raise PermissionError(
                f"{name!r} is an input file and can only be read; write to a file with "
                "a relative name, or use add_to_output_files"
            )
        allowed_paths = writable_paths if is_writing else readable_paths
        if not _is_inside_any(path, allowed_paths):
            purpose = "write" if is_writing else "read"
            raise PermissionError(
                f"{name!r} is outside the folders that scripts may {purpose}; "
                "use a relative name for scratch files, add_to_output_files for results"
            )
        return io.open(path, mode, *args, **kwargs)  # noqa: UP020 - scripts get another open()

    return open_file


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
