"""Sandboxes that break one thing each, made of the local one."""

import asyncio
import dataclasses
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from planting import planting

from delf.protocols.sandbox import (
    Crashed,
    Done,
    Failed,
    Limits,
    Raised,
    Rerun,
    Returned,
    ScriptHost,
    ToolMessage,
    Unavailable,
)
from delf.testing import SandboxContract
from delf_devkit.testing.contracts.bench import remaining_after
from delf_sandbox_local import forkserver
from delf_sandbox_local.backend import LocalBackend


class Session:
    """A session whose parts can be replaced."""

    def __init__(self, real, backend):
        self.real = real
        self.backend = backend

    @property
    def alive(self):
        return self.real.alive

    async def execute(self, code, host):
        return await self.real.execute(code, host)

    async def aclose(self):
        await self.real.aclose()


class Backend:
    """The local sandbox with another session class."""

    isolation = "process"
    session = Session

    def __init__(self):
        self.real = LocalBackend(pool_size=0)

    async def available(self):
        return await self.real.available()

    async def open(self, spec):
        return self.session(await self.real.open(spec), self)

    def visible_path(self, path):
        return path

    async def aclose(self):
        await self.real.aclose()


class Host(ScriptHost):
    """A script host whose parts can be replaced."""

    def __init__(self, real):
        self.real = real

    async def call(self, request):
        return await self.real.call(request)

    def printed(self, text):
        self.real.printed(text)

    def wrote_file(self, name, data):
        self.real.wrote_file(name, data)


class LateHost(Host):
    """A script host that gets no printed text."""

    def __init__(self, real):
        super().__init__(real)
        self.texts = []

    def printed(self, text):
        self.texts.append(text)


def hosted(host):
    """Return a session class that puts a script host between sandbox and test."""

    class Hosted(Session):
        async def execute(self, code, real):
            return await super().execute(code, host(real))

    return Hosted


def answering(change):
    """Return a session class that changes outcomes."""

    class Answering(Session):
        async def execute(self, code, host):
            return change(await super().execute(code, host))

    return Answering


class Suite(SandboxContract):
    seconds = 1.0
    kind = Backend

    @pytest.fixture
    def backend(self):
        return self.kind()


breaks = planting(Suite)


def host_breaks(*tests):
    """Return a decorator for a script host that makes the named tests fail."""

    def made(host):
        about = {"session": hosted(host), "__module__": host.__module__}
        return breaks(*tests)(type(host.__name__, (Backend,), about))

    return made


# tests/plugins/sandbox_local/test_contract.py shows that the local sandbox itself passes.


@breaks("test_backend_works_on_this_machine")
class TestUnavailable(Backend):
    async def available(self):
        return Unavailable("not here")


@breaks("test_available_never_raises", says="where no program is installed")
class TestNeedsItsProgram(Backend):
    async def available(self):
        await asyncio.to_thread(subprocess.run, ["true"], check=True)
        return await super().available()


@breaks("test_open_does_not_block_the_event_loop", says="a start of a program")
class TestStartsProgramsOnTheLoop(Backend):
    async def open(self, spec):
        subprocess.run(["/bin/true"], check=True)
        return await super().open(spec)


@host_breaks("test_prints_arrive_in_order", "test_backend_runs_a_task_of_an_agent")
class TestLosesText(Host):
    def printed(self, text):
        self.real.printed(text.encode("ascii", "ignore").decode()[:3])


@breaks("test_prints_arrive_while_a_script_is_busy")
class TestKeepsTextUntilTheEnd(Backend):
    class session(Session):
        async def execute(self, code, host):
            kept = LateHost(host)
            outcome = await super().execute(code, kept)
            host.printed("".join(kept.texts))
            return outcome


@breaks("test_script_returns_its_last_value", "test_backend_runs_common_python")
class TestNoValues(Backend):
    session = answering(
        lambda outcome: (
            dataclasses.replace(outcome, value=None) if isinstance(outcome, Done) else outcome
        )
    )


@breaks("test_variables_persist_between_scripts")
class TestForgetsVariables(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await super().execute(f"globals().pop('rows', None)\n{code}", host)


@breaks("test_failure_has_its_line")
class TestWrongLine(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await super().execute(f"\n{code}", host)


@breaks("test_session_survives_every_exception")
class TestDiesOfExceptions(Backend):
    class session(Session):
        async def execute(self, code, host):
            outcome = await super().execute(code, host)
            if isinstance(outcome, Failed):
                await self.aclose()
            return outcome


@breaks("test_imports_outside_the_policy_are_refused")
class TestImportsAnything(Backend):
    async def open(self, spec):
        return await super().open(
            dataclasses.replace(spec, modules=(*(spec.modules or ("math",)), "subprocess"))
        )


@breaks("test_rerun_is_an_outcome")
class TestNoRerun(Backend):
    session = answering(lambda outcome: Done() if isinstance(outcome, Rerun) else outcome)


@host_breaks("test_calls_reach_the_host")
class TestMixesArguments(Host):
    async def call(self, request):
        given = (*request.args, *map(str, request.kwargs.values()))
        return await self.real.call(dataclasses.replace(request, args=given, kwargs={}))


@host_breaks("test_values_round_trip")
class TestTurnsTuplesIntoLists(Host):
    async def call(self, request):
        answer = await self.real.call(request)
        value = getattr(answer, "value", None)
        return Returned(list(value)) if isinstance(value, tuple) else answer


@host_breaks("test_large_values_round_trip")
class TestCutsValues(Host):
    async def call(self, request):
        answer = await self.real.call(request)
        if isinstance(answer, Returned) and isinstance(answer.value, str):
            return Returned(answer.value[:1000])
        return answer


@host_breaks("test_call_works_without_await")
class TestAnswersOnce(Host):
    count = 0

    async def call(self, request):
        self.count += 1
        return await self.real.call(request) if self.count < 100 else Returned(0)


@host_breaks("test_gathered_calls_overlap")
class TestOneCallAtATime(Host):
    def __init__(self, real):
        super().__init__(real)
        self.lock = asyncio.Lock()

    async def call(self, request):
        async with self.lock:
            return await self.real.call(request)


@host_breaks("test_errors_of_calls_can_be_caught")
class TestSwallowsErrors(Host):
    async def call(self, request):
        answer = await self.real.call(request)
        return ToolMessage(answer.message) if isinstance(answer, Raised) else answer


@host_breaks("test_unencodable_result_is_an_error_in_the_script")
class TestTurnsResultsIntoText(Host):
    async def call(self, request):
        answer = await self.real.call(request)
        return Returned(repr(answer.value)) if isinstance(answer, Returned) else answer


@breaks("test_call_works_without_await")
class TestForgetsCallsWithoutAwait(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await self.real.execute(code.replace("\npay(1)", ""), host)


@host_breaks("test_script_can_cancel_a_call", "test_cancelled_script_cancels_its_calls")
class TestDoesNotCancelCalls(Host):
    async def call(self, request):
        return await asyncio.shield(self.real.call(request))


@host_breaks("test_session_makes_no_call_after_its_end")
class TestRepeatsCallsLater(Host):
    async def call(self, request):
        await self.real.call(request)
        return await self.real.call(request)


@host_breaks("test_output_files_reach_the_host")
class TestSpoilsFiles(Host):
    def wrote_file(self, name, data):
        self.real.wrote_file(name, data.replace(b"\r", b"") + b"\n")


@breaks("test_tool_used_as_a_value_is_an_error")
class TestTakesToolsForValues(Backend):
    session = answering(
        lambda outcome: Done() if "does nothing by itself" in str(outcome) else outcome
    )


@breaks("test_tool_in_a_variable_can_be_called")
class TestKnowsNoOtherNamesOfTools(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await self.real.execute(code.replace("f = mail.send", "f = print"), host)


@breaks("test_unsafe_file_names_are_refused")
class TestForgivesBadNames(Backend):
    session = answering(lambda outcome: Done() if isinstance(outcome, Failed) else outcome)


@breaks("test_input_files_can_be_read")
class TestNoInputFiles(Backend):
    async def open(self, spec):
        return await super().open(dataclasses.replace(spec, files=()))


@breaks("test_backend_runs_common_python")
class TestNoScratch(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await super().execute(f"def open(*_): raise OSError\n{code}", host)


@breaks("test_sessions_are_isolated")
class TestOneSessionForAll(Backend):
    one = None

    async def open(self, spec):
        self.one = self.one or await super().open(spec)
        return self.one


@breaks("test_backend_prepares_sessions")
class TestPreparesBadly(Backend):
    async def warm_up(self, spec):
        await self.real.aclose()
        raise OSError("cold")


@breaks("test_*_limited")
class TestNoLimits(Backend):
    """The session keeps the default limits, however low the wanted ones are."""

    session = answering(
        lambda outcome: (
            Failed(kind="MemoryError", message="no")
            if getattr(outcome, "limit", "") == "memory"
            else outcome
        )
    )

    async def open(self, spec):
        return await super().open(dataclasses.replace(spec, limits=Limits()))


@breaks("test_endless_script_can_be_cancelled", "test_cancelled_script_cancels_its_calls")
class TestCannotBeCancelled(Backend):
    class session(Session):
        async def execute(self, code, host):
            return await asyncio.shield(super().execute(code, host))


@breaks("test_closed_session_ends_its_script", "test_close_is_idempotent_and_works_unused")
class TestCannotBeClosed(Backend):
    class session(Session):
        async def aclose(self):
            pass


@breaks("test_crash_is_an_outcome")
class TestHidesCrashes(Backend):
    session = answering(lambda outcome: Done() if isinstance(outcome, Crashed) else outcome)


@breaks("test_crash_is_an_outcome", says="delf would run it again")
class TestDoesNotTellWhoCrashed(Backend):
    session = answering(
        lambda outcome: (
            dataclasses.replace(outcome, by_script=False)
            if isinstance(outcome, Crashed)
            else outcome
        )
    )


@breaks("test_closed_backend_ends_its_sessions", says="leaves a script running")
class TestLeavesItsSessionsOpen(Backend):
    async def aclose(self):
        TestLeavesProcesses.left.append(self.real)


class TestUnconfined(Suite):
    """Only Python itself keeps scripts from files, not the operating system."""

    breaks = (
        "test_host_environment_is_not_visible",
        "test_script_cannot_open_other_files",
        "test_script_has_no_network",
        "test_script_cannot_start_a_process",
    )

    @pytest.fixture
    def backend(self, monkeypatch):
        opened = (
            "from delf_confined import landlock, seccomp; "
            "from delf_sandbox_local import namespaces; "
            "landlock.version = lambda: 0; namespaces.enter = lambda: []; "
            "seccomp.is_supported = lambda: False; main(sys"
        )
        monkeypatch.setattr(forkserver, "BOOT", forkserver.BOOT.replace("main(sys", opened, 1))
        environ = {**os.environ, "DELF_CONTRACT_SECRET": "hunter2-in-the-environment"}
        monkeypatch.setattr(forkserver, "ENVIRON", environ)
        backend = Backend()
        backend.real = LocalBackend("disk", pool_size=0)
        return backend


@breaks("test_script_cannot_open_other_files")
class TestReadsEverything(Backend):
    async def open(self, spec):
        return await super().open(dataclasses.replace(spec, files=("/",)))


class TestLeavesProcesses(Suite):
    breaks = ("test_session_leaves_no_process_or_file",)
    left: list = []

    async def still_running(self, seen):
        return await remaining_after(seen, 0.2)

    class kind(Backend):
        class session(Session):
            async def aclose(self):
                pass

        async def aclose(self):
            TestLeavesProcesses.left.append(self.real)


@breaks(
    "test_cancelled_open_leaves_nothing",
    says="a folder of a cancelled opening is left",
)
class TestLeaksWhatIsOpened(Backend):
    """A folder is left behind if the caller is cancelled while a session is opened."""

    async def open(self, spec):
        folder = tempfile.mkdtemp()
        await asyncio.sleep(0)
        session = await super().open(spec)
        os.rmdir(folder)
        return session


class TestLeavesOrphans(Suite):
    """A started process ends, but its own child goes on below the system's first process."""

    breaks = ("test_session_leaves_no_process_or_file", "test_cancelled_open_leaves_nothing")
    says = "end the whole process group"

    async def still_running(self, seen):
        return await remaining_after(seen, 0.2)

    class kind(Backend):
        async def open(self, spec):
            script = "sleep 3 >/dev/null 2>&1 &"
            await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", script], check=True)
            return await super().open(spec)


@breaks("test_closed_session_is_released", says="closed sessions are kept")
class TestKeepsClosedSessions(Backend):
    def __init__(self):
        super().__init__()
        self.sessions = []

    async def open(self, spec):
        session = await super().open(spec)
        self.sessions.append(session)
        return session


@breaks("test_argument_errors_use_the_names_of_the_script")
class TestNamesItsOwnCode(Suite):
    class kind(Backend):
        session = answering(
            lambda outcome: (
                dataclasses.replace(outcome, message="GuestSession._ask_rerun() takes no text")
                if isinstance(outcome, Failed) and outcome.kind == "TypeError"
                else outcome
            )
        )


class Leaky(Session):
    """A session whose scripts can reach a file of the host."""

    async def execute(self, code, host):
        outcome = await super().execute(code, host)
        files = self.backend.spec.files
        if files and self.backend.what in code:
            self.backend.change(Path(files[0]))
        return outcome


class BindsWritable(Backend):
    session = Leaky
    what = "os.truncate"

    async def open(self, spec):
        self.spec = spec
        return await super().open(spec)

    def change(self, path):
        path.write_text("")


@breaks("test_input_files_cannot_be_changed", says="could truncate the user's input file")
class TestBindsInputFilesWritable(BindsWritable):
    pass


@breaks("test_input_files_cannot_be_changed", says="which now holds 'nothing'")
class TestBindsTheFolderWritable(BindsWritable):
    what = "os.remove"

    def change(self, path):
        path.unlink()


@breaks("test_input_files_cannot_be_changed", says="its folder is bound writable")
class TestLetsFilesBeMadeBesideInputs(BindsWritable):
    what = "os.path.dirname"

    def change(self, path):
        path.with_name("new").write_text("x")


@breaks("test_input_files_cannot_be_changed", says="could change by a system call the user's")
class TestGuardsInputFilesInPythonAlone(BindsWritable):
    what = "syscall("


class Sharing(Session):
    """A session that shares its working folder with the backend's other sessions."""

    async def execute(self, code, host):
        outcome = await super().execute(code, host)
        if "write('of another')" in code:
            self.backend.left = self
        elif "left.txt" in code and self.backend.shows(self):
            outcome = dataclasses.replace(outcome, value=["left.txt"])
        return outcome


@breaks("test_sessions_have_separate_working_folders", says="a folder of its own")
class TestSharesItsWorkingFolder(Backend):
    session = Sharing
    left = None

    def shows(self, session):
        return self.left is not None


@breaks("test_sessions_have_separate_working_folders", says="remove the folder with its session")
class TestKeepsTheFolderOfAnEndedTask(TestSharesItsWorkingFolder.kind):
    def shows(self, session):
        return self.left is not None and not self.left.alive


@breaks("test_session_sees_only_its_input_files", says="the input file of another task")
class TestShowsTheInputFilesOfAll(Backend):
    def __init__(self):
        super().__init__()
        self.files = set()

    async def open(self, spec):
        self.files |= {*spec.files}
        return await super().open(dataclasses.replace(spec, files=tuple(sorted(self.files))))


@breaks("test_sessions_are_isolated", says="one user sees the answer of another")
class TestPrintsToTheHostOfTheLast(Backend):
    class session(Session):
        async def execute(self, code, host):
            self.backend.last = host
            backend = self.backend

            class ToTheLast(Host):
                def printed(self, text):
                    backend.last.printed(text)

            return await super().execute(code, ToTheLast(host))


@breaks("test_sessions_are_isolated", says="two sessions that are opened at one time are mixed up")
class TestKeepsItsSpecInSelf(Backend):
    async def open(self, spec):
        self.spec = spec
        await asyncio.sleep(0)
        return await super().open(self.spec)


class Spoiling(Backend):
    """Answers the suite's checks of files and folders like a faulty sandbox."""

    what, answer = "", None

    class session(Session):
        async def execute(self, code, host):
            outcome = await super().execute(code, host)
            if self.backend.what in code and isinstance(outcome, (Done, Failed)):
                return self.backend.spoilt(outcome)
            return outcome

    def spoilt(self, outcome):
        return Done(value=self.answer, variables={})


@breaks("test_input_file_arrives_whole", says="hand over all bytes")
class TestHandsOverAMegabyte(Spoiling):
    what, answer = "data[-2:]", [1_000_000, b"\r\n\xff\x00", b"\x00\x00"]


@breaks("test_next_task_reads_a_changed_input_file", says="make a copy for each session")
class TestKeepsItsFirstCopy(Spoiling):
    what, answer = "prices.csv", "id\n1\n"


@breaks("test_siblings_of_input_files_are_hidden", says="a file beside its input file")
class TestShowsTheFolderOfInputs(Spoiling):
    what, answer = "salaries.csv", "Ann,9000"


class TestSharesAFolder(Suite):
    breaks = ("test_sessions_share_no_writable_folder",)
    says = "/tmp too"
    confines = frozenset({"files"})

    class kind(Spoiling):
        what, answer = '"delf-left" in str(inside', ["/tmp"]

    @pytest.fixture
    def backend(self):
        made = self.kind()
        made.real = LocalBackend("disk", pool_size=0)
        return made
