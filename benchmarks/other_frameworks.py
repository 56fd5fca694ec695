"""The tasks of ``bench_routines.py`` done by another framework, in its own environment.

    python other_frameworks.py (langchain | pydantic-ai) BASE_URL COUNT

A line of JSON for each task: its name and the seconds of each run.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false
from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from routine_tasks import TASKS, BenchTask


def langchain(task: BenchTask, model: str, url: str) -> Callable[[], Awaitable[Any]]:
    """Make an agent of LangChain."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    chat: Any = ChatOpenAI(model=model, base_url=url, api_key="k", use_responses_api=False)
    agent: Any = create_agent(chat, tools=list(task.tools))
    return lambda: agent.ainvoke({"messages": [{"role": "user", "content": task.words}]})


def pydantic_ai(task: BenchTask, model: str, url: str) -> Callable[[], Awaitable[Any]]:
    """Make an agent of pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider: Any = OpenAIProvider(base_url=url, api_key="k")
    agent: Any = Agent(OpenAIChatModel(model, provider=provider), tools=list(task.tools))
    return lambda: agent.run(task.words)


async def main(framework: str, url: str, count: int) -> None:
    """Measure and print."""
    make = langchain if framework == "langchain" else pydantic_ai
    for name, task in TASKS.items():
        run = make(task, f"{name}/calls", url)
        seconds: list[float] = []
        for _ in range(count):
            started = time.perf_counter()
            await run()
            seconds.append(time.perf_counter() - started)
        print(json.dumps([name, seconds]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
