"""Which prefilter chooses the tools that a task is shown, and from how many tools on."""

from __future__ import annotations

from delf_selecting.prefilters import Prefilters

__all__ = ["Prefilters"]
