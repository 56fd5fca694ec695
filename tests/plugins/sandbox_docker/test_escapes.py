"""Attempts to get out of a container, or to take more of the host than it was given."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from delf_devkit.testing.contracts.bench import Bench, require_done
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_docker.engine import LABEL

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

PREAMBLE = """
import ctypes
import asyncio.base_events as b
os = b.os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def syscall(*arguments):
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(*values)
    return result if result >= 0 else -ctypes.get_errno()
def attempt(what, function, *arguments):
    try:
        result = function(*arguments)
    except OSError:
        return
    if not isinstance(result, int) or result >= 0:
        print("ESCAPED", what, repr(result)[:80])
def listed(path):
    return [name for name in os.listdir(path)] or -1
"""
ATTEMPTS = {
    "mounts": """
for name, arguments in {
    "tmpfs": (165, b"none", b"/tmp", b"tmpfs", 0, None), "remount": (165, None, b"/", None, 32, None),
    "umount": (166, b"/proc", 2), "pivot_root": (155, b".", b"."), "chroot": (161, b"/tmp"),
    "open_tree": (428, -100, b"/", 1), "fsopen": (430, b"tmpfs", 0), "setns": (308, 3, 0),
    "move_mount": (429, -100, b"/tmp", -100, b"/opt", 0)}.items():
    attempt(name, syscall, *arguments)""",
    "namespaces": """
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000):
    attempt(f"unshare {flag:#x}", syscall, 272, flag)
    attempt(f"clone {flag:#x}", syscall, 56, flag | 17, 0, 0, 0, 0)""",
    "programs in the kernel": """
attempt("bpf", syscall, 321, 0, (ctypes.c_uint32 * 32)(2, 4, 4, 1), 128)
attempt("perf", syscall, 298, (ctypes.c_uint32 * 32)(1, 128), 0, -1, -1, 0)
attempt("module", syscall, 313, 0, b"", 0)
attempt("io_uring", syscall, 425, 8, (ctypes.c_char * 120)())
attempt("userfaultfd", syscall, 323, 1)
attempt("keyctl", syscall, 250, 0, -3, 1)
attempt("add_key", syscall, 248, b"user", b"pwned", b"x", 1, -4)
attempt("handle", syscall, 304, -100, (ctypes.c_uint32 * 40)(128), 0)
attempt("fanotify", syscall, 300, 0x200, 0)""",
    "devices": """
for name, mode, device in (("disk", 0o60666, 0xFE00), ("null", 0o20666, 0x103), ("mem", 0o20666, 0x101)):
    attempt(f"mknod {name}", os.mknod, f"/tmp/{name}", mode, device)
for name in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/net/tun"):
    attempt(name, os.open, name, os.O_RDONLY)""",
    "settings of the kernel": """
for name in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
             "/proc/sys/vm/drop_caches", "/sys/kernel/uevent_helper", "/proc/1/oom_score_adj",
             "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/release_agent",
             "/proc/irq/default_smp_affinity", "/proc/acpi/wakeup"):
    attempt(name, os.open, name, os.O_WRONLY)
for name in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware/efi"):
    attempt(f"read {name}", lambda name=name: os.read(os.open(name, os.O_RDONLY), 1) and 1 or -1)
attempt("cgroup", os.mkdir, "/sys/fs/cgroup/pwned")""",
    "files of the image": """
for name in ("/opt/delf/boot.py", "/opt/delf/guest/delf/values/encoding.py", "/etc/passwd", "/etc/hosts",
             "/etc/resolv.conf", "/etc/hostname", "/workspace/x", "/run/delf/x", "/pwned", "/var/x"):
    attempt(f"write {name}", os.open, name, os.O_WRONLY | os.O_CREAT)
attempt("unlink", os.unlink, "/opt/delf/boot.py")
attempt("rename", os.rename, "/opt/delf", "/opt/other")
attempt("shadow", os.open, "/etc/shadow", os.O_RDONLY)""",
    "shared memory": """
for name in ("/dev/shm/pwned", "/dev/mqueue/pwned", "/dev/hugepages/pwned", "/dev/pwned"):
    attempt(name, os.open, name, os.O_CREAT | os.O_RDWR)""",
    "the engine": """
import asyncio
for name in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
    attempt(name, os.stat, name)
_socket = b.socket
for family in (_socket.AF_INET, _socket.AF_INET6):
    for port in (2375, 2376, 80, 53):
        for host in (("127.0.0.1", "172.17.0.1") if family == _socket.AF_INET else ("::1",)):
            try:
                s = _socket.socket(family)
                s.settimeout(0.2)
                s.connect((host, port))
                print("ESCAPED connected", host, port)
            except OSError:
                pass""",
    "raw sockets": """
_socket = b.socket
for family, kind, protocol in ((2, 3, 1), (17, 3, 3), (31, 3, 1), (16, 3, 0), (40, 1, 0), (38, 5, 0), (2, 3, 255)):
    try:
        s = _socket.socket(family, kind, protocol)
    except OSError:
        continue
    print("ESCAPED socket", family, kind)""",
    "privileges": """
attempt("setuid", os.setuid, 0)
attempt("setgid", os.setgid, 0)
attempt("setgroups", os.setgroups, [0])
attempt("capset", syscall, 126, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))
attempt("ambient", lambda: -1 if libc.prctl(47, 2, 21, 0, 0) else 1)
attempt("nice", os.setpriority, 0, 0, -10)
attempt("real time", syscall, 144, 0, 1, (ctypes.c_int * 1)(1))
attempt("reboot", syscall, 169, 0, 0, 0, None)
attempt("hostname", syscall, 170, b"x", 1)
attempt("clock", syscall, 227, 0, (ctypes.c_long * 2)(0, 0))
import resource
for name in ("CPU", "FSIZE", "NOFILE", "CORE"):
    which = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(which)
    try:
        resource.setrlimit(which, (hard + 1, hard + 1))
        print("ESCAPED", name)
    except (OSError, ValueError):
        pass""",
    "programs in scratch": """
with open("/tmp/p", "wb") as f: f.write(b"#!/bin/sh\\necho pwned")
os.chmod("/tmp/p", 0o6755)
attempt("exec", lambda: os.posix_spawn("/tmp/p", ["p"], {}))
import mmap
with open("/tmp/p", "r+b") as f:
    attempt("map", lambda: mmap.mmap(f.fileno(), 0, prot=5) and 1)""",
    "the first process": """
for name in ("mem", "environ", "fd", "cwd", "root", "exe", "ns/pid", "ns/mnt", "maps", "stack"):
    attempt(name, os.readlink, f"/proc/1/{name}")
    attempt(name, os.open, f"/proc/1/{name}", os.O_RDONLY) if name != "fd" else attempt("fd", listed, "/proc/1/fd")
attempt("pidfd_getfd", lambda: syscall(438, os.pidfd_open(1), 0, 0))
attempt("process_vm", syscall, 310, 1, (ctypes.c_size_t * 2)(), 1, (ctypes.c_size_t * 2)(0x400000, 8), 1, 0)""",
    "the wire of another": """
_socket = b.socket
for name in (os.listdir("/run/delf") if os.path.exists("/run/delf") else ()):
    s = _socket.socket(_socket.AF_UNIX)
    try:
        s.connect("/run/delf/" + name)
        print("ESCAPED connected again", name)
    except OSError:
        pass
    s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    attempt("bind", lambda: s.bind("/run/delf/x") or 1)""",
}


async def test_own_escape_attempts_fail(make_backend: Any):
    async with Bench(make_backend()) as bench:
        run = await bench.open(modules=("asyncio", "ctypes", "mmap", "resource"))
        for name, attempt in ATTEMPTS.items():
            if not run.session.alive:
                run = await bench.open(modules=("asyncio", "ctypes", "mmap", "resource"))
            before = len(run.host.text)
            require_done(await asyncio.wait_for(run(PREAMBLE + attempt), 30))
            message = run.host.text[before:]
            assert "ESCAPED" not in message, f"{name}: {message}"


async def test_proxy_password_is_not_inside_the_container(
    docker_engine: Any, make_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The Docker client copies its configured proxies into containers, unless configured otherwise."""
    proxies = {"httpProxy": "http://me:a-secret-4411@proxy:3128", "noProxy": "a-secret-4411"}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": {"default": proxies}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    code = "import asyncio.base_events as b\ndict(b.os.environ)"
    async with Bench(make_backend()) as bench:
        environ = require_done(await bench.run(code, modules=("asyncio",))).value
    assert "a-secret-4411" not in repr(environ)
    assert environ["HOME"] == "/tmp"


async def test_base_image_volumes_are_read_only(docker_engine: Any):
    """Writable volumes would be on the engine's disk, without limit."""
    client = docker_engine.client()
    name = f"{docker_engine.base_image.partition(':')[0]}-volumes"
    made = client.create_container(docker_engine.base_image, "true", labels={LABEL: "test"})
    client.commit(made, repository=name, tag="1", changes=["VOLUME /data /srv/more"])
    client.remove_container(made)
    backend = DockerBackend(engine=docker_engine.url, base_image=f"{name}:1", pool_size=0)
    code = """
import asyncio.base_events as b
found = []
for folder in ("/data", "/srv/more"):
    try:
        b.os.open(folder + "/x", b.os.O_CREAT | b.os.O_WRONLY)
        found.append(folder)
    except OSError as error:
        pass
with b.os.fdopen(b.os.open("/proc/mounts", 0)) as mounts:
    kinds = dict(line.split()[1:3] for line in mounts)
[found, [kinds.get(folder) for folder in ("/data", "/srv/more")]]
"""
    try:
        async with Bench(backend) as bench:
            written, kinds = require_done(await bench.run(code, modules=("asyncio",))).value
        assert written == []
        assert kinds == ["tmpfs", "tmpfs"]
        assert client.volumes()["Volumes"] in (None, [])
    finally:
        client.close()
