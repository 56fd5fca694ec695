"""Output files: one folder for each task, created with the first file."""

from __future__ import annotations

import asyncio
import errno
import filecmp
import logging
import math
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError, DelfError
from delf.events import Event, FileWritten
from delf.machine.filenames import check_file_name
from delf.machine.folders import expand_home
from delf.values.encoding import MAX_VALUES, loads
from delf.values.sizes import has_too_many_values
from delf_engine.formats import Formats
from delf_engine.journal.log import TaskLog
from delf_engine.retention import OUTPUT_PREFIX
from delf_engine.views.copies import copied_event_count

_log = logging.getLogger(__name__)
MAX_TOOL_FILE_BYTES: Final = 200 * 1024 * 1024
"""The maximum total size, in bytes, of the files that one task's tools write.

Files that scripts write do not count; for these, the sandbox has limits of its own.
"""
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


class OutputFolder:
    """A folder for a task's output files.

    A task can overwrite its own files. A file that existed before the task is never changed: the
    task's file gets a number instead, such as ``report-2.csv``.

    Args:
        folder: The output folder; a new temporary folder for each task when None.
        file_names: For a resumed task, the absolute paths of the files that it wrote before, by
            name.
        since: For a resumed task, the Unix time of its start. An existing file that is newer and
            has the same content also counts as the task's own, because the task may have died
            before it recorded the file.
    """

    def __init__(
        self,
        folder: str | None,
        file_names: Mapping[str, str] | None = None,
        since: float = math.inf,
    ) -> None:
        self._folder = expand_home(folder).resolve() if folder is not None else None
        self._since = since
        self.files: dict[str, str] = dict(file_names or {})

    def write(self, name: str, data: bytes) -> str:
        """Write a file atomically.

        Args:
            name: A relative name.
            data: The content.

        Returns:
            The absolute path.

        Raises:
            ValueError: If the name leads out of the folder.
            OSError: If the file cannot be written.
        """
        name = check_file_name(name)
        existing_path = self.files.get(name)
        file_name = _replace_unsupported_characters(name)
        parent = self._parent_of(file_name, existing_path)
        parent.mkdir(parents=True, exist_ok=True)
        temporary = parent / f".delf-{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:  # unlike tempfile, this respects the umask
                file.write(data)
            path = self._put(temporary, parent / Path(file_name).name, existing_path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.files[name] = str(path)
        return str(path)

    def _parent_of(self, name: str, existing_path: str | None) -> Path:
        """Return the folder for a file; create a temporary output folder if none is configured.

        Args:
            name: The relative name.
            existing_path: The path at which the task has already written this file, if any.

        Raises:
            ValueError: If the name or a link leads out of the output folder.
        """
        if existing_path is not None:
            # The folder of the earlier file must not have become a link.
            parent = Path(existing_path).parent
            is_inside = parent.resolve() == parent
        else:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix=OUTPUT_PREFIX)).resolve()
            parent = (self._folder / name).parent.resolve()
            is_inside = parent.is_relative_to(self._folder)
        if not is_inside:
            raise ValueError(f"{name!r} leaves the output folder")
        return parent

    def _put(self, temporary: Path, path: Path, existing_path: str | None) -> Path:
        """Move a written file to its final path, or to ``name-2.txt`` if the path is taken.

        Args:
            temporary: The written file.
            path: The wanted path.
            existing_path: The path at which the task has already written this file, if any. The
                file there is replaced.

        Returns:
            The path of the moved file.
        """
        if existing_path is not None:
            return temporary.replace(existing_path)
        # On some systems, paths that differ by case only are one file.
        used_paths = {used_path.casefold() for used_path in self.files.values()}
        candidate = path
        number = 1
        while str(candidate).casefold() in used_paths or not self._move(temporary, candidate):
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        return candidate

    def _move(self, temporary: Path, path: Path) -> bool:
        """Move a written file to a path; return False if another file is there."""
        try:
            _link(temporary, path)
        except FileExistsError:
            # A resumed task writes its files again. The existing file is the task's own if it is
            # equal and was written after the task's start.
            if not _is_newer_and_equal(path, temporary, self._since):
                return False
            temporary.unlink()
        return True


def _replace_unsupported_characters(name: str) -> str:
    """Replace the characters of a name that the file system's encoding does not support."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        return name.encode(encoding, "replace").decode(encoding).replace("?", "_")
    return name


def _is_newer_and_equal(existing: Path, temporary: Path, since: float) -> bool:
    """Return True if an existing file equals a temporary file, and is not older than ``since``."""
    try:
        # A task writes no links: a link was put there meanwhile, and its target may change.
        if existing.is_symlink() or existing.stat().st_mtime < since:
            return False
        return filecmp.cmp(existing, temporary, shallow=False)
    except OSError:
        return False


def _link(temporary: Path, path: Path) -> None:
    """Rename a file without overwriting an existing file.

    Raises:
        FileExistsError: If the target exists.
    """
    try:
        # os.link() fails if the name exists, while a rename would overwrite the file.
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # On a file system without links, reserve the name with an empty file, and replace that
        # file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        temporary.replace(path)
    else:
        temporary.unlink()


def output_folder(folder: str | None, past: Sequence[Event]) -> OutputFolder:
    """Return the output folder of a task.

    Args:
        folder: The output folder; a new temporary folder for each task when None.
        past: The events of a resumed task.
    """
    written = {event.label: event.path for event in past if isinstance(event, FileWritten)}
    own_events = past[copied_event_count(past) :]  # a fork begins with events of another task
    beginning = own_events[0].at if own_events else math.inf
    return OutputFolder(folder, written, since=beginning)


class OutputFiles:
    """Writes a task's output files one after another, and collects failures.

    Args:
        folder: The output folder.
        formats: The formats that write rows.
        log: The task's log.
    """

    def __init__(self, folder: OutputFolder, formats: Formats, log: TaskLog) -> None:
        self._folder = folder
        self._formats = formats
        self._log = log
        self._write_lock = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()
        self._problems: list[str] = []
        self._tool_file_bytes = 0

    @property
    def files(self) -> dict[str, str]:
        """The written files: absolute paths by name."""
        return self._folder.files

    def start_writing(self, name: str, data: bytes, *, is_rows: bool = False) -> None:
        """Write a file in the background.

        Args:
            name: A relative name.
            data: The content; or rows as tagged JSON, to be written in the format of the suffix.
            is_rows: Whether ``data`` are rows.
        """
        task = asyncio.ensure_future(self._write(name, data, is_rows))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def start_writing_tool_file(self, name: str, data: bytes) -> None:
        """Write a file of a tool in the background.

        Args:
            name: A relative name.
            data: The content; the total size of tools' files is limited.
        """
        if self._tool_file_bytes + len(data) > MAX_TOOL_FILE_BYTES:
            self._problems.append(
                f"{name!r} is not kept: the files of calls have more than "
                f"{MAX_TOOL_FILE_BYTES:,} bytes"
            )
            return
        self._tool_file_bytes += len(data)
        self.start_writing(name, data)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until every queued file is written or has failed.

        Args:
            timeout: Seconds; unfinished files are abandoned then.
        """
        if self._writing:
            # A copy, because each finished write removes itself from the set.
            _, pending_writes = await asyncio.wait(set(self._writing), timeout=timeout)
            for task in pending_writes:
                task.cancel()

    async def failures(self) -> list[str]:
        """Wait for all files; return the failures since the last call of this method."""
        await self.wait()
        problems, self._problems = self._problems, []
        return problems

    async def _write(self, name: str, data: bytes, is_rows: bool) -> None:
        """Redact and write a file; a failure is collected for :meth:`failures`."""
        # Write one file at a time: if a script writes a name twice, the later text must stay.
        async with self._write_lock:
            try:
                if self._log.redactor.knows_any:
                    name, data = await asyncio.to_thread(self._redacted, name, data)
                content = await self._format_rows(name, data) if is_rows else data
                path = await asyncio.to_thread(self._folder.write, name, content)
                await self._log.record(FileWritten, label=name, path=path, size=len(content))
            except DelfError as error:
                self._problems.append(f"{name!r}: {error.for_model()}")
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                self._problems.append(f"{name!r} cannot be written: {reason}")
            except Exception as error:
                message = f"the output file {name!r} failed"
                self._log.redactor.log_failure(_log, message, error)
                self._problems.append(f"{name!r} cannot be made: {type(error).__name__}: {error}")

    def _redacted(self, name: str, data: bytes) -> tuple[str, bytes]:
        """Redact a file's name, and its content if that is text: other content would break."""
        try:
            data.decode()
        except UnicodeDecodeError:
            return self._log.redactor.redact_text(name), data
        return self._log.redactor.redact_text(name), self._log.redactor.redact_value(data)

    async def _format_rows(self, name: str, data: bytes) -> bytes:
        parts = await asyncio.to_thread(_rows_of, data)
        return await self._formats.writer(Path(name).suffix.lower()).write(parts)


def _rows_of(data: bytes) -> Mapping[str, Sequence[Sequence[Any]]]:
    """Decode and validate rows from a script.

    Raises:
        ValueError: If the data are not rows, or too large.
    """
    if has_too_many_values(data):
        raise ValueError(f"its rows have more than {MAX_VALUES:,} values")
    value = loads(data)
    if isinstance(value, dict):
        tables = cast("dict[Any, Any]", value)
        if all(isinstance(name, str) and _is_grid(rows) for name, rows in tables.items()):
            return tables
    raise ValueError("its rows are malformed")


def _is_grid(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, list) for row in cast("list[Any]", rows))


def check_output_folder(folder: str | None) -> None:
    """Check before the first task that output files can be written.

    Raises:
        ConfigurationError: If the folder is not writable.
    """
    if folder is None:
        return
    try:
        path = expand_home(folder).resolve()
        # A folder that does not exist yet is created with the first file, so its parent decides.
        existing = next(each for each in (path, *path.parents) if each.exists())
        is_folder = existing.is_dir()
        is_usable = is_folder and os.access(existing, os.W_OK | os.X_OK)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"the output folder {folder!r} cannot be used: {error}") from error
    if not is_usable:
        problem = "may not be written to" if is_folder else "is not a folder"
        raise ConfigurationError(
            f"the output folder {folder!r} cannot be used: {existing} {problem}"
        )
