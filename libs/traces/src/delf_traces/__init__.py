"""How a task went, and how it stands: folds over its events."""

from delf_traces.snapshot import snapshot
from delf_traces.trace import MAX_LETTERS, MAX_LINES, Trace

__all__ = ["MAX_LETTERS", "MAX_LINES", "Trace", "snapshot"]
