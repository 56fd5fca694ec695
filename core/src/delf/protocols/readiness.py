"""Optional protocols of models, embedders and memory stores: preparation and checks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SupportsEarlyStart(Protocol):
    """A model or memory store that takes long to get ready for its first use."""

    async def warm_up(self) -> None:
        """Prepare for the first use, returning once that has succeeded or failed.

        An agent calls this when it starts. Uses do not wait for the preparation: until the model is
        ready, a memory search matches words only, with a note. A failure is raised by the first
        use.
        """
        ...


@runtime_checkable
class SupportsSelfCheck(Protocol):
    """A model or embedder that can report whether it is usable."""

    async def check(self) -> None:
        """Check the requirements, such as a key, without a request and without loading a model.

        Raises:
            DelfError: If the object cannot be used, with a hint.
        """
        ...
