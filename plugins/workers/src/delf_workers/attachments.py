"""Files passed to a worker: found, checked and copied."""

from __future__ import annotations

import mimetypes
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from delf import CallContext
from delf.errors import ToolRefusedError
from delf.machine.own_files import make_private_folder
from delf_workers.definition import WorkerDefinition


@dataclass(frozen=True, kw_only=True)
class ReadableFile:
    """A file that can be passed to a worker.

    Args:
        name: The file's name, without folders.
        size: The size in bytes.
        read: Returns the content; called in a thread.
        asks: The reason that reading needs approval; None if it needs none.
    """

    name: str
    size: int
    read: Callable[[], bytes] = field(repr=False)
    asks: str | None = None


@runtime_checkable
class SupportsFiles(Protocol):
    """A connection with files that scripts can pass to a worker by path."""

    def readable(self, path: str) -> ReadableFile | None:
        """Return a file; called in a thread.

        Args:
            path: The path in the form of the connection's actions.

        Returns:
            An object like :class:`ReadableFile`; None if the path does not belong to this
            connection.

        Raises:
            ToolRefusedError: If reading is not allowed.
            ToolExecutionError: If reading fails.
        """
        ...


@dataclass(frozen=True)
class Attached:
    """A file that a call gives to a worker."""

    path: str
    file: ReadableFile

    def __str__(self) -> str:
        kind = mimetypes.guess_type(self.file.name)[0] or "unknown type"
        return f"{self.path}, {self.file.size:,} bytes, {kind}"


def find(context: CallContext, paths: Sequence[str]) -> list[Attached]:
    """Return the calling task's files by their names in scripts.

    Args:
        context: The task: its input and output files, and connections that have files.
        paths: Names, or paths as ``papers/a.pdf``.

    Raises:
        ToolRefusedError: If a file does not exist or must not be read.
    """
    return [Attached(path, _find(context, path)) for path in dict.fromkeys(paths)]


def _find(context: CallContext, path: str) -> ReadableFile:
    """Return a file of the task or of a connection; raise ToolRefusedError for an unknown path."""
    own = {**context.input_files, **context.output_files}
    if path in own:
        found = own[path]
        return ReadableFile(name=found.name, size=found.stat().st_size, read=found.read_bytes)
    for connection in context.tools.values():
        if isinstance(connection, SupportsFiles):
            file = connection.readable(path)
            if file is not None:
                return file
    raise ToolRefusedError(
        f"there is no file {path[:200]!r}. Files of the task: {', '.join(own) or 'none'}; files of "
        "a connection are named as its own actions name them"
    )


def check(worker: WorkerDefinition, files: Sequence[Attached]) -> None:
    """Raise for files outside of the worker's policy.

    Raises:
        ToolRefusedError: If a file is not allowed; the error lists the allowed files.
    """
    policy = worker.attachments
    total = sum(item.file.size for item in files)
    if len(files) > policy.max_count:
        raise ToolRefusedError(
            f"worker {worker.name!r} takes at most {policy.max_count} attachments, "
            f"{len(files)} were given"
        )
    if total > policy.max_total_bytes:
        raise ToolRefusedError(
            f"worker {worker.name!r} takes attachments of at most {policy.max_total_bytes:,} bytes "
            f"together, these have {total:,}"
        )
    for item in files:
        if policy.suffixes and not item.file.name.lower().endswith(policy.suffixes):
            raise ToolRefusedError(
                f"worker {worker.name!r} does not take {item.path!r}. It takes: "
                f"{', '.join(policy.suffixes)}"
            )
        if policy.denied_suffixes and item.file.name.lower().endswith(policy.denied_suffixes):
            raise ToolRefusedError(
                f"worker {worker.name!r} does not take {item.path!r}: none of "
                f"{', '.join(policy.denied_suffixes)}"
            )


def freeze(context: CallContext, worker: WorkerDefinition, files: Sequence[Attached]) -> None:
    """Read files before approval, so that the worker gets the approved content.

    Raises:
        ToolRefusedError: If one is too large, or must not be read.
    """
    for item in files:
        context.read_file(item.path, worker.attachments.max_total_bytes, read=item.file.read)


def copy_to(folder: Path, files: Sequence[Attached], most: int, context: CallContext) -> list[Path]:
    """Copy files for the worker's scripts, keeping copies of an interrupted call.

    Args:
        folder: The target folder, created for the user only.
        files: The files.
        most: The maximum number of bytes of all files together.
        context: The call, which has already read the files if a person was asked.

    Raises:
        ToolRefusedError: If the files have grown beyond the limit.
    """
    if folder.is_dir():
        return sorted(folder.iterdir())
    building = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    make_private_folder(building.parent)
    building.mkdir(mode=0o700)
    remaining_bytes = most
    for number, item in enumerate(files, 1):
        content = context.read_file(item.path, most, read=item.file.read)
        remaining_bytes -= len(content)
        if remaining_bytes < 0:
            raise ToolRefusedError(f"{item.path!r} has grown since it was looked at")
        path = building / item.file.name
        if path.exists():
            path = path.with_name(f"{path.stem}-{number}{path.suffix}")
        path.write_bytes(content)
    building.rename(folder)
    return sorted(folder.iterdir())
