"""Google Drive: files, folders, sharing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_drive.connection import Drive

__all__ = ["Drive"]


def __getattr__(name: str) -> Any:
    if name == "Drive":
        from delf_drive.connection import Drive

        return Drive
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
