"""Packages as people get them: built, checked, installed by name, removed again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.authorities import OF_THE_MACHINE
from support.program import write_recording
from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT

from .pages import blocks_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BIN = Path(sys.executable).parent
STANDARD = (
    "approval-terminal", "chat", "console", "engine", "files", "journal-sql", "llm", "model-http",
    "sandbox-local", "strategy-codegen",
)  # fmt: skip
OF_THE_DEMO = ("demo", "model-recorded", "serve", "sql")
BUILT = (*STANDARD, "devkit", "model-recorded")
SCRIPT = """
if await stock("desk"):
    print("There is a desk.")
else:
    print(f"There is no desk, but there are {await stock('lamp')} lamps.")
"""


def run(*command: object, cwd: Path, **environ: str) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environ},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _fails(*command: object, cwd: Path) -> str:
    words = [str(part) for part in command]
    result = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    assert result.returncode != 0
    return result.stderr


def _packages() -> list[Path]:
    libraries = sorted(path.parent for path in ROOT.glob("libs/*/pyproject.toml"))
    return [CORE, *libraries, *(ROOT / "plugins" / name for name in BUILT)]


def _vendors() -> list[str]:
    """Packages of others come from an index, and everything of delf from the folder."""
    projects = [tomllib.loads((p / "pyproject.toml").read_text())["project"] for p in _packages()]
    lines = [line for project in projects for line in project["dependencies"]]
    return ["hatchling", *(line for line in lines if not line.startswith("delf"))]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels and sdists, as `make dist` makes it of some packages."""
    out = tmp_path_factory.mktemp("dist") / "dist"
    run(sys.executable, "scripts/dist", out, *_packages(), cwd=ROOT)
    return out


def test_distributions_pass_the_index_checks(dist: Path) -> None:
    wheels, sdists = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    assert len(wheels) == len(sdists) >= len(BUILT) + 1
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        assert any(name.endswith("/py.typed") for name in names), wheel.name
        assert any(name.endswith("licenses/LICENSE") for name in names), wheel.name
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = zipfile.ZipFile(wheel).read(metadata).decode()
        assert re.search(r"^License-Expression: Apache-2\.0$", text, re.MULTILINE), wheel.name
        assert "Description-Content-Type: text/markdown" in text, wheel.name
    for sdist in sdists:
        with tarfile.open(sdist) as archive:
            names = [name.partition("/")[2] for name in archive.getnames()]
        assert {"LICENSE", "README.md", "pyproject.toml"} <= set(names), sdist.name


def test_fresh_environment_installs_and_uninstalls_plugins(dist: Path, tmp_path: Path) -> None:
    uv, venv = BIN / "uv", tmp_path / "venv"
    python = venv / "bin/python"
    run(uv, "venv", "--quiet", "--python", sys.executable, venv, cwd=tmp_path)

    def install(*names: str) -> None:
        options = ("--quiet", "--python", python, "--no-index", "--find-links", dist)
        run(uv, "pip", "install", *options, *names, cwd=tmp_path)

    vendors = ("--quiet", "--python", python, *_vendors())
    run(uv, "pip", "install", *vendors, cwd=tmp_path, **OF_THE_MACHINE)
    install("delf-core")
    bare = subprocess.run([venv / "bin/delf", "run", "x"], capture_output=True, text=True)
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr.splitlines() == [
        "error: no command 'run' is installed",
        "hint: pip install --find-links dist delf-plugin-console",
    ]
    assert "OptionalDependencyError" in _fails(python, "-c", "from delf import Agent", cwd=tmp_path)
    install("delf-core[standard]", "delf-plugin-model-recorded")
    listed = run(venv / "bin/delf", "plugins", cwd=tmp_path)
    for name in (*STANDARD, "model-recorded"):
        assert re.search(rf"^{name} .* loaded", listed, re.MULTILINE), listed

    answers = tmp_path / "answers.jsonl"
    write_recording(answers, SCRIPT)
    (example,) = (
        block.code
        for block in blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
        if "agent.run(" in block.code
    )
    (tmp_path / "first.py").write_text(example.replace("gpt-4o-mini", f"recorded:{answers}"))
    assert "There is no desk, but there are 4 lamps." in run(python, "first.py", cwd=tmp_path)

    install("delf-core[testing]")
    run(venv / "bin/delf", "plugins", "new", "help-desk", cwd=tmp_path)
    theirs = tmp_path / "delf-plugin-help-desk"
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-index", "--find-links", dist,
        "--no-build-isolation", f"{theirs}[test]", cwd=tmp_path)  # fmt: skip
    assert re.search(
        r"^help-desk .* loaded", run(venv / "bin/delf", "plugins", cwd=tmp_path), re.MULTILINE
    )
    assert " passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=theirs)

    delf = venv / "bin/delf"
    alone = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "UV_OFFLINE": "1",
        "UV_NO_BUILD_ISOLATION": "1",
    }
    run(delf, "plugins", "uninstall", "--yes", "chat", "model-recorded", cwd=tmp_path, **alone)
    assert not {"chat", "model-recorded"} & _plugins(run(delf, "plugins", cwd=tmp_path))
    message = run(
        delf,
        "plugins",
        "install",
        "--yes",
        "model-recorded",
        "--find-links",
        dist,
        cwd=tmp_path,
        **alone,
    )
    assert "✓ model-recorded 0.1.0  model recorded" in message

    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--no-deps",
        CORE,
        cwd=tmp_path,
        **alone,
    )
    message = run(delf, "plugins", "install", "--yes", "prefilter-llm", cwd=tmp_path, **alone)
    assert "✓ prefilter-llm 0.1.0  prefilter filter, search" in message, "not taken from the clone"


def _plugins(listed: str) -> set[str]:
    return {line.split(" ")[0] for line in listed.splitlines()}


@pytest.mark.soak
def test_setup_command_ignores_adjacent_files(tmp_path: Path) -> None:
    """README's commands, with a folder `shell` and a pip.py in the working folder."""
    here = tmp_path / "clone"
    folders = [CORE, ROOT / "scripts", *(package.folder for package in (*LIBRARIES, *PLUGINS))]
    for folder in folders:
        shutil.copytree(folder, here / folder.relative_to(ROOT))
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
        shutil.copy(ROOT / name, here / name)
    by_hand = {**OF_THE_MACHINE, "MAKEFLAGS": "", "MAKELEVEL": "0"}  # also where make runs tests
    where = run("make", "install", f"PYTHON={sys.executable}", cwd=here, **by_hand)
    delf = where.splitlines()[-1].partition(": ")[2]
    assert delf == f"{here}/.venv/bin/delf"
    again = run("make", "install", cwd=here, **by_hand)
    assert again == where.splitlines()[-1] + "\n", "once is enough"
    loaded = run(delf, "plugins", cwd=tmp_path)
    assert {*STANDARD, *OF_THE_DEMO} == {
        line.split()[0] for line in loaded.splitlines() if "loaded" in line
    }

    (tmp_path / "shell").mkdir()
    (tmp_path / "shell/pyproject.toml").write_text('[project]\nname = "strangers"\nversion = "1"\n')
    (tmp_path / "pip.py").write_text("raise SystemExit('a stranger ran')")
    (tmp_path / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\n')
    message = run(delf, "plugins", "install", "--yes", "shell", cwd=tmp_path, **OF_THE_MACHINE)
    assert message == "✓ shell 0.1.0  connection shell\n"
