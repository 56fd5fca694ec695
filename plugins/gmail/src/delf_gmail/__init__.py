"""Gmail: search, read, send, label, archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_gmail.connection import Gmail

__all__ = ["Gmail"]


def __getattr__(name: str) -> Any:
    if name == "Gmail":
        from delf_gmail.connection import Gmail

        return Gmail
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
