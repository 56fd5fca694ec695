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
from delf.members import ProtocolMeta
from delf_workers.definition import WorkerDefinition


@dataclass(frozen=True, kw_only=True)
class ReadableFile:
    """A file that can be attached to a worker's task.

    Args:
        name: The file's name, without folders.
        size: The size in bytes.
        read: Returns the content. Called in a thread.
        approval_reason: The reason why reading needs approval; None if reading needs none.
    """

    name: str
    size: int
    read: Callable[[], bytes] = field(repr=False)
    approval_reason: str | None = None


@runtime_checkable
class SupportsFiles(Protocol, metaclass=ProtocolMeta):
    """A connection whose files scripts can attach to a worker's task."""

    def readable_file(self, path: str) -> ReadableFile | None:
        """Return a file by its path. Called in a thread.

        Args:
            path: The path, as the connection's actions use it.

        Returns:
            An object like :class:`ReadableFile`; None if the path does not belong to this
            connection.

        Raises:
            ToolRefusedError: If reading is not allowed.
            ToolExecutionError: If reading fails.
        """
        ...


@dataclass(frozen=True)
class AttachedFile:
    """A file that is attached to a worker's task, with its path in the calling task."""

    path: str
    file: ReadableFile

    def __str__(self) -> str:
        kind = mimetypes.guess_type(self.file.name)[0] or "unknown type"
        return f"{self.path}, {self.file.size:,} bytes, {kind}"


def find(context: CallContext, paths: Sequence[str]) -> list[AttachedFile]:
    """Find the files to attach, among the task's files and those of its connections.

    Args:
        context: The context of the calling task.
        paths: Names of the task's files, or paths such as ``papers/a.pdf`` of a connection.

    Raises:
        ToolRefusedError: If a file does not exist or must not be read.
    """
    return [AttachedFile(path, _find(context, path)) for path in dict.fromkeys(paths)]


def _find(context: CallContext, path: str) -> ReadableFile:
    """Find a file of the task or of a connection.

    Raises:
        ToolRefusedError: If there is no such file.
    """
    task_files = {**context.input_files, **context.output_files}
    if path in task_files:
        file_path = task_files[path]
        size = file_path.stat().st_size
        return ReadableFile(name=file_path.name, size=size, read=file_path.read_bytes)
    for connection in context.tools.values():
        if isinstance(connection, SupportsFiles):
            file = connection.readable_file(path)
            if file is not None:
                return file
    raise ToolRefusedError(
        f"there is no file {path[:200]!r}. Files of the task: {', '.join(task_files) or 'none'}; "
        "files of a connection are named as its own actions name them"
    )


def check(worker: WorkerDefinition, files: Sequence[AttachedFile]) -> None:
    """Check files against the worker's limits for attachments.

    Raises:
        ToolRefusedError: If a file is not allowed. The message has the limits.
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
                f"worker {worker.name!r} does not take {item.path!r}. It refuses: "
                f"{', '.join(policy.denied_suffixes)}"
            )


def store_content(
    context: CallContext, worker: WorkerDefinition, files: Sequence[AttachedFile]
) -> None:
    """Read and store files before approval, so that the worker gets the approved content.

    Raises:
        ToolRefusedError: If a file is too large, or must not be read.
    """
    for item in files:
        # read_file() stores the content: later reads by this call return the stored content.
        context.read_file(item.path, worker.attachments.max_total_bytes, read=item.file.read)


def _free_path(path: Path, number: int) -> Path:
    """Return a path if it is free, else the path with the first free number from ``number`` on.

    For ``a.txt`` and 2, the result is the first free path of ``a.txt``, ``a-2.txt``, ``a-3.txt``, …
    """
    free_path = path
    while free_path.exists():
        free_path = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free_path


def copy_to(
    folder: Path, files: Sequence[AttachedFile], max_bytes: int, context: CallContext
) -> list[Path]:
    """Copy files for a worker, and return the paths of the copies.

    If the call is repeated after an interruption, the existing copies are used.

    Args:
        folder: The target folder, which only the user can access.
        files: The files.
        max_bytes: The maximum number of bytes of all files together.
        context: The context of the call, which has the content of approved files.

    Raises:
        ToolRefusedError: If the files have grown beyond the limit.
    """
    if folder.is_dir():
        return sorted(folder.iterdir())
    # Copy to another folder and rename it at the end, so that an interrupted call leaves no folder
    # with only some of the copies.
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private_folder(unfinished.parent)
    unfinished.mkdir(mode=0o700)
    try:
        remaining_bytes = max_bytes
        for position, item in enumerate(files, 1):
            content = context.read_file(item.path, max_bytes, read=item.file.read)
            remaining_bytes -= len(content)
            if remaining_bytes < 0:
                raise ToolRefusedError(f"{item.path!r} has grown since the call was checked")
            _free_path(unfinished / item.file.name, position).write_bytes(content)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # exists only after an error
    return sorted(folder.iterdir())
