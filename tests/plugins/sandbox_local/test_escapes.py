"""Attempts to escape get nowhere: the shared corpus, and those in ``escapes/``, one technique each.

As the user who runs the tests, and again as one without any rights where root runs them.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from delf_confined import seccomp
from delf_sandbox_local.backend import LocalBackend
from support.corpora import CORPUS, Targets, entries, run_escapes
from support.workspace import CORE, ROOT

from .attempts import limits_kept, run_attempts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's"),
]
NOBODY = 65534
PARTS = 4
_NOBODY = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
"""Skip changes of the user without root: another user cannot change and has no rights anyway."""
here = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the attempts use the call numbers of x86_64"
)


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Templates are started in the same way as for users, without the tests' shortcut."""


@here
async def test_own_escape_attempts_fail(tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_SECRET", "")
    with limits_kept():
        assert await run_attempts(tmp_path) == {}


@pytest.mark.parametrize("part", range(PARTS))
async def test_escape_corpus_fails(part, tmp_path, monkeypatch):
    found = entries("escape")[part::PARTS]
    if not found:
        pytest.skip("needs ../shared")
    backend = LocalBackend(pool_size=1)
    async with Targets(tmp_path, monkeypatch.setenv) as target:
        escaped = await run_escapes(backend, found, target)
        await backend.aclose()
    assert escaped == {}


# -- as a user without rights -----------------------------------------------------------------


@pytest.fixture(scope="module")
def unprivileged():
    """Runs a test module as the user nobody, in a copy of delf that this user can read."""
    python = next(filter(_can_run, (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("there is no Python 3.11 that other users can run")
    import platformdirs

    folder = Path(tempfile.mkdtemp(prefix="delf-nobody-", dir="/tmp"))
    sources = (
        (CORE / "src/delf", "delf"),
        (ROOT / "libs/confined/src/delf_confined", "delf_confined"),
        (ROOT / "libs/sandbox/src/delf_sandbox", "delf_sandbox"),
        (ROOT / "plugins/sandbox-local/src/delf_sandbox_local", "delf_sandbox_local"),
        (Path(platformdirs.__file__).parent, "platformdirs"),
        (ROOT / "tests/support", "tests/support"),
        (ROOT / "tests/plugins/sandbox_local", "tests/plugins/sandbox_local"),
    )
    for source, name in sources:
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)

    def run(module, *words):
        boot = (
            f"import sys, runpy; sys.path[:0] = [{str(folder)!r}, {str(folder / 'tests')!r}]; "
            f"sys.argv = ['x', *sys.argv[1:]]; runpy.run_module({module!r}, run_name='__main__')"
        )
        return subprocess.run(
            [python, "-I", "-S", "-B", "-c", boot, *words],
            **_NOBODY,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=200,
        )

    yield run
    shutil.rmtree(folder)


def _can_run(python):
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run(
            [python, "-I", "-c", probe],
            **_NOBODY,
            capture_output=True,
        )
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture
def target():
    """A folder to which the user nobody may write."""
    folder = tempfile.mkdtemp(prefix="delf-target-", dir="/tmp")
    if _NOBODY:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@here
def test_own_escape_attempts_fail_as_nobody(unprivileged, target):
    done = unprivileged("plugins.sandbox_local.attempts", target)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_escape_corpus_fails_as_nobody(part, unprivileged, target):
    if not entries("escape"):
        pytest.skip("needs ../shared")
    corpus = Path(target) / "corpus"
    shutil.copytree(CORPUS, corpus)
    subprocess.run(["chmod", "-R", "u+w", corpus], check=True)  # or its user cannot remove it
    aim = Path(target) / "aim"
    aim.mkdir()
    if _NOBODY:
        os.chown(aim, NOBODY, NOBODY)
    done = unprivileged("support.corpora", corpus, aim, str(part), str(PARTS))
    assert done.returncode == 0, done.stderr
    tries, escaped = json.loads(done.stdout)
    assert (tries >= 30, escaped) == (True, {})


# -- with less than all of it -----------------------------------------------------------------


@here
@pytest.mark.parametrize("without", ["landlock", "seccomp"])
async def test_remaining_layers_confine_if_one_is_missing(without, tmp_path, monkeypatch):
    """Only the confinement of reading depends on Landlock alone."""
    names = ["ptrace", "memory_of_others", "namespaces", "mounts", "network", "limits_of_others"]
    names += ["signals_to_others", "chmod_outside", "signals_by_owner"]
    if without == "seccomp":
        names = ["open_raw", "hard_link", "rename_race", "proc_of_others"]
    monkeypatch.setattr("delf_sandbox_local.forkserver.BOOT", _BOOT_WITHOUT[without])
    with limits_kept():
        assert await run_attempts(tmp_path, names) == {}


_BOOT_WITHOUT = {
    name: (
        "import sys; sys.path[:0] = {source!r}; "
        f"from delf_confined import {name}; {name}.{switch} = lambda: 0; "
        "from delf_sandbox_local.template import main; del sys.path[:2]; "
        "main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
    )
    for name, switch in (("landlock", "version"), ("seccomp", "supported"))
}


OLDER = {
    1: "Linux 5.13: moving between folders is not asked about",
    2: "Linux 5.19, as in Debian 12: cutting files is not asked about",
    3: "Linux 6.2: neither are ports",
    5: "Linux 6.10: nor are signals and abstract sockets",
}


@here
@pytest.mark.parametrize("version", OLDER, ids=OLDER.values())
async def test_older_landlock_versions_still_confine(version, tmp_path, monkeypatch):
    boot = _BOOT_WITHOUT["landlock"].replace("lambda: 0", f"lambda: {version}")
    monkeypatch.setattr("delf_sandbox_local.forkserver.BOOT", boot)
    names = ["open_raw", "open_without_access", "truncate_by_reading", "truncate_outside"]
    names += ["rename_race", "rename_whiteout", "hard_link", "guest_archive", "marks_on_files"]
    names += ["sockets_of_pairs", "signals_to_others", "proc_of_others", "terminals"]
    with limits_kept():
        assert await run_attempts(tmp_path, names) == {}


# -- the filter on paper ----------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_seccomp_filter_is_well_formed(machine):
    code = seccomp.build(machine, seccomp.Permissions(threads=True))
    instructions = [code[n : n + 8] for n in range(0, len(code), 8)]
    assert len(instructions) < 4096
    for number, instruction in enumerate(instructions):
        kind, yes, no = int.from_bytes(instruction[:2], sys.byteorder), *instruction[2:4]
        if kind & 0x07 == 0x05:
            assert number + 1 + max(yes, no) < len(instructions)
    assert int.from_bytes(instructions[-1][:2], sys.byteorder) == 0x06
