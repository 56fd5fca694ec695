"""Tests that plain functions run in threads, in their order."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from delf_engine.calls.threads import ToolThreads
from support.until import until


@pytest.fixture
def threads():
    made = ToolThreads(2, 5)
    yield made
    made.close()


async def keep_busy(threads):
    """Block both threads; return an event that releases them, and the waiting asyncio tasks."""
    held, began, running = threading.Event(), threading.Semaphore(0), 0

    def hold():
        began.release()
        return held.wait(60)

    busy = []
    while running < 2:
        busy.append(asyncio.create_task(threads.run(hold)))
        running += await asyncio.to_thread(began.acquire, timeout=1)
    return held, busy


async def test_functions_run_concurrently_off_the_event_loop(threads):
    meeting = threading.Barrier(2, timeout=50)

    def meet():
        meeting.wait()
        return threading.get_ident()

    seen = await asyncio.gather(threads.run(meet), threads.run(meet))
    assert len({*seen, threading.get_ident()}) == 3


async def test_thread_limit_bounds_concurrent_functions(threads):
    running, most, lock = set(), [], threading.Lock()

    def work():
        with lock:
            running.add(threading.get_ident())
            most.append(len(running))
        with lock:
            running.discard(threading.get_ident())

    await asyncio.gather(*(threads.run(work) for _ in range(200)))
    assert len(most) == 200
    assert max(most) <= 2


@pytest.mark.parametrize("error", [ValueError, KeyError, SystemExit, asyncio.CancelledError])
async def test_function_error_is_raised_in_the_caller(threads, error):
    def fail():
        raise error("no")

    with pytest.raises(error):
        await threads.run(fail)
    assert await threads.run(lambda: 1) == 1


class Argument:
    """A large argument, for example."""


async def test_failed_function_keeps_no_argument_alive(threads):
    argument = Argument()
    alive = weakref.ref(argument)

    def fail(argument=argument):
        raise ValueError(argument)

    del argument
    gc.disable()  # so that only references free the argument
    try:
        with pytest.raises(ValueError, match="Argument"):
            await threads.run(fail)
        del fail
        await until(lambda: alive() is None)  # the thread may still leave the function
    finally:
        gc.enable()


async def test_function_abandoned_before_its_start_is_never_called(threads):
    held, called = threading.Event(), []
    busy = [asyncio.create_task(threads.run(lambda: held.wait(50))) for _ in range(3)]
    late = asyncio.create_task(threads.run(lambda: called.append(1)))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    held.set()
    assert await asyncio.gather(*busy) == [True] * 3
    assert await threads.run(lambda: 1) == 1
    assert not called


async def test_closed_threads_start_no_function(threads):
    held, busy = await keep_busy(threads)
    called = []
    late = asyncio.create_task(threads.run(lambda: called.append(1)))
    await asyncio.sleep(0)
    threads.close()
    held.set()
    await asyncio.wait(busy)
    assert not called
    with pytest.raises(RuntimeError):
        await threads.run(lambda: 1)
    late.cancel()


async def test_functions_wait_when_no_thread_can_start(monkeypatch):
    threads, start = ToolThreads(8, 0), threading.Thread.start
    one, free = threading.Lock(), threading.Event()

    def only_one(thread):
        if not one.acquire(blocking=False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", only_one)
    first = asyncio.create_task(threads.run(lambda: free.wait(60)))
    others = [asyncio.create_task(threads.run(lambda n=n: n)) for n in range(5)]
    await asyncio.sleep(0)
    free.set()
    assert await asyncio.gather(first, *others) == [True, 0, 1, 2, 3, 4]
    threads.close()


OUTLIVES_THE_MAIN_THREAD = """
import asyncio, concurrent.futures.thread, threading
from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost

began, released = threading.Event(), threading.Event()

@tool(effect="read", confirm=False)
def hold() -> bool:
    \"\"\"Hold a thread.\"\"\"
    began.set()
    return released.wait(50)

@tool(effect="read", confirm=False)
async def main_thread_ended() -> None:
    \"\"\"Wait until Python refuses further functions for threads.\"\"\"
    while not concurrent.futures.thread._shutdown:
        await asyncio.sleep(0.01)

@tool(effect="read", confirm=False)
def late() -> int:
    \"\"\"Need a thread.\"\"\"
    return 1

@tool(effect="read", confirm=False)
async def release() -> None:
    \"\"\"Release the thread.\"\"\"
    released.set()

SCRIPT = '''
import asyncio
holding = asyncio.create_task(hold())
await main_thread_ended()
try:
    await late()
except Exception as error:
    print("refused:", error)
await release()
print(await holding)
'''

def run():
    model = ScriptedModel()
    model.says(f"```python\\n{SCRIPT}\\n```")
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    tools = [hold, main_thread_ended, late, release]
    with Agent(tools=tools, llm="scripted", sandbox="local", host=host) as agent:
        print(agent.run("Go").text, flush=True)

threading.Thread(target=run).start()
began.wait(50)
"""


def test_function_is_refused_after_the_main_thread_ended(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES_THE_MAIN_THREAD],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert "refused: RuntimeError: cannot schedule" in done.stdout, done.stderr
    assert done.stdout.endswith("True\n")


async def test_functions_that_wait_leave_threads_to_inner_functions(threads: ToolThreads) -> None:
    loop = asyncio.get_running_loop()
    both_wait = threading.Barrier(2)

    def run_inner(depth: int) -> int:
        if depth == 0:
            both_wait.wait(50)
        if depth == 5:
            return depth
        inner = threads.run(lambda: run_inner(depth + 1))
        return asyncio.run_coroutine_threadsafe(inner, loop).result(50)

    results = await asyncio.gather(*(threads.run(lambda: run_inner(0)) for _ in range(2)))
    assert results == [5, 5]
