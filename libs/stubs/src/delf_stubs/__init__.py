"""Tools as Python stubs."""

from delf_stubs.finding import own_tools
from delf_stubs.stubs import stubs_of

__all__ = ["own_tools", "stubs_of"]
