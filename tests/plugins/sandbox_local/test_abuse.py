"""Scripts that misbehave, in real processes: each ends in its limit, the host unharmed."""

import asyncio
import os
import re
import signal
from textwrap import dedent

import pytest

from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached
from support.scripting import NotingHost, local_session, run_script
from support.until import until

POSIX = "import re\nposix = re.enum.sys.modules['posix']\n"
MB = 1024 * 1024


def script(text: str) -> str:
    return dedent(text).strip("\n")


# -- time ---------------------------------------------------------------------------------


async def test_fractional_cpu_limit_holds_despite_a_disabled_timer():
    code = POSIX + script("""
        signal = re.enum.sys.modules['_signal']
        signal.setitimer(signal.ITIMER_PROF, 0)
        while True: pass
    """)
    outcome, _ = await run_script(code, cpu_seconds=0.3)
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "cpu"


async def test_script_ignoring_the_cpu_signal_is_killed():
    code = POSIX + script("""
        signal = re.enum.sys.modules['_signal']
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True: pass
    """)
    outcome, _ = await run_script(code, cpu_seconds=1)
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "cpu"


# -- memory, processes, files ---------------------------------------------------------------


async def test_script_can_continue_after_a_memory_error():
    outcome, host = await run_script(
        "try:\n    bytes(3 * 1024**3)\nexcept MemoryError:\n    print('small')"
    )
    assert isinstance(outcome, Done)
    assert host.text == "small\n"


@pytest.mark.parametrize(
    "call",
    [
        "posix.fork()",
        "posix.posix_spawn('/bin/true', ['true'], {})",
        "posix.execv('/bin/true', ['true'])",
        "posix.system('true') and 1/0",
        "posix.kill(posix.getppid(), 0)",
        "posix.kill(1, 0)",
        "posix.killpg(0, 9)",
        "posix.pidfd_open(posix.getppid())",
        "posix.setuid(0)",
        "re.enum.sys.modules['_socket'].socket()",
        "posix.unshare(0)",
    ],
)
async def test_script_cannot_create_processes_or_sockets(call):
    outcome, _ = await run_script(f"{POSIX}import asyncio\n{call}")
    assert isinstance(outcome, Failed), outcome
    assert outcome.kind in ("PermissionError", "ZeroDivisionError", "AttributeError"), outcome


async def test_threads_end_with_the_script():
    code = POSIX + script("""
        thread = re.enum.sys.modules['_thread']
        def spin():
            while True: pass
        try:
            for _ in range(3): thread.start_new_thread(spin, ())
        except RuntimeError:
            pass
    """)
    async with local_session() as session:
        await session.execute(code, NotingHost())
        await session.aclose()
        assert not session.process.running


async def test_written_file_size_is_limited():
    code = "with open('big', 'wb') as f:\n    for _ in range(30):\n        f.write(bytes(10**6))"
    outcome, _ = await run_script(code, file_bytes=5 * MB)
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "file"


async def test_open_files_are_limited():
    outcome, _ = await run_script("fs = [open(f'f{i}', 'w') for i in range(1000)]")
    assert outcome.kind == "OSError"
    assert "Too many open files" in outcome.message


async def test_output_files_do_not_count_as_memory():
    code = """
        data = bytes(25_000_000)
        for number in range(4):
            add_to_output_files(f"{number}.bin", data)
    """
    outcome, host = await run_script(script(code), memory_bytes=256 * MB)
    assert isinstance(outcome, Done), outcome
    assert [len(data) for data in host.files.values()] == [25_000_000] * 4


async def test_number_of_output_files_is_limited():
    outcome, host = await run_script("for i in range(5000): add_to_output_files(f'f{i}', '')")
    assert outcome.limit == "file"
    assert len(host.files) == 1000


# -- output -------------------------------------------------------------------------------


async def test_script_over_the_output_limit_is_ended():
    code = "for _ in range(1000):\n    try:\n        print('x' * 100_000)\n    except Exception:\n        pass"
    outcome, _ = await run_script(code)
    assert outcome.limit == "output"


async def test_short_prints_arrive_complete_in_batches():
    outcome, host = await run_script("for i in range(200_000): print(i)")
    assert isinstance(outcome, Done)
    assert host.text == "".join(f"{i}\n" for i in range(200_000))
    assert len(host.pieces) < 2_000


@pytest.mark.parametrize(
    "then", ["await asyncio.Event().wait()", "import time\ntime.sleep(1e9)", "while True: pass"]
)
@pytest.mark.parametrize("lines", [1, 15])
async def test_prints_arrive_while_the_script_runs(then, lines):
    host = NotingHost()
    async with local_session() as session:
        code = f"for number in range({lines}): print(number)\n{then}"
        running = asyncio.create_task(session.execute(code, host))
        expected = "".join(f"{number}\n" for number in range(lines))
        await until(lambda: host.text == expected)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# -- ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (POSIX + "posix._exit(7)", "status 7"),
        (POSIX + "posix.abort()", "SIGABRT"),
        (POSIX + "re.enum.sys.modules['_signal'].raise_signal(40)", "signal 40"),
        (POSIX + "re.enum.sys.modules['faulthandler']", None),
        (
            POSIX
            + "for fd in range(3, 64):\n    try: posix.close(fd)\n    except OSError: pass\nawait echo()",
            None,
        ),
        (
            POSIX
            + "for fd in range(3, 64):\n    try: posix.write(fd, b'x' * 100)\n    except OSError: pass\nawait echo()",
            None,
        ),
        (
            POSIX
            + "for fd in range(3, 64):\n    try: posix.write(fd, b'\\xff' * 100)\n    except OSError: pass\nawait echo()",
            None,
        ),
        (
            POSIX + "for fd in range(3, 64):\n    try: posix.read(fd, 1)\n    except OSError: pass",
            None,
        ),
        (
            "import ast\nast.literal_eval('(' * 50 + ')' * 50)\nast.dump(ast.parse('-' * 90_000 + '1'))",
            None,
        ),
        ("f = filter(None, [])\nfor _ in range(10**6): f = filter(None, f)\ndel f", None),
    ],
)
async def test_crashing_script_does_not_affect_the_host(code, words):
    host = NotingHost()
    async with local_session() as session:
        running = asyncio.create_task(session.execute(code, host))
        done, _ = await asyncio.wait({running}, timeout=3)
        if not done:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        elif words is not None:
            outcome = running.result()
            assert isinstance(outcome, Crashed)
            assert words in outcome.message
            assert outcome.by_script
    outcome, _ = await run_script("1 + 1")
    assert outcome.value == 2


async def test_script_cannot_imitate_a_kill_from_outside():
    """A script killed from outside is started once more, with all its limits again."""
    code = POSIX + script("""
        signal = re.enum.sys.modules['_signal']
        for number in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.raise_signal(number)
            except OSError as error:
                await echo(error.strerror)
        resource = re.enum.sys.modules['resource']
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        except (OSError, ValueError) as error:
            await echo(str(error))
        posix._exit(3)
    """)
    outcome, host = await run_script(code)
    assert outcome == Crashed(message="the sandbox ended by itself (status 3)", by_script=True)
    refused = ["Operation not permitted"]
    assert [call.args for call in host.calls] == [
        refused,
        refused,
        ["not allowed to raise maximum limit"],
    ]


async def test_kill_from_outside_is_not_blamed_on_the_script():
    host = NotingHost()
    async with local_session() as session:
        running = asyncio.create_task(session.execute("await echo()\nwhile True: pass", host))
        await host.called.wait()
        os.kill(session.process.pid, signal.SIGKILL)
        outcome = await running
    assert isinstance(outcome, Crashed)
    assert not outcome.by_script


async def test_garbage_on_the_wire_is_reported():
    code = (
        POSIX
        + "for fd in range(3, 64):\n    try: posix.write(fd, b'\\0\\0\\0\\5hello')\n    except OSError: pass\nawait asyncio.Event().wait()"
    )
    outcome, _ = await run_script(code)
    assert isinstance(outcome, Crashed)
    assert "cannot be read" in outcome.message
    assert outcome.by_script


async def test_forged_outcome_is_treated_as_the_scripts_own():
    forged = b'["done","forged",{}]'
    data = len(forged).to_bytes(4, "big") + forged
    code = (
        POSIX
        + f"for fd in range(3, 64):\n    try: posix.write(fd, {data!r})\n    except OSError: pass\nawait asyncio.Event().wait()"
    )
    outcome, _ = await run_script(code)
    assert outcome == Done(value="forged")


# -- calls --------------------------------------------------------------------------------


async def test_ten_thousand_concurrent_calls_are_answered():
    outcome, host = await run_script(
        "sum(r[0] for r in await asyncio.gather(*(echo(i) for i in range(10_000))))"
    )
    assert outcome.value == sum(range(10_000))
    assert len(host.calls) == 10_000


async def test_tools_reached_through_aliases_are_called():
    code = script("""
        import functools
        alias = shop.find
        calls = [alias(1), getattr(shop, 'find')(2), [shop.find][0](3), (lambda: shop.find(4))()]
        calls += [functools.partial(shop.find, 5)(), {'f': shop}['f'].find(6), shop.__getattr__('find')(7)]
        calls += map(shop.find, [8])
        await asyncio.gather(*calls)
        task = asyncio.create_task(shop.find(9))
        await task
    """)
    _, host = await run_script(code)
    assert sorted(call.args[0] for call in host.calls) == list(range(1, 10))
    assert {(call.connection, call.method) for call in host.calls} == {("shop", "find")}


async def test_unknown_tool_names_are_refused_by_the_host():
    _, host = await run_script("await shop.drop(1)\nawait shop.find()")
    assert [call.method for call in host.calls] == ["drop", "find"]


@pytest.mark.parametrize(
    "line",
    [
        "shop.find.confirm = False",
        "[shop][0]('x')",
        "[shop][0].find = print",
        "[shop.find][0].confirm = False",
        "found = [shop.find]\nprint(f'{found[0]}')",
        "found = [shop.find]\nprint(found[0])",
        "found = [shop.find]\nfound[0] == 'x'",
        "found = [shop.find]\nawait found[0]",
        "for one in [shop]:\n    await one",
        "for one in getattr(shop, 'find'):\n    pass",
        "'%s' % [shop][0]",
        "import json\njson.dumps([shop.find], default=str)",
        "del [shop][0].find",
    ],
)
async def test_tool_cannot_be_used_as_a_value(line):
    outcome, host = await run_script(f"{line}\nprint('done')")
    assert isinstance(outcome, Failed)
    assert re.search(r"shop(\.find)? is (named here and not called|a connection)", outcome.message)
    assert (host.text, host.calls) == ("", [])


async def test_oversized_value_raises_in_the_script():
    """A call with the value raises an error; a script's answer describes the value by its size."""
    code = "rows = [[] for _ in range(2_000_000)]\ntry:\n    await echo(rows)\nexcept ToolArgumentError as e:\n    print(e)\nrows"
    outcome, host = await run_script(code)
    assert "more than 5,000,000 values" in host.text
    assert outcome.value == "<list of 2000000 list>"


async def test_dead_process_is_noticed_while_calls_are_open():
    host = NotingHost()

    async def never():
        await asyncio.Event().wait()

    host.tools["shop.find"] = never
    code = "import asyncio\nfor n in range(2600): asyncio.ensure_future(shop.find())\nawait asyncio.sleep(0)\nwhile True: pass"
    outcome, _ = await run_script(code, host, cpu_seconds=0.5)
    assert outcome.limit == "cpu"


async def test_oversized_result_is_described():
    outcome, _ = await run_script("['x' * 2_000_000]", frame_bytes=MB)
    assert outcome.value == "<list of 1 str>"


async def test_tool_errors_are_catchable_exceptions():
    from delf.protocols.sandbox import Raised, ToolMessage

    host = NotingHost()

    async def find(kind):
        return ToolMessage("told") if kind == "told" else Raised(kind, f"a {kind}")

    host.tools["shop.find"] = find
    code = script("""
        for kind in ['ToolError', 'ToolException', 'ToolArgumentError', 'ToolNotAllowed', 'ApprovalRejected', 'Other']:
            try:
                await shop.find(kind)
            except ToolError as e:
                print(type(e).__name__, e)
        told = await shop.find('told')
        print(told, told.upper(), told[0], 'ol' in told)
        for use in (lambda: told['name'], lambda: list(told), lambda: told.rows):
            try:
                use()
            except ToolException as e:
                print('raised', e)
    """)
    outcome, _ = await run_script(code, host)
    assert isinstance(outcome, Done), outcome
    assert host.text == (
        "ToolError a ToolError\nToolException a ToolException\nToolArgumentError a ToolArgumentError\n"
        "ToolNotAllowed a ToolNotAllowed\nApprovalRejected a ApprovalRejected\nToolError a Other\n"
        "told TOLD t True\nraised told\nraised told\nraised told\n"
    )
