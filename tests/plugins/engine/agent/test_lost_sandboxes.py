"""Tests that a task continues in another sandbox when its sandbox dies, and repeats nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from delf import events as ev
from delf import (
    tool,
)
from delf.errors import (
    SandboxUnavailableError,
)
from delf_engine import task_sandbox
from delf_engine.journal.recording import RecordedCall
from delf_sandbox_local.backend import LocalBackend
from support.forks import guests, kill_guests, templates
from support.resuming import Bench, World
from support.until import until


async def test_sandbox_that_dies_is_replaced(bench: Bench) -> None:
    """The calls of its scripts are not made again, and their variables are restored."""
    deaths: list[int] = []

    @tool(effect="read")
    def kill() -> int:
        """Kill every guest of this process, the first time."""
        if not deaths:
            deaths.extend(kill_guests())
        return len(deaths)

    bench.model.writes(
        "x = await look(1)\nawait write('one')\nrerun(context='c', remaining='r')",
        "await kill()\nawait write(f'two {x}')\nprint('end', x)",
    )
    world = World()
    async with bench.agent(world, more=[kill]) as agent:
        response = (await agent.arun("Write.")).raise_for_status()
    assert response.text == "end 10"
    assert (world.writes, world.looks) == (["one", "two 10"], 1)
    assert len(response.trace.scripts) == 2
    assert "run once more" in response.trace.warnings[-1]


async def test_task_waits_for_a_briefly_unavailable_sandbox_server(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container engine, for example, may be restarting."""
    monkeypatch.setattr(task_sandbox, "PAUSES", (0.01,) * 9)
    away: list[str] = []

    @tool(effect="read", confirm=False)
    async def restart() -> int:
        """Restart it."""
        if not away:
            opens = LocalBackend.open

            async def refuses(_self: LocalBackend, _spec: Any) -> Any:
                away.append("away")
                if len(away) > 8:
                    monkeypatch.setattr(LocalBackend, "open", opens)
                raise SandboxUnavailableError("the engine does not answer")

            monkeypatch.setattr(LocalBackend, "open", refuses)
            kill_guests()
            await asyncio.Event().wait()
        return 1

    bench.model.writes("await write('one')\nawait restart()\nprint(await write('two'))")
    world = World()
    async with bench.agent(world, more=[restart]) as agent:
        response = (await agent.arun("Do.")).raise_for_status()
    assert (response.text, world.writes) == ("3", ["one", "two"])
    assert len(away) > 8


async def test_resumed_task_continues_after_its_sandbox_dies(bench: Bench) -> None:
    """The answers of models after the interrupted script are still in the journal."""
    deaths: list[int] = []

    bench.model.writes(
        "x = await look(1)\nprint('one')\nrerun(context='c', remaining='r')",
        "print(await write(f'two {x}'))\nprint(await look(2))",
    )
    world = World()
    async with bench.agent(world) as agent:
        whole = (await agent.arun("Write.")).raise_for_status()
        task = whole.trace.task_id
        events = await bench.journal.read(task)
        place = next(i for i, e in enumerate(events) if getattr(e, "action", "") == "write")
        await bench.journal.ended_after(events[: place + 2])
        answer = RecordedCall.answer

        def dying(past: RecordedCall) -> Any:
            if not deaths:
                deaths.extend(kill_guests())
            return answer(past)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordedCall, "answer", dying)
            response = (await agent.aresume(task)).raise_for_status()
    assert deaths
    assert (response.text, world.writes) == (whole.text, ["two 10"])
    now = await bench.journal.read(task)
    assert sum(isinstance(e, ev.ScriptGenerated) for e in now) == 2


async def test_dead_guest_is_replaced_and_variables_are_restored(
    bench: Bench,
) -> None:
    """The second script finds the first one's variables, and no call is repeated."""
    deaths: list[int] = []

    async def die(_request: Any) -> str:
        deaths.extend(kill_guests())
        await until(lambda: not ({*guests()} & {*deaths}))  # until the host, too, knows
        return "```python\nprint(found, await look(2))\n```"

    bench.model.writes("found = await write('x')\nrerun('found it', 'print it')")
    bench.model.says(die)
    world = World()
    async with bench.agent(world) as agent:
        response = (await agent.arun("Find it.")).raise_for_status()
    assert deaths
    assert (response.text, world.writes, world.looks) == ("1 20", ["x"], 1)
    assert "the script is run once more" in "".join(response.trace.warnings)


async def test_script_that_exits_its_sandbox_is_not_repeated(bench: Bench) -> None:
    """The script gets no second run with new limits; another script continues."""
    exits = "import re\nre.enum.sys.modules['posix']._exit(3)"
    bench.model.writes(f"await write('x')\n{exits}", "print('another')")
    world = World()
    async with bench.agent(world) as agent:
        response = (await agent.arun("Exit.")).raise_for_status()
    assert (response.text, world.writes) == ("another", ["x"])
    events = await bench.journal.read(response.trace.task_id)
    assert sum(isinstance(e, ev.SandboxOpened) for e in events) == 2
    assert (
        "The script has already made these changes; do not repeat them:\n- write(text='x')"
        in bench.model.prompts[-1]
    )


async def test_dead_sandbox_template_is_restarted_on_resume(bench: Bench) -> None:
    bench.model.writes("print(await write('x'), await look(1))")
    world = World()
    async with bench.agent(world) as agent:
        whole = (await agent.arun("Write.")).raise_for_status()
        events = await bench.journal.read(whole.trace.task_id)
        place = next(i for i, e in enumerate(events) if isinstance(e, ev.CallFinished))
        await bench.journal.ended_after(events[: place + 1])
        for pid in templates():
            os.kill(pid, signal.SIGKILL)
        response = (await agent.aresume(whole.trace.task_id)).raise_for_status()
    assert (response.text, world.writes) == (whole.text, ["x"])
