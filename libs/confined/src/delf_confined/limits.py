"""``Limits``: the resources of one call in a child process. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one call in a child process.

    Args:
        seconds: The maximum duration of the call in seconds.
        memory: The maximum size of memory in bytes.
        answer: The maximum size of the result in bytes.
        scratch: A temporary folder in which the call may write, if any.
        file_bytes: The maximum size of each file that the call writes, in bytes.
        writable: Further folders in which the call may write, such as that of a database.
        hint: The hint of the error when a limit is exceeded.
    """

    seconds: float = 30.0
    memory: int = 1_000_000_000
    answer: int = 128 * 1024 * 1024
    scratch: str | None = None
    file_bytes: int = 0
    writable: tuple[str, ...] = ()
    hint: str | None = None
