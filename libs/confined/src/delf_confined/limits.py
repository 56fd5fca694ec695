"""``Limits``: the resources of one call in a child process. Standard library only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources of one call.

    Args:
        seconds: The maximum number of seconds of the call.
        memory: The maximum number of bytes of memory.
        answer: The maximum number of bytes of its result.
        scratch: A writable folder, if any.
        file_bytes: The maximum number of bytes of each file in that folder.
        writable: The user's folders in which the call may write, such as for a database.
        hint: A hint for people if the limits are exceeded.
    """

    seconds: float = 30.0
    memory: int = 1_000_000_000
    answer: int = 128 * 1024 * 1024
    scratch: str | None = None
    file_bytes: int = 0
    writable: tuple[str, ...] = ()
    hint: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, for the wire."""
        return asdict(self)
