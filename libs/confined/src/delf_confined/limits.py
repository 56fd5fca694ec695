"""``Limits``: the resources of one call in a child process. Standard library only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources of one call.

    Args:
        seconds: The most time that it runs.
        memory: The most bytes that it allocates.
        answer: The most bytes of its result.
        scratch: A folder that it may write in; without one it writes nothing.
        file_bytes: The most bytes of each file in that folder.
        writable: Folders of the user's in which it may write, as for a database; ``scratch``
            and these are all that it can change.
        hint: What to do about a call that exceeds them, for people.
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
