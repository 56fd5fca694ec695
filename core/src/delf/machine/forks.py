"""Objects that a forked process must not share with its parent.

A forked process has a copy of all objects, but none of its parent's threads: an event loop in a
thread does not run any more, a pool of threads does no work, and a lock that a thread held is never
released. The child processes, sockets and folders of the objects are still the parent's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol


class ResetsAfterFork(Protocol):
    """An object with state that a forked process cannot use."""

    def reset_after_fork(self) -> None:
        """Replace locks, and drop threads, connections and child processes of the parent."""
        ...


_objects: Final[weakref.WeakSet[ResetsAfterFork]] = weakref.WeakSet()
# In a forked process, the state that its objects had in the parent. This list keeps the state
# alive, because deleting the state could close the parent's connections.
_left_to_parent: Final[list[dict[str, Any]]] = []


def reset_in_forks(item: ResetsAfterFork) -> None:
    """Call ``item.reset_after_fork`` at the start of each process that is forked from now on."""
    _objects.add(item)


def _reset_all() -> None:
    for item in list(_objects):
        _left_to_parent.append(dict(vars(item)))
        item.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)


def finalize_in_owner(
    item: object, clean_up: Callable[..., object], *args: Any
) -> weakref.finalize[..., Any]:
    """Clean up when an object is deleted, or at the exit of the process that made the object.

    With ``weakref.finalize`` alone, a forked process would clean up what belongs to its parent.

    Args:
        item: The object.
        clean_up: The function that cleans up.
        args: The arguments of the function.
    """
    return weakref.finalize(item, _call_in_process, os.getpid(), clean_up, args)


def _call_in_process(pid: int, function: Callable[..., object], args: tuple[Any, ...]) -> None:
    if os.getpid() == pid:
        function(*args)


class TemporaryFolder:
    """A private folder that is removed with the object, but not by a forked process.

    Args:
        prefix: The beginning of the folder's name.
        parent: The folder to create the folder in; the folder for temporary files when omitted.
    """

    def __init__(self, prefix: str, parent: str | None = None) -> None:
        self.name = tempfile.mkdtemp(prefix=prefix, dir=parent)
        """The path of the folder."""
        ignore_errors = True
        self.remove = finalize_in_owner(self, shutil.rmtree, self.name, ignore_errors)
        """Remove the folder. Idempotent."""
