"""``Filesystem``: scripts' access to files under named folders."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from delf import CallContext, Connection, action
from delf.errors import ConnectionFileNotFoundError, ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf.protocols.connection import (
    Allowed,
    NeedsApproval,
    ProposedCall,
    Refused,
    Verdict,
)
from delf.tools.action import Action, actions_of
from delf.tools.permissions import is_allowed, needs_confirmation
from delf_confined.readers import Readers
from delf_filesystem.changes import Change, basis_of, preview_of
from delf_filesystem.roots import Place, Roots, is_present, reading
from delf_filesystem.search import FileInfo, Glob, Match, info, lines_with, walk
from delf_filesystem.settings import FilesystemSettings

_CHUNK_BYTES: Final = 1_000_000
_BINARY_CHECK_BYTES: Final = 8192
# The group name, for ``allow`` and ``confirm``, of the actions that read one file.
_READING: Final = "reading"
# The maximum number of unreadable files that a search names.
_MAX_NAMED_FILES: Final = 10
_WRITE_ACTIONS: Final = ("write_file", "edit_file", "replace")


@dataclass(frozen=True, kw_only=True)
class ReadableFile:
    """A file of this connection that actions of other connections may read.

    Args:
        name: The file's name.
        size: The size in bytes.
        read: Returns the content of the file.
        approval_reason: The reason why reading needs approval; None if reading needs none.
    """

    name: str
    size: int
    read: Callable[[], bytes] = field(repr=False)
    approval_reason: str | None = None


class Filesystem(Connection[FilesystemSettings]):
    """Files under named folders: ``root/folder/file``. No other file can be reached.

    Args:
        roots: A mapping from root name to the path of a folder, which scripts may read, or to
            settings such as ``{"root": …, "mode": "rw"}``.

    Raises:
        ConnectionFileNotFoundError: If a folder does not exist.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        # Each root's settings say which calls need approval. `confirm` can name further actions
        # that need approval; by default there are none.
        if options.get("confirm") is None:
            options["confirm"] = False
        super().__init__(**options)
        self._roots = Roots(self.settings.roots)
        self._readers = Readers()
        for name, root in self.settings.roots.items():
            folder = Path(root.root)
            if root.create and root.mode == "rw":
                with contextlib.suppress(OSError):  # a non-folder is reported below
                    folder.mkdir(parents=True, exist_ok=True)
            if not folder.is_dir():
                raise ConnectionFileNotFoundError(
                    f"the root {name!r} of {self.name} is not a folder: {root.root}",
                    hint='make it, or let delf: {root = "…", mode = "rw", create = true}',
                )

    async def aclose(self) -> None:
        """Stop the child processes that read documents."""
        await self._readers.aclose()

    async def context(self, task: str) -> str | None:
        """Return a list of the roots, for the prompt."""
        lines = [f"{self.name}: paths begin with one of these folders:"]
        can_write = any(item.effect != "read" for item in self._allowed)
        for place in self._roots:
            settings = place.settings
            allowed_suffixes = f", only {' '.join(settings.suffixes)}" if settings.suffixes else ""
            mode = "read and write" if settings.mode == "rw" and can_write else "read only"
            lines.append(f"- {place.name}/ ({mode}{allowed_suffixes})")
        return "\n".join(lines)

    async def check(self, call: ProposedCall) -> Verdict:
        """Check a call by the settings of its roots, such as ``write_approval``."""
        try:
            if call.action not in _WRITE_ACTIONS:  # decided without reading files
                return self._check_call(call.action, call.arguments)
            return await asyncio.to_thread(self._check_call, call.action, call.arguments)
        except ToolRefusedError as error:
            return Refused.of(error)

    @property
    def _allowed(self) -> list[Action]:
        return [
            item for item in actions_of(type(self), self, self.name) if is_allowed(self.allow, item)
        ]

    def readable_file(self, path: str) -> ReadableFile | None:
        """Return a file for another connection, such as ``workers``, to read.

        Args:
            path: The path with its root.

        Returns:
            None if the path has no known root.

        Raises:
            ToolRefusedError: If the file may not be read.
            ToolExecutionError: If the file cannot be read.
        """
        if not self._roots.has_root_of(path):
            return None
        place = self._roots.file(path)
        reading_actions = [item for item in self._allowed if item.permission == _READING]
        if not reading_actions:
            raise ToolRefusedError(
                f"{self.name} may not read files here",
                hint=f"the setting allow of {self.name} names the allowed actions",
            )
        needs_approval = place.settings.read_approval or any(
            needs_confirmation(self.confirm, item) for item in reading_actions
        )
        reason = f"{place.name} needs approval before each read" if needs_approval else None
        with reading(place) as file:
            size = os.fstat(file.fileno()).st_size
        return ReadableFile(
            name=place.parts[-1],
            size=size,
            read=lambda: self.read_bytes(path),
            approval_reason=reason,
        )

    def _check_call(self, name: str, arguments: Mapping[str, Any]) -> Verdict:
        """Check a call by the approval settings of the root folders that the call uses.

        If a write call may need approval, the verdict has a preview of its changes for the person
        who decides.
        """
        if name not in _WRITE_ACTIONS:
            places = self._places(str(arguments.get("path", ".")))
            asking_roots = [place.name for place in places if place.settings.read_approval]
            if asking_roots:
                return NeedsApproval(reason=f"{asking_roots[0]} needs approval before each read")
            return Allowed()
        if not self._writes_may_need_approval():
            return Allowed()  # nobody sees a preview, so do not read all files for one
        changes = list(self._changes(name, arguments))
        preview = preview_of(changes)
        basis = basis_of(changes)  # the digests of the files: the approval ends if a file changes
        asking_roots = [c.place.name for c in changes if c.place.settings.write_approval]
        if asking_roots:
            reason = f"{asking_roots[0]} asks before each write"
            return NeedsApproval(reason=reason, preview=preview, basis=basis)
        return Allowed(preview=preview, basis=basis)

    def _writes_may_need_approval(self) -> bool:
        """Return True if ``confirm`` or a root's ``write_approval`` may require approval."""
        writable = (place.settings for place in self._roots if place.settings.mode == "rw")
        return self.confirm is not False or any(root.write_approval for root in writable)

    @action(_READING, effect="read")
    def read_file(self, path: str, start: int = 1, lines: int | None = None) -> str:
        """The text of a file.

        Args:
            path: The path, such as ``notes/2024/plan.md``.
            start: The first line to read, from 1.
            lines: The number of lines; all when None. A large file is read in several calls.
        """
        place = self._roots.file(path)
        if start < 1 or (lines is not None and lines < 0):
            raise ToolRefusedError("start counts from 1, and lines is not negative")
        with reading(place) as file:
            if start == 1 and lines is None:
                return _text(place, _read_whole(place, file))
            return _text(place, _read_lines(place, file, start, lines))

    @action(_READING, effect="read")
    async def read_document(self, path: str, context: CallContext | None = None) -> str:
        """A PDF, DOCX, HTML or other document as Markdown."""
        from delf_filesystem.documents import as_markdown

        place, content = await asyncio.to_thread(self._document, path)
        # Several tasks share the child processes that read documents.
        task_id = "" if context is None else context.task_id
        return await as_markdown(self._readers, place, content, task_id)

    def _document(self, path: str) -> tuple[Place, bytes]:
        place = self._roots.file(path)
        with reading(place) as file:
            return place, _read_whole(place, file)

    @action(_READING, effect="read")
    def read_bytes(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or a part of them."""
        place = self._roots.file(path)
        if offset < 0 or (length is not None and length < 0):
            raise ToolRefusedError("offset and length must not be negative")
        with reading(place) as file:
            file.seek(offset)
            max_bytes = place.settings.max_file_bytes
            requested_bytes = max_bytes + 1  # enough to notice that the content is too long
            if length is not None:
                requested_bytes = min(length, requested_bytes)
            content = file.read(requested_bytes)
            if len(content) > max_bytes:
                raise _too_large(place, "read", "read_bytes(path, offset, length) reads a part")
            return content

    @action(effect="read")
    def list_files(
        self, path: str = ".", pattern: str = "*", limit: int = 10_000
    ) -> list[FileInfo]:
        """The files under a folder and its subfolders, in the order of their names.

        Args:
            path: A root, or a folder under a root; "." for all roots.
            pattern: The pattern of the paths below ``path``: ``*.md`` (in subfolders, too) or
                ``2024/**/*.pdf``.
            limit: The maximum number of files; more files are an error.
        """
        files: list[FileInfo] = []
        for place, status in self._files(path, pattern):
            if len(files) == limit:
                raise ToolExecutionError(
                    f"more than {limit} files under {path!r}: name a folder or a pattern, or "
                    "give a higher limit"
                )
            files.append(info(place, status))
        return files

    @action(effect="read")
    def find(
        self,
        text: str,
        path: str = ".",
        pattern: str = "*",
        ignore_case: bool = False,
        limit: int = 1000,
    ) -> list[Match]:
        """The first ``limit`` lines with a text, in the files under a folder.

        Args:
            text: The text within a line; no regular expression.
            path: A root, a folder, or one file; "." for all roots.
            pattern: The pattern of the files' paths, such as ``*.py``.
            ignore_case: Whether ``A`` and ``a`` are the same.
            limit: The maximum number of lines.
        """
        if not text or "\n" in text:
            raise ToolRefusedError("text must be part of one line, and not empty")
        matches: list[Match] = []
        errors: list[ToolExecutionError] = []
        was_any_file_read = False
        for place, status in self._files(path, pattern):
            if status.st_nlink > 1:  # a hard link may lead to a file outside of the root
                continue
            lines = lines_with(place, text.encode(), ignore_case=ignore_case)
            try:
                remaining = max(limit - len(matches), 0)  # islice() refuses a negative limit
                matches += itertools.islice(lines, remaining)
                was_any_file_read = True
            except ToolExecutionError as error:
                errors.append(error)
            if len(matches) >= limit:
                break
        # If no file could be read, "no matches" would be a wrong answer.
        if errors and not was_any_file_read:
            raise errors[0]
        _note_errors(errors)
        return matches

    @action(effect="write", trust="own", sinks=["path"])
    def write_file(
        self, path: str, content: str | bytes, *, context: CallContext | None = None
    ) -> int:
        """Write a whole file; an existing file of that name is replaced.

        Args:
            path: The path, such as ``output/report.md``; missing folders are created.
            content: The whole content.
            context: The context of the call, which is passed by delf, not by the script.

        Returns:
            The size in bytes.
        """
        (change,) = self._approved_changes(
            "write_file", {"path": path, "content": content}, context
        )
        return change.write()

    @action(effect="write", trust="own", sinks=["path"])
    def edit_file(
        self, path: str, old_text: str, new_text: str, *, context: CallContext | None = None
    ) -> None:
        """Replace a text that occurs exactly once in a file.

        Args:
            path: The file.
            old_text: The present text, with enough of the text around it to occur only once.
            new_text: The new text.
            context: The context of the call, which is passed by delf, not by the script.
        """
        arguments = {"path": path, "old_text": old_text, "new_text": new_text}
        for change in self._approved_changes("edit_file", arguments, context):
            change.write()

    @action(effect="write", sinks=["path", "pattern"])
    def replace(
        self,
        old_text: str,
        new_text: str,
        path: str = ".",
        pattern: str = "*",
        *,
        context: CallContext | None = None,
    ) -> dict[str, int]:
        """Replace every occurrence of a text in the files under a folder.

        Args:
            old_text: The present text; no regular expression.
            new_text: The new text.
            path: A root, a folder, or one file; "." for all writable roots.
            pattern: The pattern of the files' paths, such as ``*.md``.
            context: The context of the call, which is passed by delf, not by the script.

        Returns:
            A mapping from the path of a changed file to the number of occurrences.
        """
        arguments = {"old_text": old_text, "new_text": new_text, "path": path, "pattern": pattern}
        counts: dict[str, int] = {}
        for change in self._approved_changes("replace", arguments, context):
            change.write()
            occurrences = _pattern(old_text.encode()).findall(change.before or b"")
            counts[str(change.place)] = len(occurrences)
        return counts

    def _approved_changes(
        self, name: str, arguments: Mapping[str, Any], context: CallContext | None
    ) -> list[Change]:
        """Return the changes of a call, unless a file has changed since the approval.

        Raises:
            ToolExecutionError: If a file has changed since the approval.
        """
        changes = list(self._changes(name, arguments))
        approved = None if context is None else context.basis
        if approved is not None and approved != basis_of(changes):
            raise ToolExecutionError(
                "a file has changed since a person approved the write, so nothing was written. "
                f"Call {name} again to ask about the present file"
            )
        return changes

    def _changes(self, name: str, arguments: Mapping[str, Any]) -> Iterator[Change]:
        """Yield the changes that a write call would make to the files."""
        match name:
            case "write_file":
                yield self._prepare_write(str(arguments["path"]), arguments["content"])
            case "edit_file":
                old = str(arguments["old_text"]).encode()
                new = str(arguments["new_text"]).encode()
                yield self._edit_change(str(arguments["path"]), old, new)
            case _:  # replace
                old = str(arguments["old_text"]).encode()
                new = str(arguments["new_text"]).encode()
                if not old:
                    raise ToolRefusedError("old_text is empty")
                path = str(arguments.get("path", "."))
                pattern = str(arguments.get("pattern", "*"))
                for place in self._files_to_change(path, pattern):
                    change = self._replace_change(place, old, new)
                    if change is not None:
                        yield change

    def _prepare_write(self, path: str, content: str | bytes) -> Change:
        """Return the change that writes a file; the file keeps its byte order mark.

        Raises:
            ToolRefusedError: If the file may not be written, or becomes too large.
        """
        place = self._roots.file(path, write=True)
        data = content.encode() if isinstance(content, str) else content
        before, status_of_long_file = self._content_before(place)
        has_byte_order_mark = before is not None and before.startswith(codecs.BOM_UTF8)
        if has_byte_order_mark and isinstance(content, str):
            data = codecs.BOM_UTF8 + data.removeprefix(codecs.BOM_UTF8)
        if len(data) > place.settings.max_file_bytes:
            raise _too_large(place, "write", "write less, or several files")
        is_old_unreadable = before is None and is_present(place)
        return Change(place, before, (data,), is_old_unreadable, status_of_long_file)

    def _edit_change(self, path: str, old: bytes, new: bytes) -> Change:
        """Return the change that replaces the only occurrence of a text in a file."""
        place = self._roots.file(path, write=True)
        if not old:
            raise ToolRefusedError("old_text is empty; write_file writes a whole file")
        content = self._content(place)
        pattern = _pattern(old)
        occurrence = pattern.search(content)
        if occurrence is None:
            # If the file has another encoding, raise the error that says so.
            _check_encoding(place, content, old)
            raise ToolExecutionError(f"cannot edit {path!r}: old_text not found in file")
        _check_encoding(place, content, new)
        next_start = occurrence.start() + 1
        if occurrence[0].startswith(b"\r\n"):
            next_start += 1  # the pattern also matches the same occurrence without its CR
        if pattern.search(content, next_start):
            raise ToolExecutionError(
                f"cannot edit {path!r}: old_text appears more than once; include more of "
                "the text around it, or use replace"
            )
        view = memoryview(content)  # avoids copies of unchanged parts
        new_bytes = _LineEnds(new, content).replacement_for(occurrence)
        return Change(
            place, content, (view[: occurrence.start()], new_bytes, view[occurrence.end() :])
        )

    def _content(self, place: Place) -> bytes:
        with reading(place) as file:
            return _read_whole(place, file, "edit")

    def _replace_change(self, place: Place, old: bytes, new: bytes) -> Change | None:
        """Return the change that replaces a text in a file.

        None if the file is binary, or if it stays the same.
        """
        content = self._content(place)
        # Each replacement gets the line ends, CRLF or LF, of the text that it replaces.
        replacement_for = _LineEnds(new, content).replacement_for
        changed = _pattern(old).sub(replacement_for, content)
        is_binary = b"\0" in content[:_BINARY_CHECK_BYTES]
        if changed == content or is_binary:
            return None
        _check_encoding(place, content, new)
        return Change(place, content, (changed,))

    def _content_before(self, place: Place) -> tuple[bytes | None, os.stat_result | None]:
        """Return a file's content before its change; None if the file is missing or unreadable.

        For a file with more than ``max_file_bytes``, return the beginning and the file's status.
        """
        max_bytes = place.settings.max_file_bytes
        try:
            with reading(place) as file:
                content = file.read(max_bytes + 1)
                if len(content) > max_bytes:
                    return content[:max_bytes], os.fstat(file.fileno())
                return content, None
        except ToolExecutionError:
            return None, None

    def _files_to_change(self, path: str, pattern: str) -> Iterator[Place]:
        """Yield the files that a call of ``replace`` may change."""
        searches_all_roots = path == "."
        for place, status in self._files(path, pattern):
            is_read_only = place.settings.mode != "rw"
            if is_read_only and searches_all_roots:
                continue
            # Raises for a file that must not be changed, such as one in a read-only root that the
            # path names.
            self._roots.file(str(place), write=True)
            # A file with other hard links may have a name outside of the root, too.
            has_only_this_name = status.st_nlink == 1
            if has_only_this_name:
                yield place

    def _files(self, path: str, pattern: str) -> Iterator[tuple[Place, os.stat_result]]:
        for place in self._places(path):
            patterns = [pattern]
            # With the path ".", a pattern may begin with the name of a root: ``notes/*.md`` means
            # ``./*.md`` in the root ``notes``. Without ``./``, it would match in all subfolders.
            if path == "." and pattern.startswith(f"{place.name}/"):
                patterns.append(f".{pattern.removeprefix(place.name)}")
            yield from walk(place, Glob(*patterns))

    def _places(self, path: str) -> list[Place]:
        """Return the place of a path; for the path ``.``, return all roots."""
        return list(self._roots) if path == "." else [self._roots.place(path)]


def _too_large(place: Place, verb: str, advice: str) -> ToolExecutionError:
    max_bytes = place.settings.max_file_bytes
    return ToolExecutionError(
        f"cannot {verb} {str(place)!r}: file too large. Maximum: {max_bytes} bytes; {advice}"
    )


def _note_errors(errors: Sequence[ToolExecutionError]) -> None:
    """Add notes about the files that could not be read."""
    for error in errors[:_MAX_NAMED_FILES]:
        note(error.message)
    if len(errors) > _MAX_NAMED_FILES:
        note(f"{len(errors) - _MAX_NAMED_FILES} more files could not be read")


def _read_whole(place: Place, file: BinaryIO, verb: str = "read") -> bytes:
    content = file.read(place.settings.max_file_bytes + 1)
    if len(content) > place.settings.max_file_bytes:
        raise _too_large(place, verb, "read_file(path, start, lines) reads a part")
    return content


def _read_lines(place: Place, file: BinaryIO, start: int, lines: int | None) -> bytes:
    """Read ``lines`` lines of a file from line ``start``, in small pieces to limit the memory."""
    max_bytes = place.settings.max_file_bytes
    content: list[bytes] = []
    size = 0
    line_number = 1
    end = None if lines is None else start + lines
    while end is None or line_number < end:
        piece = file.readline(_CHUNK_BYTES)
        if not piece:
            break
        if line_number >= start:
            content.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise _too_large(place, "read", "ask for fewer lines")
        if piece.endswith(b"\n"):
            line_number += 1
    return b"".join(content)


def _text(place: Place, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ToolExecutionError(
            f"{str(place)!r} is not UTF-8 text; use read_document for a document, or "
            "read_bytes for the bytes of the file"
        ) from None


def _check_encoding(place: Place, content: bytes, text: bytes) -> None:
    """Raise if an edit would mix encodings; ASCII text is the same in most encodings.

    Args:
        place: The file.
        content: The content of the file.
        text: The new text, in UTF-8.
    """
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        is_binary = b"\0" in content[:_BINARY_CHECK_BYTES]  # such as a picture, or UTF-16
        if is_binary or not text.isascii():
            raise ToolExecutionError(
                f"cannot edit {str(place)!r}: it is not UTF-8 text",
                hint="read_bytes and write_file change it in its own encoding",
            ) from None


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """Return a pattern that finds a text; if the text has no CR, its newlines also match CRLF."""
    if b"\r" in text:
        return re.compile(re.escape(text))
    lines = map(re.escape, text.split(b"\n"))
    return re.compile(rb"\r?\n".join(lines))


class _LineEnds:
    """Writes a new text with the line ends of the text that it replaces.

    Args:
        new_text: The new text.
        file_content: The content of the file, whose line ends count if the replaced text has none.
    """

    def __init__(self, new_text: bytes, file_content: bytes) -> None:
        self._new_text = new_text
        # If the new text has CRs, the script has chosen the line ends.
        self._adapts_line_ends = b"\n" in new_text and b"\r" not in new_text
        self._crlf_text = new_text.replace(b"\n", b"\r\n")
        self._file_has_crlf = self._adapts_line_ends and _has_mostly_crlf(file_content)

    def replacement_for(self, occurrence: re.Match[bytes]) -> bytes:
        """Return the new text for one occurrence of the old text."""
        if not self._adapts_line_ends:
            return self._new_text
        old_text: bytes = occurrence[0]
        uses_crlf = _has_mostly_crlf(old_text) if b"\n" in old_text else self._file_has_crlf
        return self._crlf_text if uses_crlf else self._new_text


def _has_mostly_crlf(text: bytes) -> bool:
    """Return True if more lines of a text end in CRLF than in LF alone."""
    return 2 * text.count(b"\r\n") > text.count(b"\n")
