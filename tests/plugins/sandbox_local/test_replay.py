"""A script that runs again sees what it saw before, in the same order, wherever it was cut."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from delf_sandbox_local.backend import LocalBackend
from support.replaying import Record, difference, pasts, run_scripts
from support.scripting import session_spec

Tool = Callable[[str], Awaitable[object]]

PRELUDE = """
import asyncio
async def run(name, plan):
    for kind, *rest in plan:
        await globals()[kind](name, *rest)
async def call(name, n):
    print(name, "call", (await shop.find(n))[:20])
async def sleep(name, seconds):
    await asyncio.sleep(seconds)
    print(name, "slept", seconds)
async def spin(name, turns):
    for _ in range(turns):
        await asyncio.sleep(0)
    print(name, "spun", turns)
async def together(name, *plans):
    await asyncio.gather(*(run(f"{name}.{i}", plan) for i, plan in enumerate(plans)))
    print(name, "together")
async def limited(name, seconds, plan):
    try:
        await asyncio.wait_for(run(f"{name}.0", plan), seconds)
        print(name, "in time")
    except TimeoutError:
        print(name, "late")
async def first(name, *plans):
    tasks = [asyncio.create_task(run(f"{name}.{i}", plan)) for i, plan in enumerate(plans)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    print(name, "first", [tasks.index(task) for task in done])
    for task in list(pending)[1:]:
        task.cancel()
async def leave(name, plan):
    asyncio.create_task(run(f"{name}.0", plan))
async def blocking(name, n):
    print(name, "blocking", shop.find(n)[:20])
"""


A_THREAD = """
import asyncio, re
thread = re.enum.sys.modules["_thread"]
lock = thread.allocate_lock()
lock.acquire()
thread.start_new_thread(lock.acquire, ())
while not thread._count():
    pass
"""


class Plans:
    """Draws random plans for the functions of :data:`PRELUDE`."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.calls = 0

    def plan(self, depth: int = 0) -> list[tuple[object, ...]]:
        return [self._step(depth) for _ in range(self._draw.randint(1, 3))]

    def call(self) -> int:
        self.calls += 1
        return self.calls

    def _step(self, depth: int) -> tuple[object, ...]:
        draw = self._draw
        simple = ["call", "call", "sleep", "spin", "blocking"]
        nested = ["together", "limited", "first", "leave"] if depth < 2 else []
        kind = draw.choice(simple + nested)
        match kind:
            case "call" | "blocking":
                return kind, self.call()
            case "sleep":
                return kind, draw.choice([0.001, 0.002, 0.004])
            case "spin":
                return kind, draw.choice([1, 2, 7, 30, 300])
            case "limited":
                return kind, draw.choice([0.001, 0.003]), self.plan(depth + 1)
            case "leave":
                return kind, self.plan(depth + 1)
            case _:
                return kind, *(self.plan(depth + 1) for _ in range(draw.randint(2, 3)))


def random_scripts(draw: random.Random) -> list[str]:
    """Draw scripts of which each may use the calls that the previous one created."""
    plans = Plans(draw)
    scripts: list[str] = []
    kept: list[int] = []
    for number in range(3):
        lines = [PRELUDE] if number == 0 else []
        if draw.random() < 0.2:
            lines.append(A_THREAD)
        awaited = [index for index in kept if draw.random() < 0.7]
        lines += [f"print((await asyncio.wait_for(kept[{index}], 5))[:20])" for index in awaited]
        numbers = [plans.call() for _ in range(draw.randint(1, 3))]
        lines.append(f"await run('{number}', {plans.plan()})")
        lines.append(f"kept = [shop.find(n) for n in {numbers}]")
        if draw.random() < 0.5:
            lines.append(f"await run('{number}b', {plans.plan()})")
        if draw.random() < 0.7:
            lines.append("1 / 0")
        lines.append("print([answer[:20] for answer in await asyncio.gather(*kept)])")
        kept = list(range(len(numbers)))
        draw.shuffle(kept)
        scripts.append("\n".join(lines))
    return scripts


def slow_tool(draw: random.Random) -> Tool:
    async def tool(name: str) -> str:
        delay = draw.choice([0, 0, 0.001, 0.002, 0.003])
        if delay:
            await asyncio.sleep(delay)
        # The guest reads a large answer in several pieces.
        return f"answer of {name}".ljust(draw.choice([20, 20, 20, 300_000]))

    return tool


@pytest.fixture
async def backend() -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(pool_size=4)
    yield backend
    await backend.aclose()


async def check_every_beginning(backend: LocalBackend, scripts: list[str], tool: Tool) -> None:
    """Record scripts, and replay them as if their process had died at each recorded moment."""

    async def run(past: list[Record]) -> list[Record]:
        session = await backend.open(session_spec(processes=8))
        try:
            return await run_scripts(session, scripts[: len(past)] or scripts, tool, past)
        finally:
            await session.aclose()

    for past in pasts(await run([])):
        if past[-1].entries[-1][0] not in ("clock", "call"):  # the script sees nothing of these
            now = await run(past)
            assert difference(past, now) is None, f"{past[-1]}\n{now[len(past) - 1]}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8, 18])
async def test_replay_of_every_beginning_shows_the_same(backend, seed):
    draw = random.Random(seed)
    await check_every_beginning(backend, random_scripts(draw), slow_tool(draw))


@pytest.mark.slow
async def test_calls_of_earlier_scripts_are_answered_in_their_turn(backend):
    scripts = [
        "calls = [shop.find(n) for n in (1, 2, 3)]\n1 / 0\nawait asyncio.gather(*calls)",
        """
for n in (2, 0):
    print(await asyncio.wait_for(calls[n], 30))
print(await asyncio.gather(shop.find(4), shop.find(5)))
1 / 0
""",
        "print(await asyncio.wait_for(calls[1], 30), await asyncio.wait_for(shop.find(6), 30))",
    ]
    await check_every_beginning(backend, scripts, slow_tool(random.Random(1)))


SPINNING_BESIDE = """
async def beside(n):
    call = asyncio.create_task(shop.find(n))
    turns = 0
    while not call.done():
        turns += 1
        await asyncio.sleep(0)
    print(n, turns)
"""


@pytest.mark.slow
@pytest.mark.parametrize("turns", range(995, 1003))
async def test_long_spin_before_a_call_replays_in_as_many_turns(backend, turns):
    """The loop reads no answer in the first thousand busy turns, and then in each of them."""
    script = f"""
import asyncio
for _ in range({turns}):
    await asyncio.sleep(0)
print(await shop.find(1))
{SPINNING_BESIDE}
await beside(2)
"""
    await check_every_beginning(backend, [script], slow_tool(random.Random(turns)))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["print(await call)", "1 / 0", "call.done()"])
async def test_script_that_is_busy_for_long_gets_no_answer_earlier_in_a_replay(backend, end):
    """The recorded script printed a thousand busy turns before its call was answered."""
    is_answer_due = asyncio.Event()

    async def tool(name: str) -> str:
        if name == "find(1,)":
            await is_answer_due.wait()
        else:
            is_answer_due.set()
        return name

    script = f"""
import asyncio
call = asyncio.create_task(shop.find(1))
for n in range(3):
    for _ in range(900):
        await asyncio.sleep(0)
    print(n, call.done())
for _ in range(1_800):
    await asyncio.sleep(0)
print(await shop.find(2))
for _ in range(1_800):
    await asyncio.sleep(0)
{end}
"""
    await check_every_beginning(backend, [script], tool)


@pytest.mark.slow
async def test_timers_fire_in_their_turn_beside_a_thread(backend):
    script = f"""{A_THREAD}
opened = asyncio.Event()
waiting = asyncio.create_task(asyncio.wait_for(opened.wait(), 30))
for n in range(3):
    await asyncio.sleep(0.01)
    print(n, await asyncio.wait_for(shop.find(n), 30))
opened.set()
print(await waiting)
"""
    await check_every_beginning(backend, [script], slow_tool(random.Random(0)))
