"""The environment that settings are read from: the process's own over a ``.env`` file.

Nothing here writes to ``os.environ``: two projects in one process keep their own variables.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Self

from delf.errors import ConfigurationError

ENV_FILE: Final = ".env"


class FileText(str):
    """A text of ``delf.toml`` that knows where its file is, for paths that are relative to it.

    Args:
        text: The text, with its references looked up.
        folder: The file's folder.
    """

    __slots__ = ("folder",)
    folder: Path

    def __new__(cls, text: str, folder: Path = Path()) -> Self:
        """A text like any other, with one attribute more."""
        made = super().__new__(cls, text)
        made.folder = folder
        return made


_current: ContextVar[Mapping[str, str] | None] = ContextVar("delf_environ", default=None)


def beside(folder: Path, path: str) -> str:
    """A path as it counts from a folder; ``~`` is the user's home.

    Args:
        folder: From where a relative path counts.
        path: As it was written.
    """
    # pathlib's own raises for the home of a user that does not exist
    return str(folder / os.path.expanduser(path))  # noqa: PTH111


def read_env_file(path: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables of a ``.env`` file.

    Args:
        path: The file; one that does not exist is empty.
        environ: What ``${NAME}`` in a value may refer to, besides lines above it.

    Returns:
        The variables, and a warning for each line that is no assignment.

    Raises:
        ConfigurationError: When the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error
    if not text.strip():
        return {}, []
    import io

    from dotenv.parser import parse_stream
    from dotenv.variables import parse_variables

    values: dict[str, str] = {}
    warnings: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            warnings.append(f"{path}:{binding.original.line}: this line is not NAME=VALUE")
        elif binding.key is not None and binding.value is not None:
            known: dict[str, str | None] = {**values, **environ}
            values[binding.key] = "".join(
                atom.resolve(known) for atom in parse_variables(binding.value)
            )
    return values, warnings


def current_environ() -> Mapping[str, str]:
    """The environment that settings are read from.

    Inside :func:`using_environ` the one given there, else the process's own over the
    ``.env`` of the working directory.
    """
    given = _current.get()
    if given is not None:
        return given
    values, _ = read_env_file(Path(ENV_FILE), os.environ)
    return {**values, **os.environ}


@contextmanager
def using_environ(environ: Mapping[str, str]) -> Generator[None]:
    """Settings that are made inside are read from this environment.

    Args:
        environ: All variables; neither the process's own nor ``.env`` are looked at.
    """
    token = _current.set(environ)
    try:
        yield
    finally:
        _current.reset(token)
