"""Copies of what files held before a task changed them, and the way back."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from platformdirs import user_data_path

from delf import CallContext
from delf.errors import DelfError, ToolExecutionError
from delf.events import ChangeKept, Event
from delf_filesystem.beneath import folder_beneath
from delf_filesystem.changes import Change
from delf_filesystem.roots import Place, reading, root_of
from delf_filesystem.settings import RootSettings

KIND: Final = "file"
KEPT_SECONDS: Final = 30 * 86_400
_PIECE: Final = 1_000_000


def folder() -> Path:
    """Return the folder of copies, named by their content; for the user alone."""
    return user_data_path("delf", appauthor=False) / "filesystem" / "copies"


def keep(change: Change, context: CallContext | None) -> None:
    """Keep what a file holds, and write into the journal what is about to become of it.

    Args:
        change: What is about to be done.
        context: The task; without one nothing is kept.
    """
    place = change.place
    if context is None or not place.settings.undo:
        return
    before, missing = _kept(place), 0
    if before is None:
        missing = _missing_folders(place)
    after = hashlib.sha256()
    for part in change.parts:
        after.update(part)
    data = {
        "name": place.name,
        "root": os.path.abspath(place.settings.root),  # noqa: PTH100 - no link is followed
        "path": "/".join(place.parts),
        "before": before,
        "after": after.hexdigest(),
        "made": missing,
    }
    context.keep_change(KIND, data)


def _kept(place: Place) -> str | None:
    """The digest of a file's content, of which there is a copy then; None where it is new."""
    try:
        with reading(place) as file:
            return _copy(file)
    except ToolExecutionError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOENT:
            return None
        raise


def _copy(file: BinaryIO) -> str:
    home = folder()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, temporary = hashlib.sha256(), home / f".{os.urandom(8).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as copy:
            while piece := file.read(_PIECE):
                digest.update(piece)
                copy.write(piece)
        temporary.replace(home / digest.hexdigest())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return digest.hexdigest()


def _missing_folders(place: Place) -> int:
    """Count the missing folders above a new file."""
    with root_of(place) as root:
        for missing in range(len(place.parts)):
            try:
                with folder_beneath(root, place.parts[: len(place.parts) - 1 - missing]):
                    return missing
            except FileNotFoundError:
                continue
            except OSError:
                return 0  # the write itself will say what is wrong
    return 0


def prune(now: float | None = None) -> int:
    """Forget copies that are older than 30 days.

    Args:
        now: Unix time.

    Returns:
        How many went.
    """
    limit, gone = (time.time() if now is None else now) - KEPT_SECONDS, 0
    for copy in folder().glob("*"):
        if copy.stat().st_mtime < limit:
            copy.unlink(missing_ok=True)
            gone += 1
    return gone


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """A file that a task changed, and what can be done about it.

    Args:
        place: Which.
        before: The digest of what it held; None where it was new.
        made: How many folders were made for it.
        problem: Why it is left as it is; None where it can be given back.
        done: It is as it was already.
    """

    place: Place
    before: str | None
    made: int
    problem: str | None = None
    done: bool = False

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.place}: left as it is: {self.problem}"
        if self.done:
            return f"{self.place}: is as it was"
        return f"{self.place}: {'removed' if self.before is None else 'as it was before'}"

    def undo(self) -> None:
        """Give it back.

        Raises:
            DelfError: When that does not work.
        """
        if self.before is None:
            self._remove()
            return
        content = (folder() / self.before).read_bytes()
        Change(self.place, None, (content,)).write()

    def _remove(self) -> None:
        *above, name = self.place.parts
        with root_of(self.place) as root:
            with folder_beneath(root, tuple(above)) as inside:
                os.unlink(name, dir_fd=inside)
            for _ in range(self.made):
                *upper, last = above
                with folder_beneath(root, tuple(upper)) as inside:
                    try:
                        os.rmdir(last, dir_fd=inside)
                    except OSError:  # somebody put something into it
                        return
                above = upper


def plan(events: Iterable[Event]) -> list[Undoing]:
    """List a task's changes by its events, and those that can be undone.

    Args:
        events: Of the task and its children, in their order.
    """
    changes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in events:
        if isinstance(event, ChangeKept) and event.what == KIND:
            data = dict(event.data)
            changes.setdefault((data["root"], data["path"]), []).append(data)
    return [_planned(some) for some in changes.values()]


def _planned(changes: Sequence[dict[str, Any]]) -> Undoing:
    first = changes[0]
    settings = RootSettings(root=first["root"], mode="rw", hidden=True)
    place = Place(first["name"], settings, tuple(first["path"].split("/")))
    before: str | None = first["before"]
    problem = None
    try:
        present = _present(place)
    except DelfError as error:
        present, problem = None, error.message
    done = problem is None and present == before
    if problem is None and not done and present not in {change["after"] for change in changes}:
        problem = "it was removed since" if present is None else "it has changed since"
    if problem is None and before is not None and not done and not (folder() / before).is_file():
        problem = "its copy is gone: copies are kept for 30 days"
    return Undoing(place=place, before=before, made=first["made"], problem=problem, done=done)


def _present(place: Place) -> str | None:
    """The digest of what a file holds; None where there is none."""
    digest = hashlib.sha256()
    try:
        with reading(place) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except ToolExecutionError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOENT:
            return None
        raise
    return digest.hexdigest()
