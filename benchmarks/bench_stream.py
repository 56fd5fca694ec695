"""Comparison of the strategies: tokens that are sent, and the time to the end of a task.

Every model is a server on loopback that speaks the provider's protocol; what it says is written
here. Tokens are counted as four characters each of all that a client sent, JSON and all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from delf import Agent, LLMConfig, tool
from delf.testing import TestHost
from delf_strategy_stream.strategy import StreamStrategy
from support.live_servers import RealtimeServer
from support.openai_server import OpenAIServer, Reply

PAGE = "The minutes of the meeting went on and on about the budget of the next year. " * 28
TOKENS_A_SECOND = 50
SLOW = 0.3


def tools(count, seconds=0.0):
    @tool(effect="read", confirm=False)
    async def page(number: int) -> dict[str, object]:
        """A page of the minutes, which says which one comes next.

        Args:
            number: Which, from 1.
        """
        await asyncio.sleep(seconds)
        return {"number": number, "text": PAGE, "next": number + 1 if number < count else None}

    @tool(effect="write", confirm=False)
    async def note(text: str) -> str:
        """Write something down.

        Args:
            text: What.
        """
        return "noted"

    return [page, note]


def walk(count):
    """Make a model that reads one page per turn, because each page names the next one."""

    def answers(received):
        done = received.count("The minutes of the meeting went") // 28
        if done == count:
            return ["They talked about the budget."]
        call = json.dumps([{"name": "page", "args": {"number": done + 1}}])
        return [f"<think>Page {done + 1}.</think><execute>{call}</execute>"]

    return answers


SCRIPT = """```python
number, seen = 1, 0
while number:
    found = await page(number)
    seen, number = seen + len(found["text"]), found["next"]
print("They talked about the budget.")
```"""


async def run(config, strategy, count, seconds=0.0, task="What is in the minutes?", warm=False):
    host = TestHost.discover(environ={})
    async with Agent(
        tools=tools(count, seconds), llm=config, host=host, strategy=strategy, approvals=[]
    ) as agent:
        if warm:  # one task before, which opens what is opened once
            await agent.arun(task, 60)
        started = time.perf_counter()
        response = await agent.arun(task, 60)
        response.raise_for_status()
        return time.perf_counter() - started


async def tokens(count):
    """Return the tokens sent with whole requests, with a session, and with a script."""
    answers = walk(count)
    with OpenAIServer(lambda r: Reply(text=answers(r.prompt)[0])) as server:
        config = LLMConfig("m", base_url=server.base_url, api_key="k")
        await run(config, StreamStrategy(mode="replay"), count)
        replay = sum(len(request.body) for request in server.requests) // 4
    async with RealtimeServer(answers) as live:
        config = LLMConfig("gpt-realtime", base_url=f"http://127.0.0.1:{live.port}/v1", api_key="k")
        await run(config, StreamStrategy(), count)
        session = live.sent_chars // 4
    with OpenAIServer([SCRIPT]) as server:
        config = LLMConfig("m", base_url=server.base_url, api_key="k")
        await run(config, "codegen", count)
        script = sum(len(request.body) for request in server.requests) // 4
    return replay, session, script


def spoken(text, whole=False):
    """Return a reply that arrives at a model's speed, in tokens of four characters.

    A whole reply arrives at the time of its last token.
    """
    pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
    if whole:
        return Reply(text=text, delay=len(pieces) / TOKENS_A_SECOND)
    return Reply(text=text, chunks=pieces, chunk_delay=1 / TOKENS_A_SECOND)


async def seconds(strategy, answers):
    """Return the seconds that a task with four slow reads takes."""
    whole = strategy == "codegen"
    with OpenAIServer([spoken(text, whole) for text in (*answers, *answers)]) as server:
        config = LLMConfig("m", base_url=server.base_url, api_key="k")
        return await run(config, strategy, 4, SLOW, "Read pages 1 to 4.", warm=True)


def answers_of(note):
    """Return the model's answers in three forms: single calls, a batch, and a script."""
    calls = [{"name": "page", "args": {"number": number}} for number in (1, 2, 3, 4)]
    notes = [{"name": "note", "args": {"text": note}}] if note else []
    end = "All four pages are about the budget."
    batch = "<execute>[" + ",\n".join(map(json.dumps, [*calls, *notes])) + "]</execute>"
    code = [
        "```python",
        "import asyncio",
        "pages = await asyncio.gather(*(page(number) for number in (1, 2, 3, 4)))",
        *([f"await note({note!r})"] if note else []),
        f"print({end!r})",
        "```",
    ]
    single = [f"<execute>[{json.dumps(call)}]</execute>" for call in (*calls, *notes)]
    return (*single, end), (batch, end), ("\n".join(code),)


async def main():
    print("tokens sent for a task of so many calls, each of which needs the one before\n")
    print("| calls | replay | session | times | codegen |\n|---|---|---|---|---|")
    for count in (8, 16, 32):
        replay, session, script = await tokens(count)
        print(f"| {count} | {replay:,} | {session:,} | {replay / session:.1f} | {script:,} |")
    print(f"\nfour reads of {SLOW} s, a model that writes {TOKENS_A_SECOND} tokens a second\n")
    print("| strategy | four reads | and a note of 50 words |\n|---|---|---|")
    note = "The budget of the next year was talked about. " * 6
    ways = [
        ("stream, one call a turn", StreamStrategy(), 0),
        ("stream, started while it writes", StreamStrategy(), 1),
        ("codegen", "codegen", 2),
    ]
    for name, strategy, which in ways:
        took = [
            min([await seconds(strategy, answers_of(text)[which]) for _ in range(3)])
            for text in ("", note)
        ]
        print(f"| {name} | {took[0]:.2f} s | {took[1]:.2f} s |")


if __name__ == "__main__":
    asyncio.run(main())
