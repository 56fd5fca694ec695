"""A look at the whole of a journal, for those who ask whether it is sound."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsCheck(Protocol):
    """A journal that can look at all that it keeps."""

    async def check(self) -> None:
        """Read all of it; that takes seconds for gigabytes.

        Raises:
            DelfError: When some of it is damaged.
        """
        ...
