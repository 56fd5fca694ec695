"""A script that calculates for long gives way to others; one that waits does not."""

import asyncio
import os
import subprocess
import sys

import pytest

from delf_sandbox_local.priority import NICENESS, PATIENCE_SECONDS, used_seconds
from support.scripting import NotingHost, local_session, session_spec
from support.until import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's clocks of processes")

BUSY = "while True: pass"
PATIENT = "import asyncio\nawait asyncio.sleep(60)"


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Templates start here as they do for users."""


def niceness(pid):
    return os.getpriority(os.PRIO_PROCESS, pid)


async def until_nice(pid, above):
    await until(lambda: niceness(pid) > above)


async def test_a_busy_script_gives_way_and_a_waiting_one_does_not():
    usual = niceness(0)
    async with local_session() as waiting, local_session() as busy:
        scripts = [
            asyncio.create_task(session.execute(code, NotingHost()))
            for session, code in ((waiting, PATIENT), (busy, BUSY))
        ]
        await until_nice(busy.process.pid, usual)
        assert used_seconds(busy.process.pid) >= PATIENCE_SECONDS
        assert niceness(busy.process.pid) == min(usual + NICENESS, 19)
        assert niceness(waiting.process.pid) == usual
        for script in scripts:
            script.cancel()
        await asyncio.wait(scripts)


async def test_its_threads_give_way_with_it():
    code = (
        "import re\ndef work():\n    while True: pass\n"
        "re.enum.sys.modules['_thread'].start_new_thread(work, ())\nwork()"
    )
    usual = niceness(0)
    async with local_session(session_spec(processes=4)) as session:
        script = asyncio.create_task(session.execute(code, NotingHost()))
        pid = session.process.pid
        await until_nice(pid, usual)
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        assert {niceness(thread) for thread in threads} == {min(usual + NICENESS, 19)}
        assert len(threads) > 1
        script.cancel()
        await asyncio.wait({script})


async def test_a_process_that_is_over_is_looked_at_no_more():
    async with local_session() as session:
        await session.execute("1", NotingHost())
        priority = session.process._priority
        await session.aclose()
        assert priority._timer is None


def test_the_clock_of_another_process():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            while used_seconds(process.pid) < 0.05:
                pass
        finally:
            process.kill()
        assert used_seconds(process.pid) >= 0.05
    with pytest.raises(OSError, match="nvalid"):
        used_seconds(process.pid)
