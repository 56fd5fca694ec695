"""Hostile scripts, hosts and engines."""

import asyncio
import subprocess
import sys

import pytest

from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import Crashed, Done, LimitReached, Limits, Unavailable
from delf_devkit.testing.contracts.bench import Bench, require_done
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_docker.engine import LABEL, LABEL_OWNER, Engine, owner
from support import program
from support.until import until

pytestmark = [pytest.mark.services, pytest.mark.timeout(90)]

MB = 2**20
INSIDE = "import asyncio.base_events as b\nos = b.os\n"


async def test_memory_limit_ends_the_script(make_backend):
    code = (
        INSIDE
        + """
for n in range(8):
    if os.fork() == 0:
        break
rows = []
while True: rows.append(bytearray(1_000_000))
"""
    )
    async with Bench(make_backend()) as bench:
        limits = Limits(memory_bytes=96 * MB, cpu_seconds=20)
        outcome = await bench.run(code, limits=limits)
        assert isinstance(outcome, LimitReached), outcome
        assert outcome.limit == "memory"
        assert require_done(await bench.run("1 + 1")).value == 2


async def test_fork_bomb_ends_with_its_session(make_backend, containers):
    code = (
        INSIDE
        + """
await begin()
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    )
    begun = asyncio.Event()
    async with Bench(make_backend()) as bench:
        run = await bench.open(RecordingScriptHost({"begin": begun.set}))
        other = await bench.open()
        work = asyncio.ensure_future(run(code))
        await begun.wait()
        assert require_done(await other("sum(range(1_000_000))")).value == 499999500000
        work.cancel()
        await asyncio.wait({work})
        await until(lambda: len(containers()) == 1)
        assert require_done(await other("1 + 1")).value == 2


async def test_process_limit_is_enforced(make_backend):
    code = (
        INSIDE
        + """
children = 0
try:
    while True:
        if os.fork() == 0:
            b.time.sleep(60)
        children += 1
except OSError as error:
    print(children, error)
"""
    )
    async with Bench(make_backend(pids_limit=20)) as bench:
        run = await bench.open()
        require_done(await run(code))
        assert 10 <= int(run.host.text.split()[0]) < 20


async def test_container_runs_with_restrictive_options(make_backend, docker_engine, containers):
    code = """
import pathlib
status = pathlib.Path("/proc/self/status").read_text()
facts = dict(line.split(":", 1) for line in status.splitlines())
mounts = [line.split()[1:4:2] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
[facts["CapEff"].strip(), facts["CapBnd"].strip(), facts["NoNewPrivs"].strip(),
 facts["Seccomp"].strip(), facts["Uid"].split()[0], dict(mounts)["/"][:3], dict(mounts)["/tmp"],
 [p.name for p in pathlib.Path("/sys/class/net").iterdir()]]
"""
    async with Bench(make_backend()) as bench:
        caps, bound, no_new, seccomp, uid, root, tmp, net = require_done(
            await bench.run(code)
        ).value
        (one,) = containers()
        client = docker_engine.client()
        config = client.inspect_container(one)["HostConfig"]
        client.close()
    assert (int(caps, 16), int(bound, 16), no_new, seccomp) == (0, 0, "1", "2")
    assert int(uid) >= 10_000
    assert root.startswith("ro")
    assert {"rw", "noexec", "nosuid", "nodev", "size=51200k"} <= set(tmp.split(","))
    assert net == ["lo"]
    assert config["Memory"] == config["MemorySwap"] == 512 * MB
    assert (config["NanoCpus"], config["PidsLimit"], config["AutoRemove"]) == (10**9, 64, True)


async def test_containers_run_as_different_users(make_backend):
    """The kernel counts some resources per user, so one container could watch another."""
    code = INSIDE + "[os.getuid(), os.getgid(), os.environ['USER']]"
    async with Bench(make_backend()) as bench:
        seen = [require_done(await bench.run(code)).value for _ in range(2)]
    assert seen[0][0] != seen[1][0]
    assert [[user, "sandbox"] for user, _, _ in seen] == [about[1:] for about in seen]


async def test_processes_of_a_script_share_its_cpu_limit(make_backend):
    """Each process alone stays well within the limit."""
    code = (
        INSIDE
        + """
for _ in range(20):
    child = os.fork()
    if child == 0:
        end = b.time.process_time() + 0.3
        while b.time.process_time() < end: pass
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    async with Bench(make_backend()) as bench:
        outcome = await bench.run(code, limits=Limits(cpu_seconds=1))
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "cpu"


@pytest.mark.parametrize(
    "code",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), 9)",
        "os.abort()",
    ],
    ids=["exit", "kill", "abort"],
)
async def test_self_inflicted_exit_is_reported_as_caused_by_the_script(make_backend, code):
    async with Bench(make_backend()) as bench:
        outcome = await bench.run(INSIDE + code)
    assert isinstance(outcome, Crashed), outcome
    assert outcome.by_script


async def test_cpu_time_of_a_script_is_reported(make_backend):
    code = INSIDE + "end = b.time.process_time() + 0.5\nwhile b.time.process_time() < end: pass\n"
    async with Bench(make_backend()) as bench:
        run = await bench.open()
        outcome = await run(code + "os._exit(3)")
        assert isinstance(outcome, Crashed), outcome
        await run.session.aclose()
        assert 0.5 <= run.session.cpu_seconds < 30


@pytest.mark.parametrize("then", ["", "\nwhile True: pass"], ids=["waiting", "busy"])
async def test_container_ends_when_its_host_dies(docker_engine, containers, then):
    code = f"""
import asyncio, sys
from delf_sandbox_docker.backend import DockerBackend
from delf_devkit.testing.scripts import RecordingScriptHost

async def main():
    host = RecordingScriptHost({{"say": lambda: print("running", flush=True)}})
    backend = DockerBackend(engine={docker_engine.url!r}, base_image={docker_engine.base_image!r},
                            pool_size=0)
    session = await backend.open(host.spec())
    await session.execute("await say()" + {then!r}, host)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    host = program.start([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with host:
        try:
            assert await asyncio.to_thread(host.stdout.readline) == b"running\n"
            label = f"{LABEL_OWNER}={owner(host.pid)}"
            assert len(containers(label)) == 1
        finally:
            host.kill()
    await until(lambda: containers(label) == set())


async def test_containers_of_dead_hosts_are_removed(make_backend, docker_engine, containers):
    """The engine itself does not remove a container that was never started."""
    dead = subprocess.run(
        [sys.executable, "-c", "from delf_sandbox_docker.engine import owner; print(owner())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    from delf_sandbox_docker.engine import LABEL_HOST, machine

    client = docker_engine.client()
    client.create_container(
        docker_engine.base_image,
        "true",
        labels={LABEL: "session", LABEL_OWNER: dead, LABEL_HOST: machine()},
    )
    client.close()
    assert len(containers(f"{LABEL_OWNER}={dead}")) == 1
    async with Bench(make_backend()) as bench:
        require_done(await bench.run("1"))
        assert containers(f"{LABEL_OWNER}={dead}") == set()


async def test_killed_container_is_a_crash(make_backend, docker_engine, containers):
    begun = asyncio.Event()
    async with Bench(make_backend()) as bench:
        run = await bench.open(RecordingScriptHost({"begin": begun.set}))
        work = asyncio.ensure_future(run("await begin()\nwhile True: pass"))
        await begun.wait()
        client = docker_engine.client()
        client.kill(next(iter(containers())))
        client.close()
        outcome = await work
        assert isinstance(outcome, Crashed), outcome
        assert "gone" in outcome.message
        assert not outcome.by_script
        assert not run.session.alive


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP", "SIGTERM"])
async def test_script_cannot_stop_the_init_process(make_backend, containers, signal_name):
    code = INSIDE + f"import asyncio.unix_events as u\nos.kill(1, u.signal.{signal_name})\n1 + 1"
    async with Bench(make_backend()) as bench:
        run = await bench.open()
        outcome = await run(code)
        assert isinstance(outcome, Done | Crashed), outcome
        await run.session.aclose()
        assert containers() == set()


async def test_script_cannot_access_the_init_process(make_backend):
    """By changing its memory, a script could keep the container alive after its host."""
    code = (
        INSIDE
        + """
import ctypes
reached = []
for name in ("mem", "environ", "fd/0", "fd/2", "root/etc/passwd", "maps"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.open(f"/proc/1/{name}", flags)
            reached.append(name)
        except OSError:
            pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, 1, 0, 0) == 0 or libc.ptrace(0x4206, 1, 0, 0) == 0:
    reached.append("ptrace")
reached
"""
    )
    async with Bench(make_backend()) as bench:
        assert require_done(await bench.run(code, modules=("asyncio", "ctypes"))).value == []


async def test_allowed_libraries_are_installed_into_the_image(make_backend):
    code = "import delf_test_lib\ndelf_test_lib.answer()"
    backend = make_backend(build_network="none")
    async with Bench(backend) as bench:
        options = {"libraries": ("delf-test-lib",), "modules": ("delf_test_lib",)}
        assert require_done(await bench.run(code, **options)).value == 42
        assert not isinstance(await bench.run(code, modules=("delf_test_lib",)), Done)
        with pytest.raises(SandboxUnavailableError, match="no-such-library-at-all") as caught:
            await bench.open(libraries=("no-such-library-at-all",))
        assert "allowed_libs" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("unix:///nowhere/docker.sock", "does not run|not installed"),
        ("tcp://127.0.0.1:9", "not answer"),
    ],
)
async def test_missing_docker_engine_is_reported(url, words):
    backend = DockerBackend(engine=url)
    state = await backend.available()
    assert isinstance(state, Unavailable)
    assert state.hint
    with pytest.raises(SandboxUnavailableError, match=words):
        await backend.open(RecordingScriptHost().spec())
    await backend.aclose()


async def test_other_server_is_not_taken_for_an_engine():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        backend = DockerBackend(engine=f"tcp://127.0.0.1:{port}")
        state = await backend.available()
        await backend.aclose()
    assert isinstance(state, Unavailable)
    assert "not a Docker engine" in state.reason


def test_engine_errors_are_explained():
    engine = Engine("unix:///nowhere/docker.sock")
    full = engine.explain(OSError("write /x: no space left on device"))
    assert "disk is full" in full.message
    assert "prune" in full.hint
    denied = engine.explain(PermissionError(13, "Permission denied"))
    assert "group docker" in denied.hint


async def test_standard_streams_carry_large_values(make_backend):
    host = RecordingScriptHost(
        {"give": lambda: "é" * 5_000_000, "take": len, "double": lambda n: n * 2}
    )
    async with Bench(make_backend()) as bench:
        run = await bench.open(host)
        assert require_done(await run("await take((await give()) + 'x')")).value == 5_000_001
        code = "import asyncio\nsum(await asyncio.gather(*(double(n) for n in range(10_000))))"
        assert require_done(await run(code)).value == sum(range(10_000)) * 2
        require_done(
            await run("add_to_output_files('a.bin', bytes(range(256)) * 8192)\nprint('é 🦊')")
        )
        assert host.files["a.bin"] == bytes(range(256)) * 8192
        assert host.text == "é 🦊\n"
        begun = asyncio.Event()
        other = await bench.open(RecordingScriptHost({"begin": begun.set}))
        work = asyncio.ensure_future(other("await begin()\nwhile True: pass"))
        await begun.wait()
        work.cancel()
        await asyncio.wait({work})
        assert not other.session.alive
