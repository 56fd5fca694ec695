"""The variables that settings are read from.

First come those of ``os.environ``, then those of ``.env``, then keys that the user stored on this
machine with :mod:`delf.machine.kept_keys`.

Nothing here writes to ``os.environ``: two projects in one process keep their own variables. A
``.env`` file counts once its folder is trusted, see :mod:`delf.trust.decisions`.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import cache
from pathlib import Path
from typing import Final, Literal, ParamSpec, Self, TypeAlias, TypeVar

from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.machine.kept_keys import own_variables
from delf.records import dataclass
from delf.trust.decisions import Trust
from delf.trust.folders import ENV_FILE, project_folder, read_file, working_folder

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

Source: TypeAlias = Literal["command line", "environment", "program", "project"]
"""The source of a value: the command line, an environment variable, code, or a project file."""

_MAX_BYTES: Final = 64 * 1024
_LONG_BLANKS: Final = re.compile(r"[^\S\r\n]{256}")


class SourcedText(str):
    """The text of a setting, with the kind of place that the text comes from.

    Args:
        text: The text.
        source: The kind of place, such as ``environment`` for an environment variable.
    """

    __slots__ = ("source",)
    source: Source

    def __new__(cls, text: str, source: Source = "project") -> Self:
        """Create a text with the attribute ``source``."""
        text_with_source = super().__new__(cls, text)
        text_with_source.source = source
        return text_with_source


class FileText(SourcedText):
    """The text of a setting in ``delf.toml``, with the folder from which relative paths start.

    Args:
        text: The text, with its ``${NAME}`` references expanded.
        folder: The folder of ``delf.toml``.
    """

    __slots__ = ("folder",)
    folder: Path

    def __new__(cls, text: str, folder: Path = Path()) -> Self:
        """Create a text with the attribute ``folder``. The text's ``source`` is ``project``."""
        text_with_folder = super().__new__(cls, text)
        text_with_folder.folder = folder
        return text_with_folder


def source_of(value: object, otherwise: Source = "program") -> Source:
    """Return where the value of a setting comes from, such as ``environment`` or ``program``.

    Args:
        value: The value, which is a :class:`SourcedText` if its source is known.
        otherwise: The source to return for any other value.
    """
    return value.source if isinstance(value, SourcedText) else otherwise


@dataclass(frozen=True)
class _SettingsContext:
    """The variables, project folder and trust decisions from which settings are read."""

    environ: Mapping[str, str]
    folder: Path | None
    trust: Trust | None


_current: ContextVar[_SettingsContext | None] = ContextVar("delf_environ", default=None)


def beside(folder: Path, path: str) -> str:
    """Resolve a path relative to a folder; ``~`` is the user's home.

    Args:
        folder: The folder that a relative path starts from.
        path: The path as the user wrote it.
    """
    return str(folder / expand_home(path))


@dataclass(frozen=True)
class EnvFile:
    """A parsed ``.env`` file.

    Args:
        path: The file.
        entries: The assignments in file order, before references are expanded.
        warnings: A warning for each line that is not an assignment.
    """

    path: Path
    entries: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, root: Path | None = None) -> Self:
        """Read a file; a missing file is empty.

        Args:
            path: The file.
            root: The folder that symbolic links must not leave; the file's own folder when
                omitted.

        Raises:
            ConfigurationError: If the file exists, and cannot be read or is not valid text.
        """
        content = read_file(path, root or path.parent, _MAX_BYTES)
        try:
            text = (content or b"").decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} is not UTF-8 text") from error
        if not text.strip():
            return cls(path)
        # The parser reads long runs of blanks in quadratic time.
        if _LONG_BLANKS.search(text):
            raise ConfigurationError(f"{path} has more than 255 spaces in a row")
        from dotenv.parser import parse_stream

        assignments: list[tuple[str, str]] = []
        warnings: list[str] = []
        for binding in parse_stream(io.StringIO(text)):
            if binding.error:
                warnings.append(f"{path}:{binding.original.line}: this line is not NAME=VALUE")
            # A comment has no key, and a name without ``=`` has no value.
            elif binding.key is not None and binding.value is not None:
                assignments.append((binding.key, binding.value))
        return cls(path, tuple(assignments), tuple(warnings))

    @property
    def assignments(self) -> dict[str, str]:
        """The assigned values by variable name.

        All values of a repeated name are joined by NUL bytes. A change of any of these values then
        changes the joined value, and the user has to trust the file again.
        """
        values_by_name: dict[str, str] = {}
        for name, value in self.entries:
            earlier = values_by_name.get(name)
            values_by_name[name] = value if earlier is None else f"{earlier}\0{value}"
        return values_by_name

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the file's variables with their references expanded.

        Args:
            environ: Variables that ``${NAME}`` may refer to, in addition to earlier lines of the
                file. A variable overrides an earlier line of the same name.
        """
        if not self.entries:
            return {}
        from dotenv.variables import parse_variables

        values: dict[str, str] = {}
        for name, value in self.entries:
            # ``${NAME}`` in a value means the variable of the process, or else an earlier line of
            # the file. Settings themselves have the same precedence.
            known_variables: dict[str, str | None] = {**values, **environ}
            parts = (atom.resolve(known_variables) for atom in parse_variables(value))
            values[name] = SourcedText("".join(parts), "project")
        return values


def current_environ() -> Mapping[str, str]:
    """Return the environment variables that settings are read from.

    Inside :func:`using_environ` these are the variables passed to that function. Elsewhere, the
    variables come from three places, of which the first has precedence: the process, the ``.env``
    of the working directory if the user trusts that file, and the keys stored with delf.
    """
    context = _current.get()
    if context is not None:
        return context.environ
    return {**own_variables(), **_env_file_variables(), **os.environ}


def current_folder() -> Path:
    """Return the folder of the project whose settings are being loaded.

    Outside of such loading, return the folder of the project that contains the working directory.
    """
    context = _current.get()
    if context is not None and context.folder is not None:
        return context.folder
    return project_folder(working_folder())


def current_trust() -> Trust:
    """Return the trust decisions that apply to the project's folder."""
    context = _current.get()
    if context is not None and context.trust is not None:
        return context.trust
    return Trust.here()


def _env_file_variables() -> dict[str, str]:
    """Return the variables of ``.env`` in the working directory.

    Empty if the file is missing or untrusted.
    """
    path = Path(ENV_FILE)
    if not path.exists():
        return {}
    path = path.absolute()
    root = project_folder(working_folder())
    try:
        file = EnvFile.read(path, root)
        if not file.entries:
            return {}
        Trust.here().check(root, {path.relative_to(root).as_posix(): file.assignments})
    except ConfigurationError as error:  # an untrusted file has no effect; warn and go on
        _warn(f"{path} is not read: {error.describe()}")
        return {}
    return file.variables(os.environ)


def call_in_empty_context(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a context that has only what :func:`using_environ` set.

    The objects that the function creates may be shared with other tasks, which must not see the
    caller's ContextVars.
    """
    context = Context()
    context.run(_current.set, _current.get())
    return context.run(function, *args, **kwargs)


@cache
def _warn(text: str) -> None:
    """Log a warning; the same warning is logged once per process."""
    _log.warning("%s", text)


@contextmanager
def using_environ(
    environ: Mapping[str, str], folder: Path | None = None, trust: Trust | None = None
) -> Generator[None]:
    """Make settings created inside the block read the given environment.

    Args:
        environ: All environment variables; ``os.environ`` and ``.env`` are ignored.
        folder: The project's folder; by default the project of the working directory.
        trust: The trust decisions to use; by default those that the user has stored.
    """
    token = _current.set(_SettingsContext(environ, folder, trust))
    try:
        yield
    finally:
        _current.reset(token)
