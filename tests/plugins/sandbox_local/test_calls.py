"""A call that waits holds up nothing else of its script."""

import asyncio

import pytest

from delf.protocols.sandbox import Done, Failed, LimitReached
from delf_devkit.testing.contracts.bench import Bench
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox_local.backend import LocalBackend
from support.scripting import NotingHost, local_session, run_script


class Door:
    """A call that waits for another call."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def wait(self):
        await self.opened.wait()
        return "through"

    async def open(self):
        self.opened.set()

    async def never(self):
        await asyncio.get_running_loop().create_future()


@pytest.fixture
async def run():
    door = Door()
    host = RecordingScriptHost(
        {"wait": door.wait, "open_it": door.open, "never": door.never, "add": lambda a, b: a + b}
    )
    async with Bench(LocalBackend(pool_size=0)) as bench:
        running = await bench.open(host)
        run = lambda code: running(code)  # noqa: E731
        run.host = host
        yield run


WAYS = {
    "a task": "asyncio.create_task(opening())",
    "a callback": "loop.call_soon(lambda: asyncio.create_task(opening()))",
    "a timer": "loop.call_later(0.01, lambda: asyncio.create_task(opening()))",
    "a task after turns": "asyncio.create_task(later())",
    "a task that slept": "asyncio.create_task(slept())",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_other_coroutines_run_during_a_call(run, way):
    code = f"""
loop = asyncio.get_running_loop()
async def opening():
    await open_it()
async def later():
    for _ in range(5):
        await asyncio.sleep(0)
    await opening()
async def slept():
    await asyncio.sleep(0.01)
    await opening()
kept = {way}
[await add(1, b=2), await wait(), await add(3, b=4)]
"""
    outcome = await run(code)
    assert isinstance(outcome, Done), outcome
    assert outcome.value == [3, "through", 7]


async def test_call_inside_an_awaited_task_is_answered(run):
    code = """
async def inner():
    return [await add(i, b=1) for i in range(3)]
await asyncio.create_task(inner())
"""
    assert (await run(code)).value == [1, 2, 3]


async def test_timeout_cancels_a_call_and_the_next_succeeds(run):
    code = """
said = []
try:
    async with asyncio.timeout(0.01):
        await never()
except TimeoutError:
    said.append("too late")
said.append(await add(1, b=2))
said
"""
    assert (await run(code)).value == ["too late", 3]
    assert run.host.cancelled == ["never"]


async def test_self_cancelled_task_does_not_block(run):
    code = """
asyncio.current_task().cancel()
try:
    await never()
except asyncio.CancelledError:
    asyncio.current_task().uncancel()
await add(1, b=2)
"""
    assert (await run(code)).value == 3
    assert run.host.cancelled in ([], ["never"])  # it may be given up before it begins


async def test_answer_to_an_abandoned_call_is_dropped(run):
    code = """
task = asyncio.create_task(wait())
await asyncio.sleep(0)
task.cancel()
await open_it()
[await add(i, b=0) for i in range(3)]
"""
    assert (await run(code)).value == [0, 1, 2]


async def test_printed_text_arrives_before_the_next_call(run):
    seen = []
    run.host.tools["add"] = lambda a, b: seen.append(run.host.text)
    await run("for i in range(3):\n    print(i)\n    await add(i, b=0)")
    assert seen == ["0\n", "0\n1\n", "0\n1\n2\n"]


class OrderedHost(NotingHost):
    """A host that records files and clock readings in order with the other events."""

    def wrote_file(self, name, data):
        super().wrote_file(name, data)
        self.order.append(f"file {name}")

    def wrote_rows(self, name, data):
        super().wrote_rows(name, data)
        self.order.append(f"rows {name}")

    def clock_read(self, readings):
        self.order.append("clock")


async def test_file_arrives_in_order_with_prints_and_clock_reads():
    code = """
import time
print("before")
add_to_output_files("a.txt", "it is " + str(time.time()))
print("between")
time.time()
add_to_output_files("b.txt", "b")
"""
    _, host = await run_script(code, OrderedHost())
    first = host.order.index("file a.txt")
    second = host.order.index("file b.txt")
    for part, text in (
        (host.order[:first], "before\n"),
        (host.order[first + 1 : second], "between\n"),
    ):
        printed = [item.removeprefix("print ") for item in part if item != "clock"]
        assert "clock" in part
        assert "".join(printed) == text  # a slow guest sends the end of the line on its own


async def test_concurrent_threads_print_whole_lines():
    """Whole lines arrive between the calls and files of other threads."""
    code = """
async def call(number):
    for i in range(50):
        await echo("y" * 10_000)
def work(number):
    for i in range(150):
        print(f"{number} {i} " + "x" * 20_000 + "\\n", end="")
    add_to_output_files(f"{number}.txt", "z" * 3_000_000)
await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(4)), *map(call, range(4)))
"""
    outcome, host = await run_script(code, processes=8, output_bytes=20_000_000)
    assert isinstance(outcome, Done), outcome
    lines = host.text.splitlines()
    whole = [f"{number} {i} {'x' * 20_000}" for number in range(4) for i in range(150)]
    assert sorted(lines) == sorted(whole)
    assert len(host.calls) == 200
    assert {name: len(data) for name, data in host.files.items()} == {
        f"{number}.txt": 3_000_000 for number in range(4)
    }


async def test_next_script_does_not_wait_for_a_slow_call_of_a_cancelled_task():
    async def never(*_):
        await asyncio.get_running_loop().create_future()

    code = """
async def work():
    try:
        await shop.wait()
    finally:
        await shop.send("unlock")
task = asyncio.create_task(work())
await asyncio.sleep(0.01)
1 / 0
"""
    host = NotingHost({"shop.wait": never, "shop.send": never})
    async with local_session() as session:
        assert isinstance(await session.execute(code, host), Failed)
        assert host.order == ["shop.wait", "shop.send"]
        outcome = await session.execute("await echo(1)", host)
        assert isinstance(outcome, Done), outcome


@pytest.mark.parametrize("calls", ["shop.ping()", "asyncio.gather(shop.ping(), shop.ping())"])
async def test_task_that_goes_on_makes_no_call_after_its_script(calls):
    """The number of such calls would depend on the time in which the model writes a script."""
    pinged = 0

    async def ping():
        nonlocal pinged
        pinged += 1
        await asyncio.get_running_loop().create_future()

    host = NotingHost({"shop.ping": ping})
    code = f"""
async def go_on():
    while True:
        try:
            await {calls}
        except BaseException:
            pass
        await asyncio.sleep(0)
asyncio.ensure_future(go_on())
await asyncio.sleep(0)
await asyncio.sleep(0)
1 / 0
"""
    async with local_session() as session:
        assert isinstance(await session.execute(code, host), Failed)
        await run_script("1", NotingHost())  # meanwhile, the calls that were sent before begin
        at_the_end = pinged
        await run_script("1", NotingHost())
        assert pinged == at_the_end
        for _ in range(2):
            outcome = await session.execute("print('next')", host)
            assert isinstance(outcome, Done), outcome
    assert pinged == at_the_end
    assert host.text == "next\nnext\n"


@pytest.mark.parametrize(
    "code",
    [
        "class V:\n    def __repr__(self):\n        return shop.ping().upper()\nV()",
        "class E(Exception):\n    def __str__(self):\n        return shop.ping().upper()\nraise E()",
    ],
)
async def test_text_of_a_value_may_call_a_tool_after_the_last_line(code):
    async def ping():
        return "pong"

    host = NotingHost({"shop.ping": ping})
    outcome, _ = await run_script(code, host)
    assert "PONG" in str(getattr(outcome, "value", None) or outcome.message)


async def test_timers_of_a_script_end_with_it():
    """The next script would otherwise depend on how long the model thinks before."""
    host = NotingHost()
    async with local_session() as session:
        code = "asyncio.get_running_loop().call_later(0.02, print, 'later')"
        await session.execute(code, host)
        await session.execute("await asyncio.sleep(0.1)\nprint('next')", host)
    assert host.text == "next\n"


@pytest.mark.slow
async def test_answers_that_do_not_fit_into_memory_end_the_script():
    async def find(n):
        return ["x" * 1_000 + str(item) for item in range(30_000)]

    code = "print(len(await asyncio.gather(*(shop.find(n) for n in range(3)))))"
    limits = {"memory_bytes": 120_000_000, "frame_bytes": 60_000_000}
    running = run_script(code, NotingHost({"shop.find": find}), **limits)
    outcome, _ = await running
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "memory"


async def test_prints_of_a_busy_script_arrive_while_it_runs(run):
    arrived = asyncio.Event()
    printed = run.host.printed_texts

    class Texts(list):
        def append(self, text):
            super().append(text)
            arrived.set()

    run.host.printed_texts = Texts(printed)
    running = asyncio.ensure_future(run("while True: print('busy')"))
    await arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_thousands_of_calls_can_be_abandoned_at_once(run):
    """No call ends by itself, and there are more calls than the host serves at a time."""
    code = """
try:
    async with asyncio.timeout(0.2):
        await asyncio.gather(*(never() for _ in range(2500)))
except TimeoutError:
    pass
await add(1, b=2)
"""
    outcome = await run(code)
    assert isinstance(outcome, Done), outcome
    assert outcome.value == 3


async def test_huge_integer_argument_is_refused(run):
    outcome = await run("from decimal import Decimal\nawait add(Decimal('1E100000000'), b=1)")
    assert "Decimal beyond 1E±6144 cannot be passed" in outcome.message
    assert run.host.calls == []


LATER_AWAITED = {
    "a tuple of zip": "for n, p in zip('x', [wait()]):\n    await open_it()\n    await p",
    "a tuple of zip after a star": (
        "for n, m, p in zip(*['x', 'y'], [wait()]):\n    await open_it()\n    await p"
    ),
    "a tuple of zip with a star alone": (
        "for n, p in zip(*['x', [wait()]]):\n    await open_it()\n    await p"
    ),
    "columns of pairs": (
        "names, calls = zip(*[('x', wait()), ('y', open_it())])\nawait asyncio.gather(*calls)"
    ),
    "a pair of zip": "for pair in zip('x', [wait()]):\n    await open_it()\n    await pair[1]",
    "a pair of enumerate": "for p in enumerate([wait()]):\n    await open_it()\n    await p[1]",
    "the last of a pair": "for p in enumerate([wait()]):\n    await open_it()\n    await p[-1]",
    "a pair of items": "for p in {1: wait()}.items():\n    await open_it()\n    await p[1]",
    "a list after a star": "a, b, p = [*'ab', wait()]\nawait open_it()\nawait p",
    "a name after a star": "*a, p = ['x', 'y', wait()]\nawait open_it()\nawait p",
    "a loop's name after a star": (
        "for *_, p in [('x', 'y', wait())]:\n    await open_it()\n    await p"
    ),
    "a name with a star": "a, *p = ['x', wait()]\nawait open_it()\nawait p[0]",
    "a slice of a list": "a, p = ['x', 'y', wait()][1:]\nawait open_it()\nawait p",
    "slices of a list for gather": (
        "c = [wait(), open_it()]\nfor n in (0, 2):\n    await asyncio.gather(*c[n : n + 2])"
    ),
    "a sum of lists": "a, p = ['x'] + [wait()]\nawait open_it()\nawait p",
    "an extended list": "c = ['x']\nc.extend([wait()])\na, p = c\nawait open_it()\nawait p",
    "a reversed list": "a, p = reversed([wait(), 'x'])\nawait open_it()\nawait p",
    "a chain of lists": (
        "import itertools\na, p = itertools.chain('x', [wait()])\nawait open_it()\nawait p"
    ),
}


@pytest.mark.parametrize("code", LATER_AWAITED.values(), ids=LATER_AWAITED)
async def test_call_in_a_collection_is_sent_when_it_is_awaited(run, code):
    assert isinstance(await run(f"import asyncio\n{code}"), Done)


PLAIN = {
    "a tuple of zip": "for n, p in zip([add(1, 2)], [wait()]):\n    await open_it()\n    await p",
    "columns of pairs": "n, p = zip(*[(add(1, 2), wait())])\nawait open_it()\nawait p[0]\nn = n[0]",
    "a list before a star": "n, p = [add(1, 2), *[wait()]]\nawait open_it()\nawait p",
    "a tuple of a list": "n, p = tuple([add(1, 2), wait()])\nawait open_it()\nawait p",
}


@pytest.mark.parametrize("code", PLAIN.values(), ids=PLAIN)
async def test_call_in_a_collection_has_its_result_if_it_is_not_awaited(run, code):
    await run(f"{code}\nprint(type(n).__name__)")
    assert "".join(run.host.printed_texts) == "int\n"
