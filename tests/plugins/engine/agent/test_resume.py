"""Tests that a resumed task repeats no recorded call and loses none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf import (
    Agent,
    AlreadyDone,
    Approved,
    Chat,
    ReplayMismatch,
    UnknownTaskError,
    tool,
)
from delf import events as ev
from delf.errors import (
    DelfError,
)
from delf_engine.journal.in_process import InProcessJournal
from support.forks import kill_guests
from support.resuming import (
    FIRST,
    SECOND,
    Bench,
    World,
    calls_of,
    prints_of,
    recorded,
    replayed,
    untimed,
)


class Crash:
    """The state of the outside world when the journal ended, and the person who inspects it."""

    def __init__(self, *, happened: bool) -> None:
        self._happened = happened
        self.world = World()

    def begin(self, world: World, events: Sequence[ev.Event]) -> None:
        """Restore the state of the outside world at the end of the journal.

        Args:
            world: The world.
            events: The journal.
        """
        self.world = world
        world.writes.clear()
        ended = {e.call_id for e in calls_of(events)}
        for event in events:
            if isinstance(event, ev.CallStarted) and (event.call_id in ended or self._happened):
                self._do(event)

    def _do(self, call: ev.CallStarted) -> None:
        if call.action == "write":
            self.world.writes.append(call.arguments["text"])
        elif call.action == "send":
            self.world.writes.append(f"sent {call.arguments['text']}")

    def decide(self, request: Any) -> Any:
        if not request.outcome_unknown:
            return True
        text = request.arguments["text"]
        if text in self.world.writes:
            return AlreadyDone(result=len(text))
        return AlreadyDone(result="ok") if f"sent {text}" in self.world.writes else Approved()


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.slow
async def test_resume_works_from_every_event(bench: Bench, happened: bool, tmp_path: Any) -> None:
    """Cut the journal after each event in turn; an unfinished call then did happen, or did not."""
    model, world = bench.model, World()
    model.writes(FIRST, SECOND)
    crash = Crash(happened=happened)
    async with bench.agent(world, crash.decide, output_dir=str(tmp_path)) as agent:
        whole = (await agent.arun("Do it.")).raise_for_status()
        task, writes = whole.trace.task_id, untimed(world.writes)
        events = await bench.journal.read(task)
        for end in range(1, len(events)):
            past = events[:end]
            await bench.journal.ended_after(past)
            replayed(model, past)
            crash.begin(world, past)
            if not any(isinstance(e, ev.FileWritten) for e in past):
                (tmp_path / "a.txt").unlink(missing_ok=True)
            response = (await agent.aresume(task)).raise_for_status()
            assert os.listdir(tmp_path) == ["a.txt"]
            assert (response.text, response.files) == (whole.text, whole.files), end
            assert untimed(world.writes) == writes, end
            now = await bench.journal.read(task)
            assert [e.seq for e in now] == list(range(1, len(now) + 1))
            assert len(calls_of(now)) == len(calls_of(events)), end
            assert sum(isinstance(e, ev.ModelReplied) for e in now) == 2
            assert prints_of(now) == prints_of(events), end


async def test_replayed_sets_keep_their_order(bench: Bench) -> None:
    """The order depends on a hash seed that each interpreter draws at its start."""
    bench.model.writes("for word in {'a', 'b', 'c', 'd', 'e', 'f'}: await write(word)")
    world = World()
    async with bench.agent(world) as agent:
        first = (await agent.arun("Write.")).raise_for_status()
    written = list(world.writes)
    events = await bench.journal.read(first.trace.task_id)
    await bench.journal.ended_after([e for e in events if e.seq < events[-1].seq - 4])
    async with bench.agent(world) as agent:
        (await agent.aresume(first.trace.task_id)).raise_for_status()
    assert world.writes[:6] == written
    assert len(world.writes) <= 7


async def test_resumed_task_keeps_its_original_time_zone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    bench.model.writes(
        "import time\nawait write(time.strftime('%z'))\nawait write(str(await look(1)))"
    )
    world = World()
    async with bench.agent(world) as agent:
        first = (await agent.arun("Write.")).raise_for_status()
    events = list(await bench.journal.read(first.trace.task_id))
    started = next(e for e in events if isinstance(e, ev.TaskStarted))
    assert (started.zone, started.zone_name) == ("JST-9", "Asia/Tokyo")
    place = max(i for i, e in enumerate(events) if isinstance(e, ev.CallStarted))
    await bench.journal.ended_after(events[:place])
    monkeypatch.setenv("TZ", "America/New_York")
    async with bench.agent(world) as agent:
        (await agent.aresume(first.trace.task_id)).raise_for_status()
    assert world.writes == ["+0900", "10", "10"]


async def test_finished_task_is_answered_from_the_journal(bench: Bench) -> None:
    bench.model.writes("print(await look(1))")
    world = World()
    async with bench.agent(world) as agent:
        first = await agent.arun("Look.")
        again = await agent.aresume(first.trace.task_id)
    assert (again.text, again.status, world.looks) == ("10", True, 1)


async def test_unknown_task_cannot_be_resumed(bench: Bench) -> None:
    async with bench.agent(World()) as agent:
        with pytest.raises(UnknownTaskError, match="task_x"):
            await agent.aresume("task_x")


async def test_changed_script_is_refused_in_replay(bench: Bench) -> None:
    """The script does not make the recorded call: nothing is called; the task stays resumable."""
    bench.model.writes("await write('x')\nprint(await look(1))")
    world = World()
    async with bench.agent(world) as agent:
        first = await agent.arun("Write.")
    written = list(world.writes)
    events = list(await bench.journal.read(first.trace.task_id))
    place = next(i for i, e in enumerate(events) if isinstance(e, ev.CallStarted))
    changed = [
        replace(e, digest="0" * 64) if isinstance(e, ev.CallStarted) else e
        for e in events[: place + 2]
    ]
    await bench.journal.ended_after(changed)
    async with bench.agent(world) as agent:
        response = await agent.aresume(first.trace.task_id)
    assert isinstance(response.exception, ReplayMismatch)
    assert "write (call 1)" in str(response.error)
    assert world.writes == written
    assert not isinstance((await bench.journal.read(first.trace.task_id))[-1], ev.TaskFinished)


async def test_task_timing_out_in_replay_can_be_resumed_again(
    bench: Bench,
) -> None:
    bench.model.writes("await asyncio.gather(write('x'), write('y'))\nprint(await look(1))")
    world = World()
    async with bench.agent(world) as agent:
        first = await agent.arun("Write.")
    events = list(await bench.journal.read(first.trace.task_id))
    place = max(i for i, e in enumerate(events) if isinstance(e, ev.CallStarted))
    changed = [
        replace(e, digest="0" * 64) if isinstance(e, ev.CallStarted) and e.call_id == 2 else e
        for e in events[:place]
    ]
    await bench.journal.ended_after(changed)
    async with bench.agent(world, timeout=1) as agent:
        response = await agent.aresume(first.trace.task_id)
    assert isinstance(response.exception, ReplayMismatch)
    assert "timed out before the replay reached" in str(response.error)
    assert not isinstance((await bench.journal.read(first.trace.task_id))[-1], ev.TaskFinished)


GIVES_UP = """
for call in (send("x"), look(1)):
    try:
        seen = await asyncio.wait_for(call, 0.3)
    except TimeoutError:
        seen = "nothing"
await write(str(seen))
print(seen)
"""


async def shown(bench: Bench, task: str) -> Sequence[ev.Event]:
    """Return what the journal records about a task."""
    return await bench.journal.read(task)


CLOCKS = """
import time
from time import perf_counter
began = perf_counter()
await write(f"{time.monotonic()} {time.monotonic_ns()} {time.perf_counter_ns()}")
await write(f"{time.process_time()} {time.thread_time_ns()} {time.clock_gettime(time.CLOCK_REALTIME)}")
deadline = asyncio.get_running_loop().time() + 0.01
await asyncio.sleep(0.005)
await write(f"took {perf_counter() - began}")
print(0 <= perf_counter() - began < 3600, time.process_time() >= 0)
print(time.get_clock_info("monotonic").monotonic, asyncio.get_running_loop().time() >= deadline - 0.01)
"""


async def test_replayed_clocks_show_recorded_times(bench: Bench) -> None:
    """This includes clocks without an epoch; after the record, all continue from its last time."""
    bench.model.writes(CLOCKS)
    world = World()
    async with bench.agent(world) as agent:
        whole = (await agent.arun("Time it.")).raise_for_status()
        written, task = list(world.writes), whole.trace.task_id
        assert whole.text == "True True\nTrue True"
        events = await bench.journal.read(task)
        ends = [n for n, e in enumerate(events, 1) if isinstance(e, ev.CallFinished)]
        for end in ends:
            await bench.journal.ended_after(events[:end])
            response = (await agent.aresume(task)).raise_for_status()
            assert response.text == whole.text
    assert len(ends) == 3
    assert world.writes[:3] == written
    assert [text.split()[0] == "took" for text in world.writes[3:]] == [False, True, True]


KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyz"


async def test_running_task_cannot_be_resumed(bench: Bench) -> None:
    bench.model.writes("print(await again())")
    agents: list[Agent] = []
    seen: list[ev.Event] = []

    @tool(effect="read")
    async def again() -> str:
        """Resume the task that runs."""
        try:
            await agents[0].aresume(seen[0].task_id)
        except DelfError as error:
            return error.message
        return "resumed"

    async with bench.agent(World(), more=[again]) as agent:
        agents.append(agent)
        response = await agent.arun("Go.", timeout=10, listeners=[seen.append])
    assert "is being worked on" in response.text


async def test_resumed_task_continues_in_its_conversation(bench: Bench) -> None:
    bench.model.writes("print(await look(1))")
    chat = Chat()
    async with bench.agent(World(), chat=chat) as agent:
        whole = await agent.arun("Look.", conversation_id="other")
    events = await bench.journal.read(whole.trace.task_id)
    await bench.journal.ended_after(events[:-1])
    chat = Chat()
    async with bench.agent(World(), chat=chat) as agent:
        (await agent.aresume(whole.trace.task_id)).raise_for_status()
    assert [record.conversation for record in chat.conversations()] == ["other"]


async def test_resumed_task_without_conversation_joins_none(bench: Bench) -> None:
    bench.model.writes("print(await look(1))")
    async with bench.agent(World()) as agent:
        events = await recorded(bench, agent)
    await bench.journal.ended_after(events[:-1])
    chat = Chat()
    async with bench.agent(World(), chat=chat) as agent:
        (await agent.aresume(events[0].task_id)).raise_for_status()
    assert not chat.messages


async def test_script_that_reached_a_limit_is_not_run_again(bench: Bench) -> None:
    """The repeated script starts without variables: its progress depends on the machine."""
    bench.model.writes(
        "kept = 7\nawait write('a')\nprint('x' * 100)\nawait write('b')",
        "print('kept' in globals(), await look(7))",
    )
    world = World()
    async with bench.agent(world, sandbox_config={"output_bytes": 50}) as agent:
        whole = (await agent.arun("Write.")).raise_for_status()
        events = await bench.journal.read(whole.trace.task_id)
        await bench.journal.ended_after(events[:-1])
        response = (await agent.aresume(whole.trace.task_id)).raise_for_status()
    assert (whole.text, response.text) == ("False 70", "False 70")
    assert world.writes == ["a"]


async def test_resumed_task_sees_the_recorded_clock_random_prints_and_files(
    bench: Bench, tmp_path: Path
) -> None:
    """These are the clock, random numbers, prints, files, and the approval of the script."""
    deaths: list[int] = []

    @tool(effect="read")
    def kill() -> int:
        """Kill every guest of this process, the first times."""
        if len(deaths) < 2:
            deaths.extend(kill_guests()[:1])
        return len(deaths)

    bench.model.writes(
        "import time, uuid\nfrom datetime import datetime\n"
        "stamp = f'{time.time_ns()} {uuid.uuid1()} {datetime.now()}'\nprint('one', stamp)\n"
        "add_to_output_files('a.txt', stamp)\nawait send('a')\nlater = str(time.time())\n"
        "try:\n    await asyncio.wait_for(hang(), 0.05)\nexcept TimeoutError:\n    print('late')\n"
        "await kill()\nawait send(stamp + later)\nawait kill()\nawait send(stamp + later + 'b')\n"
        "print('end', stamp)"
    )

    @tool(effect="write", confirm=False)
    async def hang() -> None:
        """Never come to an end."""
        await asyncio.Event().wait()

    world = World()
    options = {"confirm_mode": "plan", "output_dir": str(tmp_path)}
    async with bench.agent(world, more=[kill, hang], **options) as agent:
        response = (await agent.arun("Write.")).raise_for_status()
    stamp = (tmp_path / "a.txt").read_text()
    assert len(deaths) == 2
    assert [request.action for request in bench.asked] == ["script"]
    assert response.text.splitlines() == [f"one {stamp}", "late", f"end {stamp}"]
    first, second, third = world.writes
    assert (first, f"{second}b") == ("sent a", third)
    assert second.startswith(f"sent {stamp}")
    events = await bench.journal.read(response.trace.task_id)
    assert prints_of(events).strip() == response.text
    assert os.listdir(tmp_path) == ["a.txt"]
    assert sum(isinstance(e, ev.FileWritten) for e in events) == 1


def priced(events: Sequence[ev.Event], cost_usd: float) -> list[ev.Event]:
    return [
        replace(event, cost_usd=cost_usd) if isinstance(event, ev.ModelReplied) else event
        for event in events
    ]


async def test_cost_before_resume_counts_against_the_budget(bench: Bench) -> None:
    bench.model.writes("rerun(context='half', remaining='the rest')", "print(1)")
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    asked = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.RerunRequested))
    await bench.journal.ended_after(priced(events[:asked], 0.75))
    async with bench.agent(World(), budget_usd=0.5) as second:
        response = await second.aresume(events[0].task_id)
        assert second.total_cost_usd == 0.75
    assert (response.status, response.cost_usd) == (False, 0.75)
    assert "the budget of $0.5 is used up" in (response.error or "")


async def test_resumed_task_without_model_calls_may_exceed_its_budget(bench: Bench) -> None:
    bench.model.writes("print(await look(1))")
    async with bench.agent(World()) as first:
        events = await recorded(bench, first)
    written = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.ScriptGenerated))
    await bench.journal.ended_after(priced(events[:written], 0.75))
    async with bench.agent(World(), budget_usd=0.5) as second:
        assert (await second.aresume(events[0].task_id)).raise_for_status().text == "10"


async def test_resumed_model_gets_the_same_prompt(bench: Bench) -> None:
    """The prompt lists the changes of each failed script, but not those of a later script."""
    scripts = (
        "await write('bill of Ada')\n1 / 0",
        "await write('bill of Bob')\n1 / 0",
        "print('end')",
    )
    bench.model.writes(*scripts)
    async with bench.agent(World(), retry_count=2) as first:
        events = await recorded(bench, first)
    shown = bench.model.prompts[2]
    assert "- write(text='bill of Ada')" in shown
    assert "- write(text='bill of Bob')" in shown
    retried = [n for n, e in enumerate(events, 1) if isinstance(e, ev.RetryScheduled)]
    await bench.journal.ended_after(events[: retried[1]])
    bench.model.writes(scripts[2])
    async with bench.agent(World(), retry_count=2) as second:
        (await second.aresume(events[0].task_id)).raise_for_status()
    assert bench.model.prompts[-1] == shown


GIVING_UP = """
import asyncio
try:
    seen = await asyncio.wait_for(slow(), 0.05)
except TimeoutError:
    seen = "late"
print(seen, await write(seen))
"""


@pytest.mark.parametrize("how", ["it ends anyway", "its end is being written down"])
async def test_abandoned_call_is_not_answered_in_replay(bench: Bench, how: str) -> None:
    """The script never saw the call's end, so a replay does not answer it, wherever it was cut."""
    calls: list[str] = []

    @tool(effect="write", confirm=False)
    async def slow() -> str:
        """Come to an end, whoever cancels it."""
        calls.append("slow")
        if how == "it ends anyway":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "whole"
        return "whole"

    written: list[ev.Event] = []

    async def slow_to_write(event: ev.Event, append: Any = bench.journal.append) -> None:
        await append(event)
        if isinstance(event, ev.CallFinished) and event.action == "slow" and not written:
            written.append(event)
            await asyncio.Event().wait()

    if how == "its end is being written down":
        bench.journal.append = slow_to_write
    bench.model.writes(GIVING_UP)
    async with bench.agent(World(), more=[slow]) as first:
        events = await recorded(bench, first)
    bench.journal.append = InProcessJournal.append.__get__(bench.journal)
    (end,) = (e for e in calls_of(events) if e.action == "slow")
    assert (end.status, end.result) == ("ok", "whole")
    abandoned = next(n for n, e in enumerate(events, 1) if isinstance(e, ev.CallAbandoned))
    for last in range(abandoned, len(events)):
        world = World()
        await bench.journal.ended_after(events[:last])
        async with bench.agent(world, lambda _: AlreadyDone(result=4), more=[slow]) as second:
            response = (await second.aresume(events[0].task_id)).raise_for_status()
        assert response.text == "late 4", last
        assert calls == ["slow"], last
    assert {r.action for r in bench.asked} <= {"write"}
