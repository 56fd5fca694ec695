"""The embedding models of an agent, which its memory and its prefilters share."""

from __future__ import annotations

from delf_embedders.embedders import Embedders

__all__ = ["Embedders"]
