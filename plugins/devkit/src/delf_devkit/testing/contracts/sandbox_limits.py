"""A part of the sandbox suite: limits, and the ends of scripts that exceed them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tempfile
import weakref
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from delf.protocols.sandbox import Crashed, Done, Failed, LimitReached, Limits, SandboxBackend
from delf_devkit.testing.contracts.base import (
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    fail_without,
    needs,
)
from delf_devkit.testing.contracts.bench import (
    Bench,
    Running,
    adopted_orphans,
    processes_below,
    remaining_after,
)
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_engine.sandboxes.isolation import FIND_POSIX, Measured, measure

_MB = 1024 * 1024
_COLLECTIONS = 50
_TOOL_SECONDS = 1.0
_CPU_SECONDS = 1.0
_SCRIPTS = 12
_CPU_SECONDS_OF_SCRIPT = 0.25
_USE_CPU = f"""
import time
end = time.process_time() + {_CPU_SECONDS_OF_SCRIPT}
while time.process_time() < end: pass
"""
# In the scripts below, the flags 0o101 of open() are O_WRONLY and O_CREAT, and 0o301 has O_EXCL,
# too: a script cannot import the module with their names.
_FIND_FOLDERS = """
def inside(folder):
    try:
        return [folder + "/" + name for name in posix.listdir(folder or "/")]
    except OSError:
        return []

def takes_files(folder):
    try:
        posix.close(posix.open(folder + "/delf-probe", 0o301, 0o600))
        posix.unlink(folder + "/delf-probe")
        return True
    except OSError:
        return False

top = [path for path in inside("") if path not in ("/proc", "/sys")]
below = [path for folder in top for path in inside(folder)]
folders = ["", ".", *top, *below]
"""
_LIST_WRITABLE_FOLDERS = f"{_FIND_FOLDERS}\n[folder for folder in folders if takes_files(folder)]"
_FILL_FOLDER = f"""
piece, size, names = bytes({_MB}), 0, []
try:
    while size < {20 * _MB}:
        names.append(FOLDER + "/delf-fill-" + str(len(names)))
        file = posix.open(names[-1], 0o101, 0o600)
        try:
            size += posix.write(file, piece)
        finally:
            posix.close(file)
except OSError:
    pass
for name in names:
    try:
        posix.unlink(name)
    except OSError:
        pass
size
"""
_OPEN_FILES = """
opened = []
try:
    while len(opened) < 64:
        opened.append(open("opened", "w"))
except OSError:
    pass
count = len(opened)
while opened:
    opened.pop().close()
count
"""
_WRITE_FILES = f"""
{_FIND_FOLDERS}
left = []
for folder in folders:
    try:
        posix.close(posix.open(folder + "/delf-left", 0o101, 0o666))
        left.append(folder)
    except OSError:
        pass
left
"""
_LIST_FOREIGN_FILES = f"""
{_FIND_FOLDERS}
[folder for folder in folders if "delf-left" in str(inside(folder))]
"""
_MEASURED_BY_SUITE: Final = dict[type, Measured]()
_LOOPS = ("while True: pass", "import asyncio\nwhile True: await asyncio.sleep(0)")


class SandboxLimits(Contract):
    """Tests of limits, cancellation, crashes, confinement and leftovers."""

    cpython: ClassVar[bool] = True
    input_files: ClassVar[bool] = True
    limits: ClassVar[AbstractSet[str]] = frozenset(
        {"cpu", "memory", "output", "file", "open_files", "frame", "scratch"}
    )
    confines: ClassVar[AbstractSet[str]] = frozenset(
        {"environment", "files", "network", "processes"}
    )
    crash: ClassVar[str | None] = "import asyncio.base_events as b\nb.os._exit(3)"

    @pytest.fixture
    def backend(self) -> SandboxBackend:
        """The backend under test."""
        fail_without(self, "a fixture `backend`")

    # -- limits -------------------------------------------------------------------------

    @needs("limits:cpu")
    async def test_cpu_time_is_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            limits = Limits(cpu_seconds=0.3)
            outcome = await bench.run("while True: pass", limits=limits)
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "cpu"
            await self._check_usable(bench)
            await self._check_waiting_costs_no_cpu(bench)
            await self._check_cpu_of_all_scripts(bench)
            measured = await self._measure_once(backend)
            # The measurement runs an endless loop, too. It does not show whether the operating
            # system or code in the script's own process stopped the loop.
            assert measured.limits_cpu is not False, (  # None: not tested
                "the operating system does not enforce the limit of processor time"
            )

    async def _check_waiting_costs_no_cpu(self, bench: Bench) -> None:
        host = RecordingScriptHost({"wait": lambda: asyncio.sleep(_TOOL_SECONDS, "came")})
        limits = Limits(cpu_seconds=_TOOL_SECONDS / 2)
        outcome = await bench.run("await wait()", host, limits=limits)
        assert isinstance(outcome, Done), (
            f"a script that waits {_TOOL_SECONDS:g} s for a tool ended as {outcome!r}: "
            "`cpu_seconds` counts the script's own processor time, and no waiting"
        )

    async def _check_cpu_of_all_scripts(self, bench: Bench) -> None:
        run = await bench.open(limits=Limits(cpu_seconds=_CPU_SECONDS))
        for _ in range(_SCRIPTS):
            outcome = await run(_USE_CPU)
            if isinstance(outcome, LimitReached):
                return
        pytest.fail(
            f"{_SCRIPTS} scripts of a session used {_CPU_SECONDS_OF_SCRIPT * _SCRIPTS:g} s or more "
            f"of {_CPU_SECONDS:g} s: the CPU limit must count across all scripts of a session"
        )

    @needs("limits:memory")
    async def test_memory_is_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            limits = Limits(memory_bytes=256 * _MB)
            outcome = await bench.run(f"x = bytes({3 * 1024 * _MB})", limits=limits)
            assert isinstance(outcome, (LimitReached, Crashed)), outcome
            code = "rows = []\nwhile True: rows.append('x' * 1_000_000)"
            outcome = await bench.run(code, limits=limits)
            assert isinstance(outcome, (LimitReached, Crashed)), outcome
            await self._check_usable(bench)
            measured = await self._measure_once(backend)
            assert measured.limits_memory is not False, (  # None: not tested
                "the operating system does not enforce the memory limit"
            )

    @needs("limits:output")
    @pytest.mark.parametrize("piece", ["x" * 50_000, "x"], ids=["large", "small"])
    async def test_output_is_limited(self, backend: Any, piece: str) -> None:
        async with Bench(backend) as bench:
            run = await bench.open(limits=Limits(output_bytes=100_000))
            outcome = await run(f"while True: print({piece!r})")
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "output"
            # Some output beyond the limit may arrive before the script is stopped.
            assert len(run.host.text) <= 130_000
            await self._check_usable(bench)

    @needs("limits:file")
    async def test_output_files_are_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            run = await bench.open(limits=Limits(file_bytes=_MB))
            outcome = await run(f"add_to_output_files('a', 'x' * {2 * _MB})")
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "file"
            assert run.host.files == {}
            run = await bench.open(limits=Limits(file_bytes=_MB, total_file_bytes=3 * _MB))
            code = f"for n in range(9): add_to_output_files(str(n), 'x' * {_MB})"
            outcome = await run(code)
            assert isinstance(outcome, LimitReached), outcome
            assert sum(map(len, run.host.files.values())) <= 3 * _MB
            await self._check_usable(bench)

    @needs("limits:file")
    async def test_number_of_output_files_is_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            run = await bench.open(limits=Limits(max_files=3))
            outcome = await run("for n in range(9): add_to_output_files(str(n), 'x')")
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "file"
            assert len(run.host.files) <= 3
            await self._check_usable(bench)

    @needs("limits:file", "cpython")
    async def test_files_of_a_script_are_limited(self, backend: Any) -> None:
        """Check by system calls that the operating system limits the size of a script's files."""
        # FIND_POSIX is the beginning of a script; it defines ``posix``, the module of system calls.
        code = f"""{FIND_POSIX}
size, file = 0, posix.open("large", 0o101, 0o600)
try:
    for _ in range(4):
        size += posix.write(file, bytes({_MB}))
except OSError:
    pass
posix.close(file)
posix.unlink("large")
size
"""
        async with Bench(backend) as bench:
            outcome = await bench.run(code, limits=Limits(file_bytes=2 * _MB))
            size = getattr(outcome, "value", None) or 0
            assert size <= 2 * _MB, (
                f"a script writes a file of {size:,} bytes with `file_bytes` {2 * _MB:,}: one "
                "script fills the disk of all; set RLIMIT_FSIZE, or a limit of the container"
            )
            await self._check_usable(bench)

    @needs("limits:open_files", "cpython")
    async def test_open_files_are_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            run = await bench.open(limits=Limits(open_files=32))
            opened = getattr(await run(_OPEN_FILES), "value", 0)  # a failed script has no value
            assert opened <= 32, (
                f"a script has {opened} files open with `open_files` 32: one script can use up the "
                'open files of all scripts; set RLIMIT_NOFILE, or take "open_files" out of `limits`'
            )
            await self._check_usable(bench)

    @needs("limits:frame")
    async def test_messages_are_limited(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            host = RecordingScriptHost({"give": lambda: "x" * (2 * _MB), "take": len})
            run = await bench.open(host, limits=Limits(frame_bytes=_MB))
            outcome = await run("await give()")
            assert isinstance(outcome, Failed), outcome
            assert "large" in outcome.message
            outcome = await run(f"await take('x' * {2 * _MB})")
            assert isinstance(outcome, (Failed, LimitReached)), outcome
            assert all(call.connection != "take" for call in host.calls)
            await self._check_usable(bench)

    async def test_number_of_calls_is_limited(self, backend: Any) -> None:
        # A script that catches an error about the limit must not be able to go on with calls.
        host = RecordingScriptHost({"ok": lambda: "ok"})
        code = """
count = 0
try:
    while True:
        await ok()
        count += 1
except Exception:
    pass
while True:
    await ok()
"""
        async with Bench(backend) as bench:
            run = await bench.open(host, limits=Limits(calls=50))
            outcome = await run(code)
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "calls"
            assert "50" in outcome.message
            assert len(host.calls) <= 50
            await self._check_usable(bench)

    @needs("limits:scratch")
    async def test_scratch_space_is_limited(self, backend: Any) -> None:
        code = f"""
for number in range(40):
    with open(str(number), "wb") as file:
        file.write(bytes({_MB}))
"""
        async with Bench(backend) as bench:
            limits = Limits(scratch_bytes=8 * _MB)
            outcome = await bench.run(code, limits=limits)
            assert isinstance(outcome, LimitReached), outcome
            assert outcome.limit == "file"
            await self._check_usable(bench)

    @needs("limits:scratch", "confines:files", "cpython")
    async def test_every_writable_folder_is_limited(self, backend: Any) -> None:
        """Check by system calls that no writable folder takes more data than the scratch limit."""
        limits = Limits(scratch_bytes=8 * _MB)
        async with Bench(backend) as bench:
            run = await bench.open(limits=limits)
            folders = getattr(await run(f"{FIND_POSIX}\n{_LIST_WRITABLE_FOLDERS}"), "value", None)
            assert folders, "no folder of the sandbox can be written, not even the script's own"
            for folder in folders:
                if not run.session.alive:  # filling the folder before may have ended the session
                    run = await bench.open(limits=limits)
                outcome = await run(f"FOLDER = {folder!r}\n{FIND_POSIX}\n{_FILL_FOLDER}")
                # A script that the sandbox aborted at the limit returns no size.
                size = getattr(outcome, "value", None) or 0
                # Twice the limit, because the limit of a folder need not be exact.
                assert size <= 2 * limits.scratch_bytes, (
                    f"a script puts {size:,} bytes into {folder!r} with `scratch_bytes` "
                    f"{limits.scratch_bytes:,}: mount that folder read-only, or limit its size"
                )

    @needs("confines:files", "cpython")
    async def test_sessions_share_no_writable_folder(self, backend: Any) -> None:
        """Check by system calls that two sandboxes have no writable folder in common."""
        async with Bench(backend) as bench:
            first = await bench.open()
            second = await bench.open()
            # FIND_POSIX defines ``posix``, the module with the system calls.
            written_folders = getattr(await first(f"{FIND_POSIX}\n{_WRITE_FILES}"), "value", None)
            assert written_folders, (
                "no folder of the sandbox can be written, not even the script's own"
            )
            checks = [(second, "opened earlier"), (await bench.open(), "opened later")]
            await first.session.aclose()
            checks.append((await bench.open(), "opened after its end"))
            for run, when in checks:
                foreign_folders = getattr(
                    await run(f"{FIND_POSIX}\n{_LIST_FOREIGN_FILES}"), "value", None
                )
                assert foreign_folders == [], (
                    f"a script in a session {when} finds another task's files in "
                    f"{foreign_folders!r}: give each session folders of its own, /tmp too, and "
                    "remove them with it"
                )

    # -- cancellation and crashes -------------------------------------------------------

    @pytest.mark.parametrize("loop", _LOOPS, ids=["busy", "asleep"])
    async def test_endless_script_can_be_cancelled(self, backend: Any, loop: str) -> None:
        script_began = asyncio.Event()
        async with Bench(backend) as bench:
            run = await bench.open(RecordingScriptHost({"begin": script_began.set}))
            await self._cancel(run, f"await begin()\n{loop}", script_began)
            assert not run.session.alive, "a session whose script was cancelled says it is alive"
            await self._check_usable(bench)

    async def test_prints_arrive_while_a_script_is_busy(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            host = _Listening()
            run = await bench.open(host)
            work = asyncio.ensure_future(run("print('one')\nprint('two')\nwhile True: pass"))
            try:
                while host.text != "one\ntwo\n":
                    await host.has_printed.wait()
                    host.has_printed.clear()
            finally:
                work.cancel()
                await asyncio.wait({work})

    async def test_cancelled_script_cancels_its_calls(self, backend: Any) -> None:
        call_began = asyncio.Event()

        async def wait() -> None:
            call_began.set()
            await asyncio.Event().wait()

        host = RecordingScriptHost({"wait": wait, "pay": lambda: "paid"})
        async with Bench(backend) as bench:
            run = await bench.open(host)
            await self._cancel(run, "await wait()\nawait pay()", call_began)
            await host.abandoned.wait()
            assert host.cancelled == ["wait"]
            assert [call.connection for call in host.calls] == ["wait"]

    async def test_closed_session_ends_its_script(self, backend: Any) -> None:
        script_began = asyncio.Event()
        async with Bench(backend) as bench:
            run = await bench.open(RecordingScriptHost({"begin": script_began.set}))
            work = asyncio.ensure_future(run("await begin()\nwhile True: pass"))
            await script_began.wait()
            await run.session.aclose()
            await asyncio.wait({work})
            assert work.cancelled() or not isinstance(work.result(), Done), (
                "an endless script ends as Done when its session is closed"
            )

    @needs("crash")
    async def test_crash_is_an_outcome(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            other = await bench.open()
            run = await bench.open()
            outcome = await run(self.crash or "")
            assert isinstance(outcome, Crashed), outcome
            assert outcome.message.strip()
            assert outcome.by_script, (
                "`by_script` is False, and the script ended its own interpreter: delf would run "
                "it again in a new sandbox"
            )
            assert not run.session.alive, "a session that crashed says that it is alive"
            after = await run("1")
            assert isinstance(after, Crashed), f"a session that crashed ran a script: {after!r}"
            beside = await other("1")
            assert isinstance(beside, Done), f"{beside!r}: another session fell with it"
            await self._check_usable(bench)

    # -- confinement --------------------------------------------------------------------

    @needs("confines:environment", "cpython")
    async def test_host_environment_is_not_visible(
        self, backend: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("DELF_CONTRACT_SECRET", "DATABASE_URL", "EDITOR"):
            monkeypatch.setenv(name, "hunter2-in-the-environment")
        async with Bench(backend) as bench:
            run = await bench.open()
            # Scripts cannot import ``os``, but an allowed module refers to it.
            await run("import asyncio.base_events as b\nprint(dict(b.os.environ))")
            code = "import pathlib\nfor p in pathlib.Path('/proc').glob('*/environ'):\n"
            code += "    try: print(p.read_bytes())\n    except OSError: pass"
            await run(code)
            printed_text = run.host.text
            assert "hunter2" not in printed_text

    @needs("confines:files")
    async def test_script_cannot_open_other_files(self, backend: Any, tmp_path: Path) -> None:
        path = tmp_path / "secret.txt"
        path.write_text("hunter2", encoding="utf-8")
        async with Bench(backend) as bench:
            run = await bench.open()
            for code in (f"print(open({str(path)!r}).read())", f"open({str(path)!r}, 'w')"):
                outcome = await run(code)
                assert isinstance(outcome, Failed), f"{code} ended as {outcome!r}"
            assert run.host.text == "", "a script printed a file of the host"
            await self._check_unreachable_by_system_calls(backend, "files")
        assert path.read_text(encoding="utf-8") == "hunter2"

    @needs("confines:network", "cpython")
    async def test_script_has_no_network(self, backend: Any) -> None:
        reached: list[object] = []
        server = await asyncio.start_server(lambda _, w: reached.append(w), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        code = "import asyncio\nr, w = await asyncio.wait_for("
        code += f"asyncio.open_connection('127.0.0.1', {port}), 5)\nw.write(b'hi')"
        try:
            async with Bench(backend) as bench:
                outcome = await bench.run(code)
                await self._check_unreachable_by_system_calls(backend, "network")
        finally:
            server.close()
            await server.wait_closed()
        assert not isinstance(outcome, Done), "a script connected to a server of the host"
        assert reached == [], "a server of the host was reached"

    @needs("confines:processes", "cpython")
    async def test_script_cannot_start_a_process(self, backend: Any) -> None:
        # Scripts cannot import ``os`` and ``subprocess``, but an allowed module refers to them.
        code = "import asyncio.base_events as b\nb.subprocess.run(['/bin/true'])"
        async with Bench(backend) as bench:
            outcome = await bench.run(code)
            assert not isinstance(outcome, Done), "a script started the program /bin/true"
            code = "import asyncio.base_events as b\nif b.os.fork() == 0: b.os._exit(0)"
            outcome = await bench.run(code)
            assert not isinstance(outcome, Done), "a script started a process by os.fork()"
            await self._check_unreachable_by_system_calls(backend, "processes")
            await self._check_usable(bench)

    async def _check_unreachable_by_system_calls(self, backend: Any, what: str) -> None:
        """Check that a resource is unreachable even by system calls of the operating system."""
        measured = await self._measure_once(backend)
        if self.cpython:
            assert measured.can_make_system_calls, (
                "this test could make no system call in the sandbox; report this to delf's authors"
            )
        is_unreachable = {
            "files": measured.protects_files,
            "network": measured.blocks_network,
            "processes": measured.protects_processes and measured.blocks_new_processes,
        }
        assert is_unreachable[what], (
            f"`confines` says {what}, and a script reached {', '.join(measured.reached)}: prevent "
            f"this, or remove {what} from `confines`"
        )

    async def _measure_once(self, backend: Any) -> Measured:
        """Measure the sandbox's isolation, once for all tests of a class."""
        kind = type(self)
        if kind not in _MEASURED_BY_SUITE:
            _MEASURED_BY_SUITE[kind] = await self.within(
                measure(backend, thorough=True), 5 * self.seconds
            )
        return _MEASURED_BY_SUITE[kind]

    # -- what is left behind ------------------------------------------------------------

    def processes_and_containers(self) -> set[Any]:
        """Return the processes or containers of the backend.

        Unless overridden, return the descendants of this process.
        """
        return processes_below()

    async def still_running(self, seen: set[Any]) -> set[Any]:
        """Return which of some processes or containers still exist after a short wait."""
        return await remaining_after(seen, 5.0)

    async def test_session_leaves_no_process_or_file(
        self, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Check that nothing remains of sessions whose script ended, was cancelled, or crashed."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        script_began = asyncio.Event()
        async with (
            self._check_no_process_left("a process of an ended session still runs"),
            Bench(backend) as bench,
        ):
            run = await bench.open()
            await run("open('notes.txt', 'w').write('x')" if self.cpython else "1")
            endless = await bench.open(RecordingScriptHost({"begin": script_began.set}))
            await self._cancel(endless, "await begin()\nwhile True: pass", script_began)
            crashing_script = self.crash or "1"
            await bench.run(crashing_script)
        assert _names_in(tmp_path) == [], "temporary files are left"

    async def test_cancelled_open_leaves_nothing(
        self, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        async with (
            self._check_no_process_left("a process of a cancelled opening is left"),
            Bench(backend) as bench,
        ):
            spec = RecordingScriptHost().spec()
            for iterations in LOOP_ITERATIONS:
                await cancel_after_iterations(lambda: backend.open(spec), iterations)
            await self._check_usable(bench)
        assert _names_in(tmp_path) == [], "a folder of a cancelled opening is left"

    @contextlib.asynccontextmanager
    async def _check_no_process_left(self, what: str) -> AsyncGenerator[None]:
        """Check that no process started in the block, orphaned or not, runs after the block."""
        before = self.processes_and_containers()
        # Orphans become children of this process, so that still_running() finds them.
        with adopted_orphans():
            yield
            remaining = await self.still_running(self.processes_and_containers() - before)
        assert remaining == set(), (
            f"{what}: end the whole process group, and the processes that its programs started"
        )

    async def test_closed_session_is_released(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            session = await backend.open(RecordingScriptHost().spec())
            try:
                reference = weakref.ref(session)
            except TypeError:
                return  # without weak references, the test cannot see whether the session is kept
            await session.aclose()
            del session
            for _ in range(_COLLECTIONS):
                await asyncio.sleep(0.01)
                gc.collect()
                if reference() is None:
                    break
            assert reference() is None, (
                "closed sessions are kept: a long-lived agent grows with each"
            )
            await self._check_usable(bench)

    async def test_close_is_idempotent_and_works_unused(self, backend: Any) -> None:
        async with Bench(backend) as bench:
            run = await bench.open()
            for _ in range(2):
                await run.session.aclose()
            assert not run.session.alive, "a closed session says that it is alive"
        await backend.aclose()

    async def test_closed_backend_ends_its_sessions(self, backend: Any) -> None:
        has_started = asyncio.Event()
        host = RecordingScriptHost({"begin": has_started.set})
        async with self._check_no_process_left("a process runs on after aclose() of the backend"):
            idle = await backend.open(host.spec())
            busy = await backend.open(host.spec())
            work = asyncio.ensure_future(busy.execute("await begin()\nwhile True: pass", host))
            try:
                await has_started.wait()
                await backend.aclose()
                finished, _ = await asyncio.wait({work}, timeout=self.seconds / 4)
                later_outcome = await idle.execute("1", host)
            finally:
                await idle.aclose()
                await busy.aclose()
                work.cancel()
                await asyncio.wait({work})
            assert finished, "aclose() of the backend leaves a script running: close each session"
            assert not isinstance(later_outcome, Done), (
                "a session runs scripts after aclose() of its backend: close each session there"
            )

    async def _check_usable(self, bench: Bench) -> None:
        outcome = await bench.run("40 + 2")
        assert isinstance(outcome, Done), outcome
        assert outcome.value == 42

    async def _cancel(self, run: Running, code: str, script_began: asyncio.Event) -> None:
        """Cancel a script after it began, and check that the script ends as cancelled.

        No timeout is needed here, because every ``await`` of a contract's test has a time limit.
        """
        work = asyncio.ensure_future(run(code))
        await script_began.wait()
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()


class _Listening(RecordingScriptHost):
    """A script host that signals when something is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.has_printed = asyncio.Event()  # set by each print; a test clears it to await the next

    def printed(self, text: str) -> None:
        """Record printed text."""
        super().printed(text)
        self.has_printed.set()


def _names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
