"""Duties of every sandbox."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from delf.protocols.sandbox import (
    Available,
    Done,
    Rerun,
    SandboxBackend,
    Unavailable,
)
from delf.types import ISOLATION_ORDER
from delf_devkit.testing.contracts.base import needs
from delf_devkit.testing.contracts.bench import Bench, require_done, require_failed
from delf_devkit.testing.contracts.sandbox_calls import SandboxCalls
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_engine.sandboxes.isolation import CHANGES_INPUTS, FIND_POSIX

_LARGE = 3_000_000

# Scripts that try to change the input file ``path``.
_CHANGES = {
    "append to": "with open(path, 'a') as f: f.write('2')",
    "overwrite": "with open(path, 'r+') as f: f.write('xx')",
    "truncate": "import os\nos.truncate(path, 0)",
    "remove": "import os\nos.remove(path)",
    "replace": "import os\nopen('new', 'w').write('x')\nos.replace('new', path)",
    "overwrite after chmod": "import os\nos.chmod(path, 438)\nopen(path, 'w').write('x')",
    "write beside": "import os\nopen(os.path.dirname(path) + '/new', 'w').write('x')",
    "change by a system call": f"INPUTS = [path]\n{FIND_POSIX}\n{CHANGES_INPUTS}",
}


class SandboxContract(SandboxCalls):
    """Tests for a sandbox backend; needs a fixture ``backend``, which the suite closes.

    Flags: ``cpython`` (full Python is supported) and ``input_files`` (scripts can read input
    files). ``limits`` names the limits that the sandbox enforces: ``cpu``, ``memory``, ``output``,
    ``file``, ``open_files``, ``frame`` for the size of a call's arguments or result, and
    ``scratch`` for the disk space of a session. ``confines`` names the resources that scripts
    cannot reach: ``environment``, ``files``, ``network``, ``processes``. ``crash`` is a script that
    kills its interpreter; None if no script can.
    """

    async def test_backend_works_on_this_machine(self, backend: SandboxBackend) -> None:
        state = await backend.available()
        assert isinstance(state, Available), state
        assert backend.isolation in ISOLATION_ORDER
        async with Bench(backend):
            if backend.isolation != "process":
                await self._check_claimed_isolation(backend)

    async def test_available_never_raises(
        self, backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))  # an empty folder, so no program is found
        try:
            state = await backend.available()
        except Exception as error:
            pytest.fail(
                f"available() raises {error!r} where no program is installed: return Unavailable "
                "with the reason and a hint"
            )
        assert isinstance(state, (Available, Unavailable)), state

    async def test_open_does_not_block_the_event_loop(self, backend: SandboxBackend) -> None:
        host = RecordingScriptHost()

        async def use() -> None:
            session = await backend.open(host.spec())
            require_done(await session.execute("1", host))
            await session.aclose()

        async with Bench(backend):
            await use()  # the first session also makes the parts that all sessions share
            await self.check_loop_stays_free(use)

    async def _check_claimed_isolation(self, backend: SandboxBackend) -> None:
        """Fail if scripts can reach more of the machine than the claimed isolation allows."""
        measured = await self._measure_once(backend)
        max_isolation = measured.trusted_isolation(backend.isolation)
        if max_isolation == backend.isolation:
            return
        if measured.reached:
            evidence = f"a script could access {', '.join(measured.reached)}"
        elif measured.can_make_system_calls:
            evidence = "a script could make system calls of the host's kernel"
        else:
            # Only system calls can show that a sandbox has a kernel of its own.
            evidence = "the tests could make no system call, so they confirm no stronger isolation"
        pytest.fail(
            f"the backend claims the isolation {backend.isolation!r}, but {evidence}: the "
            f"isolation is at most {max_isolation!r}"
        )

    # -- scripts ------------------------------------------------------------------------

    async def test_prints_arrive_in_order(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            require_done(await run("print('a', 1)\nprint('é 🦊', end='')\nprint()"))
            assert run.host.text == "a 1\né 🦊\n"

    async def test_script_returns_its_last_value(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            assert require_done(await run("x = 20\nx * 2 + 2")).value == 42
            assert require_done(await run("y = 1")).value == 1
            assert require_done(await run("")).value is None

    async def test_variables_persist_between_scripts(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            first = require_done(await run("rows = [1, 2, 3]"))
            assert "rows" in first.variables
            assert require_done(await run("sum(rows)")).value == 6
            require_failed(await run("rows.append(4)\n1 / 0"), "ZeroDivisionError")
            assert require_done(await run("rows")).value == [1, 2, 3, 4]

    @needs("cpython")
    async def test_backend_runs_common_python(self, backend: SandboxBackend) -> None:
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
            assert require_done(await bench.run(code)).value == ["yes", "1", "2"]
            code = "with open('notes.txt', 'w') as f: f.write('x')\nopen('notes.txt').read()"
            assert require_done(await bench.run(code)).value == "x"

    async def test_failure_has_its_line(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            outcome = require_failed(await run("x = [1]\n\nx[5]\nprint('no')"), "IndexError")
            assert outcome.line == 3
            assert outcome.source == "x[5]"
            assert "list" in outcome.message
            assert "x" in outcome.variables
            outcome = require_failed(await run("ok = 1\nif\n"), "SyntaxError")
            assert outcome.line == 2
            assert run.session.alive

    @needs("cpython")
    async def test_session_survives_every_exception(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            require_failed(await run("raise SystemExit(3)"))
            require_failed(await run("import asyncio\nraise asyncio.CancelledError()"))
            require_failed(await run("raise KeyboardInterrupt"))
            require_failed(await run("def f(): return f()\nf()"), "RecursionError")
            assert require_done(await run("'still here'")).value == "still here"

    async def test_imports_outside_the_policy_are_refused(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            outcome = await bench.run("import subprocess\nsubprocess", modules=("math", "json"))
            message = require_failed(outcome).message
            assert "subprocess" in message
            assert "json" in message, "it does not say what is allowed"
            assert "math" in message
        async with Bench(backend) as bench:
            outcome = await bench.run("import math\nmath.floor(2.5)")
            assert require_done(outcome).value == 2

    async def test_rerun_is_an_outcome(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            code = "n = 3\nrerun('found n', 'use n', ['n'])\nprint('no')"
            outcome = await run(code)
            assert isinstance(outcome, Rerun), outcome
            assert (outcome.context, outcome.remaining) == ("found n", "use n")
            assert "n" in outcome.carry
            assert run.host.text == ""
            assert require_done(await run("n")).value == 3

    async def test_argument_errors_use_the_names_of_the_script(
        self, backend: SandboxBackend
    ) -> None:
        """Check that argument errors use the script's names and show the usage."""
        usage_by_wrong_call = {
            "rerun()": "rerun(context, remaining)",
            "rerun('found')": "rerun(context, remaining)",
            "rerun('a', 'b', [], 4)": "rerun(context, remaining)",
            "rerun(text='a', remaining='b')": "rerun(context, remaining)",
            "add_to_output_files()": "add_to_output_files(name, content)",
            "add_to_output_files('a', 'b', 'c')": "add_to_output_files(name, content)",
            "add_to_output_files(path='a', content='b')": "add_to_output_files(name, content)",
        }
        async with Bench(backend) as bench:
            run = await bench.open()
            for code, usage in usage_by_wrong_call.items():
                outcome = require_failed(await run(code))
                assert outcome.kind == "TypeError", outcome
                assert usage in outcome.message
                # Names of delf's own code, such as _Session.rerun(), must not be in the message.
                assert "_" not in outcome.message.replace("add_to_output_files", "")
                assert "Session" not in outcome.message

    # -- files --------------------------------------------------------------------------

    async def test_output_files_reach_the_host(self, backend: SandboxBackend) -> None:
        code = """
add_to_output_files("a.txt", "Grüße")
add_to_output_files("folder/b.bin", bytes(range(256)) * 8192)
add_to_output_files("c.csv", [{"a": 1, "b": "x,y"}])
add_to_output_files("empty.txt", "")
"""
        async with Bench(backend) as bench:
            run = await bench.open()
            require_done(await run(code))
        expected = {
            "a.txt": "Grüße".encode(),
            "folder/b.bin": bytes(range(256)) * 8192,
            "c.csv": b'a,b\n1,"x,y"\n',
            "empty.txt": b"",
        }
        # Only names are asserted, not contents: if the environment variable CI is set, pytest takes
        # minutes to print how two megabytes differ.
        wrong = [name for name, data in expected.items() if run.host.files.get(name) != data]
        assert not wrong
        assert set(run.host.files) == set(expected)

    async def test_unsafe_file_names_are_refused(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            for name in ("../a", "/etc/passwd", "", "a/../../b", "~/a", "a\0b"):
                if not run.session.alive:  # a sandbox may end the session at such a name
                    run = await bench.open()
                outcome = await run(f"add_to_output_files({name!r}, 'x')")
                assert not isinstance(outcome, Done), name
                assert run.host.files == {}

    @needs("input_files")
    async def test_input_files_can_be_read(self, backend: SandboxBackend, tmp_path: Path) -> None:
        path = tmp_path / "in put é.txt"
        path.write_text("Grüße", encoding="utf-8")
        visible = backend.visible_path(str(path))
        async with Bench(backend) as bench:
            run = await bench.open(files=(str(path),))
            assert require_done(await run(f"open({visible!r}).read()")).value == "Grüße"
            assert require_done(await run(f"open({path.name!r}).read()")).value == "Grüße"
            require_failed(await run(f"open({visible!r}, 'w')"))
        assert path.read_text(encoding="utf-8") == "Grüße"

    @needs("input_files")
    async def test_session_sees_only_its_input_files(
        self, backend: SandboxBackend, tmp_path: Path
    ) -> None:
        paths = [tmp_path / name / "data.txt" for name in ("a", "b", "c")]
        for path in paths:
            path.parent.mkdir()
            path.write_text(f"of {path.parent.name}", encoding="utf-8")
        visible_paths = [backend.visible_path(str(path)) for path in paths]
        async with Bench(backend) as bench:
            run = await bench.open(files=(str(paths[0]), str(paths[1])))
            for path, name in zip(paths[:2], visible_paths[:2], strict=True):
                text = require_done(await run(f"open({name!r}).read()")).value
                assert text == f"of {path.parent.name}", (
                    f"two input files in different folders have the same name, and {path} was read "
                    f"as {text!r}: keep their folders apart"
                )
            other = await bench.open(files=(str(paths[2]),))
            assert require_done(await other(f"open({visible_paths[2]!r}).read()")).value == "of c"
            if "files" in self.confines:
                for name in visible_paths[:2]:
                    outcome = await other(f"open({name!r}).read()")
                    assert not isinstance(outcome, Done), (
                        f"a task reads {outcome.value!r}, the input file of another task"
                    )

    @needs("input_files", "cpython")
    async def test_input_file_arrives_whole(self, backend: SandboxBackend, tmp_path: Path) -> None:
        path = tmp_path / "orders.csv"
        content = b"\r\n\xff\x00" + bytes(_LARGE) + b"\r\n"
        path.write_bytes(content)
        visible = backend.visible_path(str(path))
        async with Bench(backend) as bench:
            run = await bench.open(files=(str(path),))
            reading = f"data = open({visible!r}, 'rb').read()\n[len(data), data[:4], data[-2:]]"
            data = require_done(await run(reading)).value
        assert data == [len(content), content[:4], content[-2:]], (
            f"an input file of {len(content):,} bytes arrives as {data!r}: scripts would "
            "work with other data than the user's; hand over all bytes"
        )

    @needs("input_files", "cpython")
    async def test_next_task_reads_a_changed_input_file(
        self, backend: SandboxBackend, tmp_path: Path
    ) -> None:
        path = tmp_path / "prices.csv"
        visible = backend.visible_path(str(path))
        async with Bench(backend) as bench:
            for content in ("id\n1\n", "id\n2\n"):
                path.write_text(content, encoding="utf-8")
                run = await bench.open(files=(str(path),))
                text = require_done(await run(f"open({visible!r}).read()")).value
                assert text == content, (
                    f"the user has changed an input file, and the next task reads {text!r}: "
                    "make a copy for each session"
                )

    @needs("input_files", "cpython", "confines:files")
    async def test_siblings_of_input_files_are_hidden(
        self, backend: SandboxBackend, tmp_path: Path
    ) -> None:
        path, sibling = tmp_path / "orders.csv", tmp_path / "salaries.csv"
        path.write_text("id\n1\n", encoding="utf-8")
        sibling.write_text("Ann,9000", encoding="utf-8")
        # The sandbox may show the input file under another path than the file's own.
        path_by_sandbox = backend.visible_path(str(sibling))
        path_beside_input = str(Path(backend.visible_path(str(path))).with_name(sibling.name))
        async with Bench(backend) as bench:
            run = await bench.open(files=(str(path),))
            for sibling_path in (path_by_sandbox, path_beside_input):
                outcome = await run(f"open({sibling_path!r}).read()")
                assert not isinstance(outcome, Done), (
                    f"a script reads {sibling.name}, a file beside its input file: give the "
                    "sandbox the input files alone, not their folders"
                )

    @needs("input_files", "cpython", "confines:files")
    async def test_input_files_cannot_be_changed(
        self, backend: SandboxBackend, tmp_path: Path
    ) -> None:
        path = tmp_path / "orders.csv"
        path.write_text("id\n1\n", encoding="utf-8")
        visible = backend.visible_path(str(path))
        async with Bench(backend) as bench:
            for name, code in _CHANGES.items():
                run = await bench.open(files=(str(path),))
                await run(f"path = {visible!r}\n{code}")
                await run.session.aclose()
                text = path.read_text(encoding="utf-8") if path.is_file() else "nothing"
                assert text == "id\n1\n", (
                    f"a script could {name} the user's input file, which now holds {text!r}: bind "
                    "it read-only, or give the sandbox a copy"
                )
                next_outcome = await (await bench.open(files=(str(path),)))(
                    f"open({visible!r}).read()"
                )
                assert require_done(next_outcome).value == "id\n1\n", (
                    f"a script could {name} the copy of an input file, and the next task gets that "
                    "copy: make one for each session"
                )
        assert os.listdir(tmp_path) == ["orders.csv"], (  # noqa: PTH208 - async
            "a script left a file beside the user's input file: its folder is bound writable"
        )

    @needs("cpython")
    async def test_sessions_have_separate_working_folders(self, backend: SandboxBackend) -> None:
        names = ("left.txt", ".left", ".cache/left", "folder/left")
        find_files = f"import os\n[name for name in {names!r} if os.path.exists(name)]"
        leave_files = f"""
import os
for name in {names!r}:
    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
    open(name, 'w').write('of another')
"""
        async with Bench(backend) as bench:
            first = await bench.open()
            second = await bench.open()
            require_done(await first(leave_files))
            assert require_done(await second(find_files)).value == [], (
                "a task reads a file that another left in the working folder: give each session "
                "a folder of its own"
            )
            await first.session.aclose()
            later = await bench.open()
            assert require_done(await later(find_files)).value == [], (
                "a later task reads a file that an earlier one left: remove the folder with its "
                "session"
            )

    # -- sessions -----------------------------------------------------------------------

    async def test_sessions_are_isolated(self, backend: SandboxBackend) -> None:
        async with Bench(backend) as bench:
            # Concurrent sessions have variables and outputs of their own.
            runs = [await bench.open() for _ in range(3)]
            outcomes = await asyncio.gather(*(run(f"me = {n}\nme") for n, run in enumerate(runs)))
            assert [require_done(outcome).value for outcome in outcomes] == [0, 1, 2]
            await asyncio.gather(*(run(f"print('of {n}')") for n, run in enumerate(runs)))
            texts = [run.host.text for run in runs]
            assert texts == [f"of {n}\n" for n in range(len(runs))], (
                f"what three sessions printed at one time arrived as {texts!r}: one user sees the "
                "answer of another"
            )
            # A session's change of a module reaches neither an open session nor a later one.
            await runs[0]("import json\njson.dumps = None\nimport math\nmath.pi = 3")
            await runs[0].session.aclose()
            assert require_done(await runs[1]("me")).value == 1
            fresh = await bench.open()
            require_failed(await fresh("me"), "NameError")
            answer = await fresh("import json, math\n[json.dumps(1), math.pi > 3.1]")
            assert require_done(answer).value == ["1", True], (
                "a script changed a module, and a later session has the changed one: give each "
                "session a process of its own, as it was started"
            )
            # Sessions that are opened at one time keep their tools apart.
            names = ("one", "two")
            hosts = [RecordingScriptHost({name: partial(str, name)}) for name in names]
            opened = await asyncio.gather(*(bench.open(host) for host in hosts))
            for name, run in zip(names, opened, strict=True):
                outcome = await run(f"await {name}()")
                assert getattr(outcome, "value", None) == name, (
                    f"two sessions that are opened at one time are mixed up: {outcome!r}"
                )

    async def test_backend_prepares_sessions(self, backend: SandboxBackend) -> None:
        warm_up = getattr(backend, "warm_up", None)
        async with Bench(backend) as bench:
            host = RecordingScriptHost({"ok": lambda: "ok"})
            if warm_up is not None:
                await warm_up(host.spec())
            assert require_done(await bench.run("await ok()", host)).value == "ok"

    async def test_backend_runs_a_task_of_an_agent(self, backend: SandboxBackend) -> None:
        from delf import Agent
        from delf.specs import SandboxSpec
        from delf.tools.function import tool
        from delf_devkit.testing.hosts import TestHost
        from delf_devkit.testing.models import ScriptedModel

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
        host.provide(spec, lambda: backend)
        agent = Agent(tools=[add], llm="scripted", host=host, sandbox="under-test")
        async with agent:
            response = await agent.arun("Add.")
        assert response.raise_for_status().text.strip() == "sum: 3"
