"""Prompt size: tokens of the whole first request for 1, 10, 50 and 200 tools.

    python benchmarks/bench_prompt.py

Counted with tiktoken's ``o200k_base`` where it is to be had without a download, else by four
characters a token. Tools have two parameters and a line of documentation.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from delf import tool
from support import REQUESTS, script_agent


def make_tool(number: int) -> Any:
    """Make a typical tool with two parameters."""

    async def lookup(customer_id: int, status: str = "open") -> list[dict[str, Any]]:
        return []

    lookup.__doc__ = f"Orders of a customer in warehouse {number} that have a given status."
    return tool(name=f"find_orders_{number}", confirm=False)(lookup)


def _count(encoding: Any, text: str) -> int:
    return len(encoding.encode(text))


def counter() -> tuple[str, Callable[[str], int]]:
    """Return the name of the way to count tokens, and its function."""
    spec = find_spec("litellm")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(folder))
        import tiktoken

        for name in ("o200k_base", "cl100k_base"):
            try:
                encoding = tiktoken.get_encoding(name)
            except Exception:
                continue
            return name, functools.partial(_count, encoding)
    return "characters / 4", lambda text: len(text) // 4


async def main() -> None:
    """Measure and print."""
    how, count = counter()
    for number in (1, 10, 50, 200):
        tools = [make_tool(index) for index in range(number)]
        async with script_agent(tools=tools, prefilter_mode="off") as (agent, run):
            await run(agent, "print(1)")
        text = "\n".join(message.text for message in REQUESTS[-1].messages)
        print(f"{number:>4} tools: {count(text):>6} tokens ({how})")


if __name__ == "__main__":
    asyncio.run(main())
