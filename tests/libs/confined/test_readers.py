"""Tests of functions in confined children: their abilities, their limits, and their order."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from delf.errors import (
    OptionalDependencyError,
    ToolException,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.notes import notes_of_call
from delf_confined import landlock, seccomp
from delf_confined.children import Template
from delf_confined.limits import Limits
from delf_confined.readers import MAX_CHILDREN, Readers
from delf_confined.turns import MIN_RUN_SECONDS, Turn, Turns
from support.until import until, until_now
from support.workspace import ROOT

JOBS = "libs.confined.jobs"
confined = pytest.mark.skipif(not seccomp.is_supported(), reason="there is no filter here")


@pytest.fixture(autouse=True)
def quick_readers() -> None:
    """Start template processes as for users."""


@pytest.fixture
async def readers():
    made = Readers()
    yield made
    await made.aclose()


@pytest.fixture
def call(readers):
    async def call(function, arguments=None, *, key="task", about="reading a.xyz", **more):
        given = arguments or {}
        return await readers.call(f"{JOBS}:{function}", given, about=about, key=key, **more)

    return call


# -- results ----------------------------------------------------------------------------------


async def test_reader_returns_result_and_notes(call):
    value = {"n": [1, 2.5, None, True], "b": b"\0\xff", "t": "\u00e9"}
    with notes_of_call() as notes:
        assert await call("echo", {"value": value}) == value
    assert list(notes) == ["it was echoed"]
    assert await call("waits", {"value": 5}) == 5


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("refuse", ToolRefusedError, "not this one"),
        ("tell", ToolException, "two columns have one name"),
        ("missing", OptionalDependencyError, "it needs x"),
        ("breaks", ToolExecutionError, "reading a.xyz failed: KeyError: 'no such key'"),
        ("nothing_there", ToolExecutionError, "reading a.xyz failed: AttributeError: .*"),
    ],
)
async def test_reader_raises_the_error_of_the_function(call, function, error, message):
    with pytest.raises(error, match=f"^{message}"):
        await call(function)


# -- confinement ------------------------------------------------------------------------------


@confined
async def test_reader_child_cannot_write_files_or_open_sockets(call, tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("as it was")
    before = sorted(os.listdir(tmp_path))
    assert await call("attempts", {"path": str(path)}, readable=[str(path)]) == []
    assert path.read_text() == "as it was"
    assert sorted(os.listdir(tmp_path)) == before


@confined
@pytest.mark.parametrize("without", ["landlock", "seccomp"])
def test_each_confinement_layer_alone_stops_escapes(without, tmp_path):
    """An older kernel has only one of the layers, so neither may depend on the other."""
    switch = {"landlock": "version = lambda: 0", "seccomp": "supported = lambda: False"}[without]
    path = tmp_path / "own.txt"
    path.write_text("as it was")
    program = f"""
import asyncio, sys
from delf_confined import children
children._BOOT = children._BOOT.replace(
    "main(int", "import delf_confined.{without} as layer; layer.{switch}; main(int")
from delf_confined.readers import Readers
async def main():
    path = {str(path)!r}
    given = dict(about="x", key=1, readable=[path])
    print(await Readers().call("{JOBS}:attempts", {{"path": path}}, **given))
asyncio.run(main())
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    # Landlock does not watch modes and times, nor sockets that are not TCP.
    left = {"landlock": ["other files"], "seccomp": ["mode", "time", "fork", "datagrams", "kill"]}
    done = set(re.findall(r"'([^']+)'", run.stdout))
    known = {*left[without], "anonymous memory file"} if without == "seccomp" else {*left[without]}
    assert done <= known
    assert path.read_text() == "as it was"


async def test_reader_child_has_no_secret_in_its_environment(call, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "hunter2")
    assert "hunter2" not in str(await call("environment"))


async def test_reader_child_writes_only_into_its_scratch_folder(call, tmp_path):
    path, scratch = tmp_path / "own.txt", tmp_path / "scratch"
    path.write_text("as it was")
    scratch.mkdir()
    limits = Limits(scratch=str(scratch), file_bytes=100)
    done = await call("attempts", {"path": str(path)}, readable=[str(path)], limits=limits)
    assert done == (["own folder"] if landlock.version() else done)
    assert os.listdir(scratch) == ["here"]


# -- limits -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments", "limits", "message"),
    [
        ("fill_memory", {}, {"memory": 200_000_000}, "needs more than 200 MB of memory"),
        ("spin", {}, {"seconds": 0.5}, "took longer than 0.5 s and was cancelled"),
        ("sleep", {"seconds": 60}, {"seconds": 0.5}, "took longer than 0.5 s and was cancelled"),
        ("large", {"size": 5000}, {"answer": 1_000_000}, "gives more than fits into one result"),
        ("many", {}, {}, "gives more than fits into one result"),
        ("deep", {}, {}, "nested too deeply"),
        ("crash", {}, {}, r"its process ended \(SIGSEGV"),
        ("leave", {}, {}, r"its process ended \(status 3\)"),
    ],
)
async def test_exceeded_limit_is_named_and_the_next_call_works(
    call, function, arguments, limits, message
):
    with pytest.raises(ToolExecutionError, match=f"{message}") as caught:
        await call(function, arguments, limits=Limits(**limits))
    assert "a.xyz" in caught.value.message or "nested" in caught.value.message
    assert await call("echo", {"value": 1}) == 1


async def test_killed_template_process_is_restarted(call):
    assert await call("echo", {"value": 1}) == 1
    for template in templates():
        os.kill(template, signal.SIGKILL)
    assert await call("echo", {"value": 2}) == 2


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
async def test_killed_child_raises_and_the_next_call_works(call, number, name):
    running = asyncio.create_task(call("sleep", {"seconds": 60}))
    (child,) = await children(1)
    os.kill(child, number)
    with pytest.raises(ToolExecutionError, match=rf"reading a\.xyz failed: its process .*{name}"):
        await running
    assert await call("echo", {"value": 1}) == 1


async def test_cancelled_call_leaves_no_child_process(call):
    running = asyncio.create_task(call("spin"))
    await children(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await children(0) == []


async def test_call_that_is_cancelled_again_and_again_leaves_no_child_process(call):
    running = asyncio.create_task(call("spin"))
    await call("echo", {"value": 1})  # its child is forked after that of the first call
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await children(0) == []


async def test_closed_readers_leave_no_process(readers, call):
    await call("echo", {"value": 1})
    assert templates()
    await readers.aclose()
    assert not templates()
    assert await call("echo", {"value": 2}) == 2


def test_children_exit_when_their_program_is_killed():
    program = f"""
import asyncio, os, sys
from delf_confined.readers import Readers
async def main():
    readers = Readers()
    call = asyncio.create_task(readers.call("{JOBS}:spin", {{}}, about="x", key=1))
    print("begun", flush=True)
    await call
asyncio.run(main())
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True
    ) as run:
        run.stdout.readline()
        (template,) = until_now(lambda: templates(run.pid))
        (child,) = until_now(lambda: children_of(template))
        run.kill()
    assert until_now(lambda: not is_alive(child) and not is_alive(template))


# -- many at once -----------------------------------------------------------------------------


@pytest.mark.slow
async def test_calls_share_a_limited_number_of_children(call):
    calls = [asyncio.create_task(call("sleep", {"seconds": 0.05})) for _ in range(40)]
    seen = [0]

    def all_done():
        seen.append(len(children_of_templates()))
        return all(each.done() for each in calls)

    await until(all_done)
    assert 2 <= max(seen) <= MAX_CHILDREN
    assert len({each.result() for each in calls}) == 40, "each has a process of its own"


@pytest.mark.slow
async def test_hostile_documents_do_not_block_other_calls(call):
    hostile = [asyncio.create_task(call("spin", key=f"hostile {n}")) for n in range(60)]
    await children(MAX_CHILDREN)
    began = time.monotonic()
    assert await call("echo", {"value": 1}, key="honest") == 1
    assert time.monotonic() - began < 25, "sixty times thirty seconds, by four"
    for each in hostile:
        each.cancel()
    ended = await asyncio.gather(*hostile, return_exceptions=True)
    assert {type(error) for error in ended} == {asyncio.CancelledError}


@pytest.mark.slow
async def test_slow_call_finishes_although_others_wait(call):
    slow = asyncio.create_task(call("sleep", {"seconds": 1.5}, key="slow"))
    others = [
        asyncio.create_task(call("sleep", {"seconds": 0.4}, key=f"other {n}")) for n in range(12)
    ]
    await asyncio.gather(*others)
    assert await slow > 0


@pytest.mark.slow
async def test_connections_of_an_agent_share_the_reader_limit(call):
    """Each connection has its own readers; all share one event loop."""
    several = [Readers() for _ in range(3)]
    calls = [
        mine.call(f"{JOBS}:sleep", {"seconds": 0.3}, about="reading", key="task")
        for mine in several
        for _ in range(MAX_CHILDREN)
    ]
    began = time.monotonic()
    await asyncio.gather(*calls)
    assert time.monotonic() - began > 3 * 0.3, "three times four, by four"
    for mine in several:
        await mine.aclose()


async def test_caller_with_least_use_is_served_first():
    turns, order, loop = Turns(1), [], asyncio.get_running_loop()

    async def take(name, key):
        async with turns.acquire(Turn(key)):
            order.append(name)
            now = loop.time()
            await until(lambda: loop.time() > now + 0.01)

    first = asyncio.create_task(take("a1", "a"))
    await asyncio.sleep(0)
    others = [take("a2", "a"), take("a3", "a"), take("b1", "b")]
    await asyncio.gather(first, *others)
    assert order == ["a1", "b1", "a2", "a3"]


@pytest.mark.parametrize(
    ("turn", "other", "preempted"),
    [
        (Turn("a"), "b", True),
        (Turn("a"), "a", False),
    ],
    ids=["another task waits", "the same task waits"],
)
async def test_long_call_yields_to_another_caller(turn, other, preempted):
    turns, loop = Turns(1), asyncio.get_running_loop()
    async with turns.acquire(turn):
        waiting = asyncio.create_task(_hold(turns, Turn(other)))
        end = loop.time() + 4 * MIN_RUN_SECONDS
        await until(lambda: turn.preemption_request.done() or loop.time() > end)
        assert turn.preemption_request.done() == preempted
    await waiting


async def test_call_of_the_busiest_caller_yields_although_another_call_runs_longer():
    turns = Turns(2)
    light, heavy, waiting, also_heavy = map(Turn, ("light", "heavy", "other", "heavy"))
    waiting.attempt_seconds = 10.0
    also_heavy.attempt_seconds = 20.0
    async with turns.acquire(light), turns.acquire(heavy):
        others = [asyncio.create_task(_hold(turns, turn)) for turn in (waiting, also_heavy)]
        await until(heavy.preemption_request.done)
        assert not light.preemption_request.done()
    await asyncio.gather(*others)


async def test_time_of_a_preempted_call_is_counted_once():
    turns, order, loop = Turns(1), [], asyncio.get_running_loop()
    preempted = Turn("a")

    async def take(name, turn, times_as_long=0.0):
        async with turns.acquire(turn):
            order.append(name)
            end = loop.time() + times_as_long * preempted.attempt_seconds
            await until(lambda: loop.time() >= end)

    async with turns.acquire(preempted):
        others = [take("a2", Turn("a")), take("b1", Turn("b"), 1.5), take("b2", Turn("b"))]
        others = [asyncio.create_task(other) for other in others]
        end = loop.time() + 0.05
        await until(lambda: loop.time() > end)
        preempted.preemption_request.set_result(None)
    await asyncio.gather(take("a1", preempted), *others)
    assert order[:2] == ["b1", "a2"], "b has run 1.5 times as long as a"


async def _hold(turns, turn):
    async with turns.acquire(turn):
        pass


# -- for threads ------------------------------------------------------------------------------


def test_child_can_be_killed_from_another_thread():
    template = Template()
    child = template.fork(f"{JOBS}:echo", Limits(), ())
    from delf.values.encoding import dumps, loads

    assert loads(child.call(dumps({"value": 7}), 1000))["value"] == 7
    child.end()
    child = template.fork(f"{JOBS}:spin", Limits(), ())
    child.kill()
    with pytest.raises(EOFError):
        child.call(dumps({}), 1000)
    assert child.end() == -signal.SIGKILL
    template.close()


# -- processes --------------------------------------------------------------------------------


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True)
    lines = (line.split() for line in found.stdout.decode().splitlines())
    return [int(pid) for pid, state in lines if "Z" not in state]


def templates(of=None):
    return [pid for pid in children_of(of or os.getpid()) if "delf_confined" in command(pid)]


def children_of_templates():
    return [child for template in templates() for child in children_of(template)]


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def is_alive(pid):
    return " Z" not in state if (state := _state(pid)) else False


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return " " + file.read().rpartition(")")[2]
    except OSError:
        return ""


async def children(count):
    found = []

    def are_there():
        found[:] = children_of_templates()
        return len(found) == count

    await until(are_there)
    return found
