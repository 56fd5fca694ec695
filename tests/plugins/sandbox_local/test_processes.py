"""The environment of scripts: processes, descriptors, folders, variables, and their remains."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from delf import Agent
from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import (
    Available,
    Crashed,
    Done,
    SessionSpec,
    Unavailable,
)
from delf.testing import ScriptedModel, TestHost
from delf_sandbox_local import forkserver
from delf_sandbox_local.backend import LocalBackend, guest_archive
from support.scripting import NotingHost, local_session, run_script, session_spec
from support.until import until

POSIX = "import re\nposix = re.enum.sys.modules['posix']\n"
LINUX = sys.platform == "linux"
pytestmark = pytest.mark.skipif(not LINUX, reason="needs /proc, which is Linux's")

SECRET = "a-secret-of-the-host-4f1c"


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Templates are started in the same way as for users, without the tests' shortcut."""


def children_of(pid):
    """Return all living descendants of a process."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        for child in Path(f"/proc/{pid}/task").glob("*/children"):
            for number in child.read_text().split():
                found += [int(number), *children_of(int(number))]
    return found


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


# -- what a script sees -------------------------------------------------------------------


async def test_host_environment_is_not_visible(monkeypatch):
    monkeypatch.setenv("DELF_SQL_URL", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    code = POSIX + dedent("""
        import pathlib
        def read(path):
            try:
                return pathlib.Path('/proc/self', path).read_bytes()
            except OSError:
                return b''
        [dict(posix.environ), read('environ'), read('cmdline')]
    """)
    outcome, _ = await run_script(code)
    environ, proc_environ, cmdline = outcome.value
    assert SECRET.encode() not in proc_environ + cmdline
    ours = (b"LC_", b"PYTHONHASHSEED", b"TZ")
    assert [name for name in environ if not name.startswith(ours)] == []
    assert proc_environ.strip(b"\0") == b""


OPEN = POSIX + dedent("""
    kinds = {0o010000: "pipe", 0o020000: "device", 0o140000: "socket", 0: "anonymous"}
    found = {}
    for fd in range(64):
        try:
            about = posix.fstat(fd)
        except OSError:
            continue
        kind = kinds.get(about.st_mode & 0o170000, "file")
        found[fd] = kind, about.st_rdev if kind == "device" else about.st_ino
    found
""")


async def test_only_the_wire_and_loop_descriptors_are_open(tmp_path):
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        outcome, _ = await run_script(OPEN)
    kinds = [kind for kind, _ in outcome.value.values()]
    assert set(kinds) <= {"device", "socket", "anonymous", "pipe"}, outcome.value
    assert kinds.count("socket") <= 3
    nothing = ("device", os.stat(os.devnull).st_rdev)
    assert [outcome.value[fd] for fd in (0, 1, 2)] == [nothing] * 3
    assert kinds.count("device") == 3
    assert kinds.count("pipe") <= 1


async def test_guests_do_not_inherit_each_others_wires():
    backend = LocalBackend(pool_size=2)
    try:
        sessions = [await backend.open(session_spec()) for _ in range(4)]
        seen = [(await s.execute(OPEN, NotingHost())).value.values() for s in sessions]
        wires = [number for found in seen for kind, number in set(found) if kind == "socket"]
        assert len(wires) == len(set(wires)), seen
    finally:
        await backend.aclose()


async def test_guests_share_no_open_file_description():
    """The flags of an open file apply to every process that shares its description."""
    backend = LocalBackend(pool_size=0)
    try:
        first, second = [await backend.open(session_spec()) for _ in range(2)]
        flags = POSIX + "re.enum.sys.modules['builtins'].__import__('fcntl').fcntl(0, {}, {})"
        assert (await first.execute(flags.format(4, 0o4000), NotingHost())).value == 0
        for number in (0, 1, 2):
            other = POSIX + f"posix.get_blocking({number})"
            assert (await second.execute(other, NotingHost())).value is True
    finally:
        await backend.aclose()


async def test_guest_memory_contains_no_data_of_another_guest(tmp_path):
    """The template's request for an earlier guest is not in the memory of a later one."""
    names = tuple(f"{tmp_path}/an-input-of-the-first-guest.csv{number}" for number in range(40))
    code = POSIX + dedent("""
        ctypes = re.enum.sys.modules["builtins"].__import__("ctypes")
        gc = re.enum.sys.modules["builtins"].__import__("gc")
        name, ending = b"an-input-of-the-first-guest", bytes([46, 99, 115, 118])
        libc = ctypes.CDLL(None)
        libc.memmem.restype = ctypes.c_void_p
        libc.sbrk.restype = ctypes.c_void_p
        _, writer = posix.pipe()
        found, size, start = 0, 4096, libc.sbrk(0) & -4096
        heap = []
        while libc.write(writer, ctypes.c_void_p(start - size), 1) == 1:
            start -= size
            heap.append(start)
        for start in {id(thing) & -size for thing in gc.get_objects()}.union(heap):
            at = start
            while at := libc.memmem(ctypes.c_void_p(at), start + size - at, name, len(name)):
                at += len(name)
                found += ctypes.string_at(at, 4) == ending  # else it is the name above
        found
    """)
    backend = LocalBackend(pool_size=0)
    try:
        await backend.open(session_spec(files=names))
        second = await backend.open(session_spec())
        outcome = await second.execute(code, NotingHost())
        assert isinstance(outcome, Done), outcome
        assert outcome.value == 0
    finally:
        await backend.aclose()


async def test_reachable_objects_hold_no_host_secret(monkeypatch):
    monkeypatch.setenv("DELF_SQL_URL", SECRET)
    host_object = {"key": SECRET}
    code = POSIX + (
        "gc = None\nsys = re.enum.sys\ngc = sys.modules.get('gc') or __import__('weakref').__loader__ and None\n"
        "names = sorted(sys.modules)\nargv = list(sys.argv)\nflags = [sys.flags.safe_path, sys.flags.no_user_site, sys.flags.no_site]\n"
        "frame = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "[names, argv, flags, frame.f_code.co_filename, list(map(str, frame.f_locals)), list(sys.path)]"
    )
    outcome, _ = await run_script(code)
    names, _, flags, *_ = outcome.value
    assert flags == [1, 1, 1]
    assert not {
        n for n in names if n.startswith(("pydantic", "pluggy", "rich", "litellm", "pytest"))
    }
    own = {"delf.machine", "delf.machine.filenames"}
    own |= {"delf.values", "delf.values.conversion", "delf.values.encoding"}
    assert {n for n in names if n.startswith("delf.")} == own
    assert SECRET not in repr(outcome.value)
    assert host_object


async def test_guest_has_its_own_process_group_and_folder():
    code = (
        POSIX
        + "import pathlib\n[posix.getpid() == posix.getpgid(0) != posix.getsid(0), str(pathlib.Path.cwd()), posix.listdir()]"
    )
    async with local_session() as session:
        outcome = await session.execute(code, NotingHost())
        assert outcome.value == [True, os.path.realpath(session.process.scratch), []]
        assert Path(session.process.scratch).stat().st_mode & 0o077 == 0


async def test_input_files_are_readable_and_not_writable(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b")
    other = tmp_path / "other.csv"
    other.write_text("secret")
    code = f"print(open({str(path)!r}).read())\nfor f, m in (({str(path)!r}, 'w'), ({str(other)!r}, 'r')):\n    try: open(f, m)\n    except PermissionError as e: print('no')"
    host = NotingHost()
    async with local_session(session_spec(files=(str(path),))) as session:
        assert isinstance(await session.execute(code, host), Done)
    assert host.text == "a,b\nno\nno\n"
    assert path.read_text() == "a,b"


async def test_very_many_input_files_are_accessible(tmp_path):
    names = [tmp_path / f"{'a-long-name-' * 15}{number}.csv" for number in range(2_000)]
    for path in names:
        path.write_text(path.name)
    files = tuple(map(str, names))
    assert len("".join(files)) > 400_000
    async with local_session(session_spec(files=files)) as session:
        code = f"[open(path).read() for path in {files[-1:]}]"
        assert await session.execute(code, NotingHost()) == Done(value=[names[-1].name])


# -- what is left ---------------------------------------------------------------------------


LEAVING = """
open('mark-of-a-file', 'w').write('x' * 1000)
import pathlib
(pathlib.Path('mark-of-a-folder') / 'deep').mkdir(parents=True)
(pathlib.Path('mark-of-a-folder') / 'deep' / 'mark').write_text('x')
held = open('mark-of-an-open-file', 'w')
"""


@pytest.fixture
def files_and_mounts(tmp_path, monkeypatch):
    """Lists what sessions left in their folders on the disk, and among the host's mounts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = Path("/proc/self/mountinfo").read_text()

    def left():
        # A look through the root of this process: what a guest laid over a folder is not in it.
        found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
        marks = [name for name in found if "mark" in name]
        mounts = set(Path("/proc/self/mountinfo").read_text().splitlines())
        new = [line for line in mounts - set(before.splitlines()) if str(tmp_path) in line]
        return found, marks, new

    return left


def mounts_of(pid, folder):
    """Return the mounts on a folder that a process sees, with the number of files in each."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4] == folder]


@pytest.mark.parametrize("where", ["in memory", "on the disk"])
async def test_sessions_leave_no_process_file_or_mount(request, where, files_and_mounts):
    if where == "on the disk":
        request.getfixturevalue("on_disk")
    backend = LocalBackend(pool_size=2)
    await (await backend.open(session_spec())).aclose()
    await backend.pool.filled()
    in_memory = (await backend.measures())["mounts of its own, scratch in memory"]
    if where == "in memory" and not in_memory:
        pytest.skip("this system gives no mounts of one's own")
    descriptors = len(os.listdir("/proc/self/fd"))
    handles = []
    for number in range(12):
        session = await backend.open(session_spec())
        code = ["1", "1 / 0", "1", POSIX + "posix._exit(3)"][number % 4]
        await session.execute(LEAVING + code, NotingHost())
        if state_of(session.process.pid) != "gone" and number % 4 != 3:
            inside = Path(f"/proc/{session.process.pid}/cwd/mark-of-a-folder/deep/mark")
            assert os.getuid() != 0 or inside.exists(), "the script did leave something"
            assert len(mounts_of(session.process.pid, session.process.scratch)) == in_memory
        handles.append(session.process.pid)
        await session.aclose()
        await backend.pool.filled()
        found, marks, new = files_and_mounts()
        assert (marks, new) == ([], [])
    assert len(os.listdir("/proc/self/fd")) == descriptors
    template = backend.template
    assert mounts_of(template, backend.pool.idle[0].process.scratch) == []
    assert [state_of(pid) for pid in handles] == ["gone"] * 12  # with its mounts, which are its own
    # One folder for all, or one for each guest that waits: none of a session that is over.
    waiting = {Path(guest.process.scratch).name for guest in backend.pool.idle}
    assert {name.partition("/")[2] for name in found} == {"", *waiting}
    guests = children_of(template)
    assert len(guests) == 2
    await backend.aclose()
    assert [state_of(pid) for pid in guests] == ["gone", "gone"]
    assert files_and_mounts() == ([], [], [])


@pytest.mark.timeout(120)
async def test_concurrent_tasks_leave_no_process_file_or_mount(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await (await run_twice())
    descriptors, before = sorted(os.listdir("/proc/self/fd")), set(children_of(os.getpid()))
    backend = LocalBackend(pool_size=2)
    ends = (
        "(await echo(1))[0]",
        "1 / 0",
        "await echo(1)\nopen('f', 'w').write('x' * 10**6)",
        POSIX + "posix._exit(3)",
        "await echo(1)\nwhile True: pass",
    )
    seen = set()

    async def task(number):
        session, host = await backend.open(session_spec()), NotingHost()
        running = asyncio.create_task(session.execute(ends[number % 5], host))
        if number % 5 == 4:
            await host.called.wait()
            running.cancel()
        await asyncio.wait({running})
        seen.update([session.process.pid, *children_of(os.getpid())])
        await session.aclose()
        return None if running.cancelled() else running.result()

    outcomes = await asyncio.gather(*map(task, range(100)))
    assert [outcome for outcome in outcomes[::5] if outcome != Done(value=1)] == []
    await backend.aclose()
    assert len(seen) >= 100
    assert [pid for pid in seen - before if state_of(pid) not in ("gone", "Z")] == []
    assert sorted(os.listdir("/proc/self/fd")) == descriptors
    assert list(tmp_path.iterdir()) == []


async def run_twice():
    backend = LocalBackend(pool_size=1)
    session = await backend.open(session_spec())
    await session.execute("1", NotingHost())
    await session.aclose()
    await backend.open(session_spec())
    return backend.aclose()


async def test_unreadable_scratch_folder_is_removed():
    async with local_session() as session:
        folder = Path(session.process.scratch)
        await session.execute(
            "import pathlib\nd = pathlib.Path('d')\nd.mkdir()\n(d / 'f').write_text('x')\nd.chmod(0)",
            NotingHost(),
        )
    assert not folder.exists()


async def test_link_in_the_scratch_folder_is_not_followed_on_removal(tmp_path):
    (tmp_path / "keep").write_text("x")
    async with local_session() as session:
        code = POSIX + f"posix.symlink({str(tmp_path)!r}, 'out')"
        await session.execute(code, NotingHost())
    assert (tmp_path / "keep").exists()


HOST = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from support.scripting import *
async def main():
    backend = LocalBackend(pool_size=2)
    await backend.warm_up(session_spec())
    session = await backend.open(session_spec())
    host = NotingHost()
    running = asyncio.create_task(session.execute({code!r}, host))
    await host.called.wait()
    print("on", session.process.pid, flush=True)
    await running
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code", ["await echo()\nwhile True: pass", "await echo()\nimport time\ntime.sleep(1e9)"]
)
async def test_killed_host_leaves_no_orphan(code):
    source = HOST.format(tests=str(Path(__file__).parents[2]), code=code)
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=subprocess.PIPE
    )
    line = await host.stdout.readline()
    assert line.startswith(b"on"), line
    processes = children_of(host.pid)
    assert int(line.split()[1]) in processes
    handles = [os.pidfd_open(pid) for pid in processes]
    host.send_signal(signal.SIGKILL)
    await host.wait()
    for handle in handles:
        await readable(handle)
        os.close(handle)


async def readable(descriptor):
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(descriptor, lambda: ended.done() or ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)


# -- the backend --------------------------------------------------------------------------


async def test_warm_process_is_used_once():
    backend = LocalBackend(pool_size=2)
    try:
        await backend.warm_up(session_spec())
        await backend.pool.filled()
        warm = {guest.process.pid for guest in backend.pool.idle}
        assert len(warm) == 2
        first = await backend.open(session_spec())
        second = await backend.open(session_spec())
        assert {first.process.pid, second.process.pid} == warm
        await first.aclose()
        third = await backend.open(session_spec())
        assert third.process.pid not in warm
    finally:
        await backend.aclose()


async def test_warm_process_gets_the_requested_limits():
    backend = LocalBackend(pool_size=1)
    try:
        await backend.warm_up(session_spec())
        await backend.pool.filled()
        session = await backend.open(session_spec(memory_bytes=200 * 1024 * 1024))
        outcome = await session.execute("bytes(250 * 1024 * 1024)", NotingHost())
        assert outcome.limit == "memory"
    finally:
        await backend.aclose()


async def test_dead_warm_process_is_replaced():
    backend = LocalBackend(pool_size=1)
    try:
        await backend.warm_up(session_spec())
        await backend.pool.filled()
        dead = backend.pool.idle[0]
        os.kill(dead.process.pid, signal.SIGKILL)
        await until(lambda: not dead.process.running)
        session = await backend.open(session_spec())
        assert (await session.execute("1", NotingHost())) == Done(value=1)
    finally:
        await backend.aclose()


async def test_killed_idle_process_is_not_logged(caplog):
    backend = LocalBackend(pool_size=1)
    try:
        await backend.warm_up(session_spec())
        await until(lambda: backend.pool.idle)
        killed = backend.pool.idle[0].process
        killed.kill()
        await backend.pool.filled()
        await until(lambda: not killed.running)
        session = await backend.open(session_spec())
        assert (await session.execute("1", NotingHost())) == Done(value=1)
    finally:
        await backend.aclose()
    assert caplog.records == []


async def test_dead_template_is_replaced():
    backend = LocalBackend(pool_size=0)
    try:
        session = await backend.open(session_spec())
        os.kill(backend.template, signal.SIGKILL)
        outcome = await session.execute("await asyncio.Event().wait()", NotingHost())
        assert isinstance(outcome, Crashed)
        await session.aclose()
        session = await backend.open(session_spec())
        assert (await session.execute("1", NotingHost())) == Done(value=1)
    finally:
        await backend.aclose()


def test_archive_that_cannot_be_written_leaves_no_file(monkeypatch, tmp_path):
    def fail(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SandboxUnavailableError, match="cannot be written"):
        guest_archive()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


_NAMELESS = """
import ctypes
ctypes.CDLL(None).prctl(15, b"\\xffa:\\x85b\\rc", 0, 0, 0)  # PR_SET_NAME
print(flush=True)
input()
"""


def test_threads_of_a_process_with_an_odd_name_are_counted(monkeypatch):
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner or 1)  # root's threads are not counted
    with subprocess.Popen(
        [sys.executable, "-c", _NAMELESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert forkserver.count_threads_of_user() >= (owner != 0)


@pytest.mark.parametrize("count", [0, 5_000])
async def test_hanging_template_is_replaced(monkeypatch, count):
    """A template may also hang after reading only a part of its request."""
    backend = LocalBackend(pool_size=0)
    spec = session_spec(files=("/nowhere/" + "x" * 200,) * count)
    try:
        first = await backend.open(session_spec())
        with monkeypatch.context() as patch:
            patch.setattr(forkserver, "START_SECONDS", 0.2)
            os.kill(backend.template, signal.SIGSTOP)
            asked = [backend.open(spec) for _ in range(3)]
            for refusal in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(refusal, SandboxUnavailableError)
        outcome = await first.execute("await asyncio.Event().wait()", NotingHost())
        assert isinstance(outcome, Crashed)
        session = await backend.open(session_spec())
        assert (await session.execute("1", NotingHost())) == Done(value=1)
    finally:
        await backend.aclose()


def test_backend_can_be_used_by_a_new_event_loop():
    backend = LocalBackend(pool_size=1)

    async def use(close):
        session = await backend.open(session_spec())
        outcome = await session.execute("1", NotingHost())
        if close:
            await session.aclose()
            await backend.aclose()
        return outcome

    assert asyncio.run(use(close=True)) == Done(value=1)
    assert asyncio.run(use(close=True)) == Done(value=1)


async def test_allowed_libraries_are_visible():
    spec = SessionSpec(tools=(), libraries=("platformdirs",))
    async with local_session(spec) as session:
        code = "import platformdirs\nplatformdirs"
        assert isinstance(await session.execute(code, NotingHost()), Done)
    outcome, _ = await run_script(code)
    assert outcome.kind == "ImportError"


# -- folders ------------------------------------------------------------------------------


@pytest.fixture
def no_mounts(monkeypatch):
    """The host has no mount namespaces, and its settings say so."""
    monkeypatch.setattr("delf_sandbox_local.namespaces.seem_available", lambda: False)
    monkeypatch.setattr(
        "delf_sandbox_local.forkserver.BOOT",
        "import sys; sys.path[:0] = {source!r}; "
        "from delf_sandbox_local import namespaces; namespaces.enter = lambda: []; "
        "from delf_sandbox_local.template import main; del sys.path[:2]; "
        "main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))",
    )


@pytest.fixture
def on_disk(no_mounts, monkeypatch):
    """The host has no mount namespaces, and the user accepts scratch folders on its disk."""
    monkeypatch.setattr(LocalBackend.__init__, "__defaults__", ("disk",))


async def test_cancelled_fork_leaves_no_folder_and_no_socket(on_disk, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    backend = LocalBackend(pool_size=0)
    spec = session_spec(processes=4)
    await (await backend.open(spec)).aclose()
    begun, ended = threading.Event(), threading.Event()

    def getuid_slowly():
        """Hold up the thread that counts the threads of the user."""
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            ended.wait(50)
        return 0

    def left():
        return len(os.listdir("/proc/self/fd")), sorted(tmp_path.rglob("*"))

    monkeypatch.setattr(os, "getuid", getuid_slowly)
    before = left()
    opening = asyncio.create_task(backend.open(spec))
    assert await asyncio.to_thread(begun.wait, 10)
    opening.cancel()
    await asyncio.wait({opening})
    ended.set()
    assert left() == before
    await backend.aclose()


async def test_host_without_mount_namespaces_is_refused(no_mounts):
    backend = LocalBackend(pool_size=0)
    state = await backend.available()
    assert isinstance(state, Unavailable)
    assert "only each file is limited" in state.reason
    assert 'scratch = "disk"' in state.hint
    with pytest.raises(SandboxUnavailableError, match="no mounts of one's own"):
        await backend.open(session_spec())
    await backend.aclose()


async def test_wrongly_detected_mount_support_is_refused_at_the_first_session(
    no_mounts, monkeypatch
):
    monkeypatch.setattr("delf_sandbox_local.namespaces.seem_available", lambda: True)
    backend = LocalBackend(pool_size=0)
    assert isinstance(await backend.available(), Available)
    with pytest.raises(SandboxUnavailableError, match="no mounts of one's own"):
        await backend.open(session_spec())
    await backend.aclose()


@pytest.mark.parametrize("system", ["darwin", "freebsd14"])
async def test_unsupported_system_is_refused(system, monkeypatch):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("delf_sandbox_local.namespaces.seem_available", lambda: False)
    state = await LocalBackend().available()
    assert isinstance(state, Unavailable)
    assert "neither from your files nor from the network" in state.reason
    assert "sandbox-docker or sandbox-monty" in state.hint
    assert isinstance(await LocalBackend(scratch="disk").available(), Available)


async def test_agent_warns_of_weak_confinement_until_accepted(no_mounts):
    host, model = TestHost.discover(environ={}), ScriptedModel(default="```python\n'done'\n```")
    host.provide(model.spec, model.factory)
    with pytest.raises(SandboxUnavailableError, match="does not work here") as caught:
        await Agent(llm="scripted", host=host, sandbox="local").start()
    assert 'sandbox_config = { scratch = "disk" }' in caught.value.hint
    accepted = {"scratch": "disk"}
    async with Agent(llm="scripted", host=host, sandbox="local", sandbox_config=accepted) as agent:
        assert (await agent.arun("Do it.")).text == "done"


async def test_very_deep_folder_tree_is_removed(on_disk):
    code = POSIX + dedent("""
        for _ in range(1500):
            posix.mkdir('d')
            posix.close(posix.open('f', posix.O_CREAT))
            posix.chdir('d')
    """)
    async with local_session() as session:
        assert isinstance(await session.execute(code, NotingHost()), Done)
        folder = Path(session.process.scratch)
        assert (folder / "d" / "d" / "f").exists()
    assert not folder.exists()


def test_guest_cache_writable_by_others_is_ignored(tmp_path, monkeypatch):
    from delf_sandbox_local import backend

    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: theirs)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert backend.guest_archive().parent == tmp_path / f"delf-{os.getuid()}"
    assert list(theirs.iterdir()) == []


# -- threads ------------------------------------------------------------------------------

MANY_THREADS = POSIX + dedent("""
    thread = re.enum.sys.modules["_thread"]
    thread.stack_size(32768)
    lock = thread.allocate_lock()
    lock.acquire()
    count = 0
    try:
        while count < 500:
            thread.start_new_thread(lock.acquire, ())
            count += 1
    except (RuntimeError, MemoryError):
        pass
    count
""")


async def test_only_libraries_may_start_threads():
    async with local_session() as session:
        assert (await session.execute(MANY_THREADS, NotingHost())).value == 0
    async with local_session(replace(session_spec(), libraries=("platformdirs",))) as session:
        started = (await session.execute(MANY_THREADS, NotingHost())).value
    assert started >= 8
    if os.getuid() != 0:  # of root the kernel counts none
        assert started <= 64
