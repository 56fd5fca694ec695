"""A call on its way through the host, shared by gate, approvals and journal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from delf_engine.toolset import BoundAction


@dataclass(slots=True)
class Call:
    """A valid call of a known action.

    Args:
        number: Its number in the task.
        bound: The action.
        arguments: Its validated arguments; an edit changes them and the digest.
        description: The script's ``desc=``.
        digest: The identity of the call.
        alone: The script does nothing else before it is answered.
        line: The line of the script that it is written on.
        begun: The journal has its beginning, perhaps from before the task was resumed.
        again: Begun before the task was resumed, with unknown outcome.
        ended: Its end was recorded, or is being recorded.
        abandoned: Its script does not wait for it any more.
        basis: The basis of the preview that a person has approved.
        files: The content of the task's files that the call has read so far, its check included, by
            name. A file is read once, so that the call uses the content a person was asked about.
        edited: The names of the arguments that people have changed.
        absent: The texts in its arguments that named no file which could be read when a person
            was asked about it.
    """

    number: int
    bound: BoundAction
    arguments: dict[str, Any]
    description: str | None
    digest: str
    alone: bool = False
    line: int | None = None
    begun: bool = False
    again: bool = False
    ended: bool = False
    abandoned: bool = False
    basis: str | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    absent: set[str] = field(default_factory=set[str])
    edited: set[str] = field(default_factory=set[str])

    @property
    def files_digest(self) -> str | None:
        """SHA-256 over the names and the content of these files; None for none."""
        if not self.files:
            return None
        whole = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            whole.update(f"{name}\n".encode("utf-8", "surrogatepass"))
            whole.update(hashlib.sha256(data).digest())
        return whole.hexdigest()
