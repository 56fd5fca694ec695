"""The data libraries that scripts use most do their work in a container, too."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from delf.protocols.sandbox import Done, Limits, SessionSpec
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox.modules import allowed_modules
from delf_sandbox_docker import container
from delf_sandbox_docker.boot import LIBRARIES
from support.data_libraries import ANSWERS, USES, installed

pytestmark = [pytest.mark.services, pytest.mark.timeout(150)]


def mounts_of_this_environment():
    """Its libraries where the image has those that pip installs, and what these need beside."""
    site = Path(sysconfig.get_paths()["platlib"])
    compiled = next((site / "pandas").rglob("*.so"))
    said = subprocess.run(["ldd", compiled], capture_output=True, text=True).stdout
    libc = next(line.split()[2] for line in said.splitlines() if line.split()[0] == "libc.so.6")
    system = Path(libc).parent
    left_out = Path(sysconfig.get_paths()["stdlib"], "unittest")
    mounts = {site: LIBRARIES, system.resolve(): system, left_out: left_out}
    return [f"{outside}:{inside}:ro" for outside, inside in mounts.items()]


async def test_they_do_their_work(make_backend, monkeypatch):
    names, own = installed(), container._binds
    monkeypatch.setattr(
        container, "_binds", lambda folder: [*own(folder), *mounts_of_this_environment()]
    )
    limits = Limits(cpu_seconds=100, memory_bytes=2 * 2**30, open_files=256)
    spec = SessionSpec(tools=(), modules=allowed_modules(names), limits=limits)
    session = await make_backend(pids_limit=128).open(spec)
    ends = {name: await session.execute(USES[name], RecordingScriptHost()) for name in names}
    await session.aclose()
    values = {name: end.value if isinstance(end, Done) else end for name, end in ends.items()}
    assert values == {name: ANSWERS[name] for name in names}
