"""Optional protocols of models, embedders and memory stores: preparation and checks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from delf.members import ProtocolMeta


@runtime_checkable
class SupportsEarlyStart(Protocol, metaclass=ProtocolMeta):
    """A model or memory store that takes long to get ready for its first use."""

    async def warm_up(self) -> None:
        """Prepare for the first use, such as by loading a model.

        An agent calls this in the background when it starts. A failure is not raised here, but by
        the first use. While a memory store is being prepared, a search of its facts compares only
        words, and adds a note to the result.
        """
        ...


@runtime_checkable
class SupportsSelfCheck(Protocol, metaclass=ProtocolMeta):
    """A model or embedder that can report whether it is usable."""

    async def check(self) -> None:
        """Check the requirements, such as a key, without a request and without loading a model.

        Raises:
            DelfError: If the object cannot be used, with a hint.
        """
        ...
