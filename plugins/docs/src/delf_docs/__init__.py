"""Google Docs: documents as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_docs.connection import Docs

__all__ = ["Docs"]


def __getattr__(name: str) -> Any:
    if name == "Docs":
        from delf_docs.connection import Docs

        return Docs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
