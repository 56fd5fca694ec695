"""Step 3, context: live facts from the connections, such as database schemas."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from delf.engine.task import TaskRun
from delf.protocols.connection import SupportsContext


async def load_context(run: TaskRun) -> None:
    """Ask every connection that has facts, all at once.

    Raises:
        DelfError: When a connection cannot be reached: a script could not use it either.
    """
    sources = {c.name: c for c in run.tools.connections if isinstance(c, SupportsContext)}
    if not sources:
        return
    async with run.step("context"):
        asked = (source.context(run.task) for source in sources.values())
        texts = await asyncio.gather(*asked)
        live = {name: text for name, text in zip(sources, texts, strict=True) if text}
        run.context = replace(run.context, live=live)
