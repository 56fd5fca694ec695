"""What every sandbox must do."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from delf.protocols.sandbox import (
    Available,
    Done,
    Failed,
    Outcome,
    Raised,
    Rerun,
    SandboxBackend,
    Told,
)
from delf.testing.contracts.base import needs
from delf.testing.contracts.bench import Bench
from delf.testing.contracts.sandbox_limits import SandboxLimits
from delf.testing.scripts import RecordingScriptHost
from delf.types import ISOLATION_ORDER

VALUES: tuple[Any, ...] = (
    None,
    True,
    -7,
    2**70,
    1.5,
    "Grüße 🦊 \u2028 \x00 ``` \\n",
    b"\x00\xff",
    [1, [2, {"a": None}]],
    (1, "b"),
    {1, 2},
    {"$t": "no tag", "": []},
    {1: "one", (2, 3): "pair"},
    dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.timezone.utc),  # noqa: UP017 - reads plainly
    dt.date(2026, 3, 1),
    dt.time(9, 30),
    dt.timedelta(days=1, microseconds=5),
    Decimal("12.50"),
    uuid.UUID(int=7),
)
_BIG = 5_000_000


def done(outcome: Outcome) -> Done:
    """The outcome, which has to be a success."""
    assert isinstance(outcome, Done), outcome
    return outcome


def failed(outcome: Outcome, kind: str | None = None) -> Failed:
    """The outcome, which has to be a failure of the script."""
    assert isinstance(outcome, Failed), outcome
    assert kind is None or outcome.kind == kind, outcome
    return outcome


class SandboxContract(SandboxLimits):
    """Give a fixture ``backend``: a fresh one; the suite closes it.

    Flags: ``cpython`` (any Python runs), ``input_files``, and the sets ``limits`` (which are
    kept: cpu, memory, output, file, frame) and ``confines`` (what is out of a script's reach:
    environment, files, network, processes). ``crash`` is a script that ends its interpreter
    at once, where one can.
    """

    async def test_works_here(self, backend: SandboxBackend) -> None:
        state = await self.within(backend.available())
        assert isinstance(state, Available), state
        assert backend.isolation in ISOLATION_ORDER
        await backend.aclose()

    # -- scripts ------------------------------------------------------------------------

    async def test_prints_in_order(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            done(await self.within(run("print('a', 1)\nprint('é 🦊', end='')\nprint()")))
            assert run.host.text == "a 1\né 🦊\n"

    async def test_gives_the_last_value(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            assert done(await self.within(run("x = 20\nx * 2 + 2"))).value == 42
            assert done(await self.within(run("y = 1"))).value is None
            assert done(await self.within(run(""))).value is None

    async def test_variables_live_on(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            first = done(await self.within(run("rows = [1, 2, 3]")))
            assert "rows" in first.variables
            assert done(await self.within(run("sum(rows)"))).value == 6
            failed(await self.within(run("rows.append(4)\n1 / 0")), "ZeroDivisionError")
            assert done(await self.within(run("rows"))).value == [1, 2, 3, 4]

    @needs("cpython")
    async def test_runs_any_python(self, backend: SandboxBackend) -> None:
        code = """
import asyncio, dataclasses, re
@dataclasses.dataclass
class Point:
    x: int
    def double(self): return Point(self.x * 2)
async def later(value):
    await asyncio.sleep(0)
    return value
if True:
    total = await later(1)
try:
    total += (await asyncio.gather(later(2), later(3)))[1]
finally:
    total += Point(5).double().x
match total:
    case 14: word = "yes"
    case _: word = "no"
[word, *(x for x in re.findall("[0-9]", "a1b2"))]
"""
        async with Bench(backend) as bench:
            assert done(await self.within(bench.run(code))).value == ["yes", "1", "2"]

    async def test_a_failure_names_its_line(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            outcome = failed(await self.within(run("x = [1]\n\nx[5]\nprint('no')")), "IndexError")
            assert outcome.line == 3
            assert outcome.source == "x[5]"
            assert "list" in outcome.message
            assert "x" in outcome.variables
            outcome = failed(await self.within(run("ok = 1\nif\n")), "SyntaxError")
            assert outcome.line == 2
            assert run.session.alive

    @needs("cpython")
    async def test_no_exception_ends_the_session(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            failed(await self.within(run("raise SystemExit(3)")))
            failed(await self.within(run("import asyncio\nraise asyncio.CancelledError()")))
            failed(await self.within(run("raise KeyboardInterrupt")))
            failed(await self.within(run("def f(): return f()\nf()")), "RecursionError")
            assert done(await self.within(run("'still here'"))).value == "still here"

    async def test_imports_outside_the_policy_are_refused(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run("import subprocess", modules=("math", "json")))
            message = failed(outcome).message
            assert "subprocess" in message
            assert "json" in message, "it does not say what is allowed"
            assert "math" in message
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run("import math\nmath.floor(2.5)"))
            assert done(outcome).value == 2

    async def test_asks_for_another_pass(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            code = "n = 3\nrerun('found n', 'use n', ['n'])\nprint('no')"
            outcome = await self.within(run(code))
            assert isinstance(outcome, Rerun), outcome
            assert (outcome.context, outcome.remaining) == ("found n", "use n")
            assert "n" in outcome.carry
            assert run.host.text == ""
            assert done(await self.within(run("n"))).value == 3

    # -- calls --------------------------------------------------------------------------

    async def test_calls_come_to_the_host(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"add": lambda a, b: a + b, "desk.find": lambda **kw: [kw]})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            code = "[await add(1, b=2), await desk.find(state='open', limit=5)]"
            value = done(await self.within(run(code))).value
        assert value == [3, [{"state": "open", "limit": 5}]]
        assert [(call.connection, call.method) for call in host.calls] == [
            ("add", ""),
            ("desk", "find"),
        ]
        assert (list(host.calls[0].args), dict(host.calls[0].kwargs)) == ([1], {"b": 2})

    async def test_values_cross_both_ways(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"give": lambda number: VALUES[number], "take": lambda v: v})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            for number, value in enumerate(VALUES):
                outcome = await self.within(run(f"await take(await give({number}))"))
                back = done(outcome).value
                assert (back, type(back)) == (value, type(value))
                assert host.calls[-1].args[0] == value

    async def test_large_values_cross_both_ways(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"give": lambda: "é" * _BIG, "take": len})
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run("await take((await give()) + 'x')", host))
            assert done(outcome).value == _BIG + 1

    async def test_calls_one_after_another(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"double": lambda n: n * 2})
        async with Bench(backend) as bench:
            code = "total = 0\nfor n in range(200):\n    total += await double(n)\ntotal"
            assert done(await self.within(bench.run(code, host))).value == 39800
        assert [call.args[0] for call in host.calls] == list(range(200))

    async def test_gathered_calls_overlap(self, backend: SandboxBackend) -> None:
        everyone, waiting = asyncio.Event(), 0

        async def meet(number: int) -> int:
            nonlocal waiting
            waiting += 1
            if waiting == 50:
                everyone.set()
            await everyone.wait()
            return number

        code = "import asyncio\nawait asyncio.gather(*(meet(n) for n in range(50)))"
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run(code, RecordingScriptHost({"meet": meet})))
        assert list(done(outcome).value) == list(range(50))

    async def test_errors_of_calls_can_be_caught(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost(
            {
                "broken": lambda: Raised("ToolError", "the desk burns"),
                "refused": lambda: Raised("ApprovalRejected", "Ann said no"),
                "bad": lambda: Raised("ToolArgumentError", "limit must be a number"),
                "told": lambda: Told("not today"),
            }
        )
        code = """
said = []
for call, kind in ((broken, ToolError), (refused, ApprovalRejected), (bad, ToolArgumentError)):
    try:
        await call()
    except kind as error:
        said.append(str(error))
said.append(str(await told()))
said
"""
        async with Bench(backend) as bench:
            run = await bench.open(host)
            value = done(await self.within(run(code))).value
            assert value == ["the desk burns", "Ann said no", "limit must be a number", "not today"]
            outcome = failed(await self.within(run("x = 1\nawait refused()")), "ApprovalRejected")
            assert (outcome.line, outcome.message) == (2, "Ann said no")

    async def test_an_unknown_name_is_refused_by_the_host(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"desk.find": lambda: 1})
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run("await desk.burn()", host))
        assert "desk.burn" in failed(outcome).message

    async def test_a_call_that_is_not_awaited_is_an_error(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"pay": lambda: 1})
        async with Bench(backend) as bench:
            outcome = await self.within(bench.run("pay()\nprint('paid')", host))
        assert "pay" in failed(outcome).message
        assert host.calls == []

    async def test_what_a_call_returns_and_cannot_cross_is_an_error(
        self, backend: SandboxBackend
    ) -> None:
        host = RecordingScriptHost({"get": object})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            assert "object" in failed(await self.within(run("await get()")), "ToolError").message
            assert done(await self.within(run("1"))).value == 1

    async def test_a_script_can_cancel_a_call(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"wait": asyncio.Event().wait, "ok": lambda: "ok"})
        code = """
import asyncio
task = asyncio.ensure_future(wait())
await ok()
task.cancel()
try:
    await task
except asyncio.CancelledError:
    pass
await ok()
"""
        async with Bench(backend) as bench:
            assert done(await self.within(bench.run(code, host))).value == "ok"
        assert host.cancelled == ["wait"]

    async def test_nothing_is_called_after_the_end(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost({"pay": lambda n: n, "ok": lambda: "ok"})
        code = """
import asyncio
async def later():
    while True:
        await asyncio.sleep(0)
        await pay(1)
task = asyncio.ensure_future(later())
await ok()
"""
        async with Bench(backend) as bench:
            run = await bench.open(host)
            await self.within(run(code))
            before = len(host.calls)
            for _ in range(5):
                done(await self.within(run("await ok()")))
            assert len(host.calls) == before + 5, "a task of an earlier script still calls"

    # -- files --------------------------------------------------------------------------

    async def test_files_are_handed_over(self, backend: SandboxBackend) -> None:
        code = """
add_to_output_files("a.txt", "Grüße")
add_to_output_files("folder/b.bin", bytes(range(256)) * 8192)
add_to_output_files("c.csv", [{"a": 1, "b": "x,y"}])
add_to_output_files("empty.txt", "")
"""
        async with Bench(backend) as bench:
            run = await bench.open()
            done(await self.within(run(code)))
        assert run.host.files == {
            "a.txt": "Grüße".encode(),
            "folder/b.bin": bytes(range(256)) * 8192,
            "c.csv": b'a,b\n1,"x,y"\n',
            "empty.txt": b"",
        }

    @pytest.mark.parametrize("name", ["../a", "/etc/passwd", "", "a/../../b", "~/a", "a\0b"])
    async def test_file_names_stay_in_their_folder(
        self, backend: SandboxBackend, name: str
    ) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            outcome = await self.within(run(f"add_to_output_files({name!r}, 'x')"))
        assert not isinstance(outcome, Done)
        assert run.host.files == {}

    @needs("input_files")
    async def test_input_files_can_be_read(self, backend: SandboxBackend, tmp_path: Path) -> None:
        path = tmp_path / "in put é.txt"
        path.write_text("Grüße", encoding="utf-8")
        shown = backend.visible_path(str(path))
        async with Bench(backend) as bench:
            run = await bench.open(files=(str(path),))
            assert done(await self.within(run(f"open({shown!r}).read()"))).value == "Grüße"
            failed(await self.within(run(f"open({shown!r}, 'w')")))
        assert path.read_text(encoding="utf-8") == "Grüße"

    @needs("cpython")
    async def test_scratch_files_can_be_written(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            code = "with open('notes.txt', 'w') as f: f.write('x')\nopen('notes.txt').read()"
            assert done(await self.within(run(code))).value == "x"

    # -- sessions -----------------------------------------------------------------------

    async def test_sessions_are_apart(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            runs = [await bench.open() for _ in range(3)]
            outcomes = await self.within(
                asyncio.gather(*(run(f"me = {n}\nme") for n, run in enumerate(runs)))
            )
            assert [done(outcome).value for outcome in outcomes] == [0, 1, 2]
            await runs[0].session.aclose()
            assert done(await self.within(runs[1]("me"))).value == 1
            failed(await self.within((await bench.open())("me")), "NameError")

    async def test_can_prepare_sessions(self, backend: SandboxBackend) -> None:
        warm_up = getattr(backend, "warm_up", None)
        async with Bench(backend) as bench:
            host = RecordingScriptHost({"ok": lambda: "ok"})
            if warm_up is not None:
                await self.within(warm_up(host.spec()))
            assert done(await self.within(bench.run("await ok()", host))).value == "ok"

    async def test_does_a_task_of_an_agent(self, backend: SandboxBackend) -> None:
        from delf.agent import Agent
        from delf.specs import SandboxSpec
        from delf.testing.hosts import TestHost
        from delf.testing.models import ScriptedModel
        from delf.tools import tool

        @tool(effect="read", confirm=False)
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        host = TestHost.discover(environ={})
        model = ScriptedModel().writes("print('sum:', await add(1, b=2))")
        host.provide(model.spec, model.factory)
        spec = SandboxSpec(
            name="under-test", summary="x", factory="x:y", isolation=backend.isolation
        )
        host.provide(spec, lambda **_options: backend)
        agent = Agent(tools=[add], llm="scripted", host=host, sandbox="under-test")
        async with agent:
            response = await self.within(agent.arun("Add."))
        assert response.raise_for_status().text.strip() == "sum: 3"
