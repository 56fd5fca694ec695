"""A call on its one way through the host: the gate, the approvals and the journal share it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from delf_engine.toolset import BoundAction


@dataclass(slots=True)
class Call:
    """A call that was found and whose arguments fit.

    Args:
        number: Its number in the task.
        bound: The action.
        arguments: Its validated arguments; an edit changes them and the digest.
        description: The script's ``desc=``.
        digest: What identifies it.
        alone: The script does nothing else before it is answered.
        line: The line of the script that it is written on.
        begun: The journal has its beginning, perhaps from before the task was resumed.
        again: It was begun before the task was resumed, and may have been made then.
        ended: Its end was recorded, or is being recorded.
        given_up: Its script does not wait for it any more.
        basis: What the preview was made from that a person has seen and approved.
        files: The content of the task's files that the call has read so far, its check included,
            by name. A file is read once, so what is used is what a person was asked about.
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
    given_up: bool = False
    basis: str | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    absent: set[str] = field(default_factory=set[str])

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
