"""``--tools FILE.py``: the tools that a Python file defines."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from delf.environment import using_environ
from delf.errors import (
    ConfigurationError,
    DelfError,
    FolderNotTrustedError,
    ToolDefinitionError,
    describe_exception,
)
from delf.tools.connection import Connection
from delf.tools.function import Tool, tool

ToolLike = Tool[Any, Any] | Connection
Read = Callable[[Path], bytes]


def load_tools(
    path: Path, environ: Any, reader: Read | None = None, wanted_names: Collection[str] = ()
) -> list[ToolLike]:
    """Import a Python file and return its tools and connections.

    If the file has ``__all__``, only names in it are returned. Otherwise, names with a leading
    underscore and tools imported from other modules are left out.

    Args:
        path: The file. The file's folder is added to ``sys.path``, so that the file can import
            neighbouring modules.
        environ: The environment variables for settings of the connections.
        reader: Returns the verified content of a file. Only verified content is executed, never
            compiled copies or packages. When None, Python's own import is used.
        wanted_names: Names of undecorated functions to use as tools.

    Raises:
        ConfigurationError: If the file cannot be read or executed; the message names the line.
        ToolDefinitionError: If the file defines no tool or an invalid one.
    """
    with using_environ(environ):
        module = load_module(path, "--tools", reader)
    tools = list(_tools_of(module))
    tool_names = {item.name for item in tools}
    for name in wanted_names:
        function: Any = vars(module).get(name)
        if name not in tool_names and inspect.isfunction(function):
            tools.append(tool(function))
    if not tools:
        raise ToolDefinitionError(
            f"{path} defines no tool",
            hint="mark functions with @delf.tool, or make a connection at the top level",
        )
    return tools


def load_module(path: Path, option: str, reader: Read | None = None) -> ModuleType:
    """Import a Python file that an option names.

    Args:
        path: The file. The file's folder is added to ``sys.path``, so that the file can import
            neighbouring modules.
        option: The option, for messages.
        reader: Returns the verified content of a file. When None, Python's own import is used.

    Raises:
        ConfigurationError: If the file cannot be read or executed; the message names the line.
    """
    if not path.is_file():
        problem = "is not a file" if path.exists() else "does not exist"
        raise ConfigurationError(f"{option} {path}: it {problem}")
    return _import(path.resolve(), path, reader)


class _VerifiedSources:
    """An import finder for the modules of one folder that executes only verified source text.

    Python's own finder would also import packages and compiled copies, which the user never saw.
    """

    def __init__(self, folder: Path, reader: Read) -> None:
        self._folder = folder
        self._read = reader

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module in the folder; None for any other module."""
        del target
        path = self._folder / f"{fullname.rpartition('.')[2]}.py"
        if not path.is_file():
            return None
        loader = _VerifiedSourceLoader(fullname, path, self._read)
        return importlib.util.spec_from_file_location(fullname, path, loader=loader)


class _VerifiedSourceLoader(SourceFileLoader):
    """A module loader that compiles verified source text.

    The standard loader would prefer a compiled copy.
    """

    def __init__(self, fullname: str, path: Path, reader: Read) -> None:
        super().__init__(fullname, str(path))
        self._read = reader

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self._read(Path(self.path)), self.path, "exec", dont_inherit=True)


def _make_importable(folder: Path, reader: Read | None) -> None:
    """Add a folder to ``sys.path``.

    With ``reader``, only verified source text is imported from the folder.
    """
    entry = str(folder)
    if entry not in sys.path:
        sys.path.insert(0, entry)
    elif not isinstance(sys.path_importer_cache.get(entry), _VerifiedSources):
        return  # the user put the folder on the path, so it keeps Python's finder
    if reader is not None:
        sys.path_importer_cache[entry] = cast("Any", _VerifiedSources(folder, reader))


def _import(path: Path, shown_path: Path, reader: Read | None) -> ModuleType:
    """Execute a Python file as a new module; errors name the failing line.

    Args:
        path: The resolved path.
        shown_path: The path as the user wrote it, for messages.
        reader: Reads only files that are trusted; None to read any file.
    """
    _make_importable(path.parent, reader)
    name = path.stem
    if not name.isidentifier() or name in sys.modules:
        name = f"delf_tools_{len(sys.modules)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigurationError(
            f"{shown_path} is not a Python file", hint="name a file that ends in .py"
        )
    source = _read_source(reader or Path.read_bytes, shown_path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are resolved through sys.modules
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - what the user trusts
    except (KeyboardInterrupt, FolderNotTrustedError):
        raise  # FolderNotTrustedError comes from an untrusted neighbour that the file imports
    except SyntaxError as error:
        at = f"{error.filename}:{error.lineno}"
        raise ConfigurationError(f"{at}: {type(error).__name__}: {error.msg}") from error
    except DelfError as error:
        kind = ToolDefinitionError if isinstance(error, ToolDefinitionError) else ConfigurationError
        raise kind(
            f"{_failing_line(error, path, shown_path)}: {error.message}", hint=error.hint
        ) from error
    except BaseException as error:  # such as SystemExit
        at = _failing_line(error, path, shown_path)
        raise ConfigurationError(f"{at}: {describe_exception(error)}") from error
    return module


def _read_source(reader: Read, path: Path) -> bytes:
    try:
        return reader(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _failing_line(error: BaseException, path: Path, shown_path: Path) -> str:
    """Return ``FILE:LINE`` for an error; ``FILE`` if the traceback has no line of the file."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"{shown_path}:{lines[-1]}" if lines else str(shown_path)


def _tools_of(module: ModuleType) -> Iterator[ToolLike]:
    """Yield the tools and connections that a module defines or exports."""
    exported: Any = getattr(module, "__all__", None)
    yielded_ids: set[int] = set()
    for name, item in vars(module).items():
        if not isinstance(item, (Tool, Connection)):
            continue
        value = cast("ToolLike", item)
        if exported is not None:
            is_wanted = name in exported
        else:
            is_imported = isinstance(value, Tool) and _defining_module(value) != module.__name__
            is_wanted = not name.startswith("_") and not is_imported
        if is_wanted and id(value) not in yielded_ids:
            yielded_ids.add(id(value))
            yield value


def _defining_module(tool: Tool[Any, Any]) -> str | None:
    return getattr(tool.function, "__module__", None)
