"""Plugins made by ``delf plugins new`` work on every Python, installed from wheels alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from delf_devkit.new import KINDS, fields_of, render, write_package
from support.authorities import OF_THE_MACHINE
from support.typed_pages import PROGRAMS
from support.workspace import CORE, LIBRARIES, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BIN = Path(sys.executable).parent
PYTHONS = ("3.13",)
"""The newest: this environment, in which all else is tested, has the oldest."""
EXTRAS = tomllib.loads((CORE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NEEDED = sorted(
    {
        line.partition(">")[0].removeprefix("delf-plugin-")
        for extra in ("standard", "testing")
        for line in EXTRAS[extra]
        if line.startswith("delf-plugin-")
    }
)
BUILD = """
import contextlib, sys
from hatchling.build import build_wheel
out, *packages = sys.argv[1:]
for package in packages:
    with contextlib.chdir(package):
        build_wheel(out)
"""
OURS = [CORE, *(lib.folder for lib in LIBRARIES), *(ROOT / "plugins" / name for name in NEEDED)]
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
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


def name_of(kind: str) -> str:
    """Return a unique name, because connections and commands carry their names without a prefix."""
    return "greet" if kind == "command" else "desk"


@pytest.fixture(scope="module")
def scaffolds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of every kind, each in a folder named after its kind."""
    folder = tmp_path_factory.mktemp("scaffolds")
    for kind in KINDS:
        write_package(folder / kind, render(kind, fields_of(name_of(kind), kind)))
    return folder


@pytest.fixture(scope="module")
def wheels(scaffolds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of these packages, and of the delf packages that they need."""
    out = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-c", BUILD, out, *OURS, *sorted(scaffolds.iterdir()), cwd=out)
    return out


def python_of(version: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [*sorted(pyenv.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")]
    for python in filter(None, found):
        asked = [python, "-c", VERSION]
        message = subprocess.run(asked, capture_output=True, text=True)
        if message.stdout.strip() == version:
            return str(python)
    pytest.skip(f"Python {version} is not installed here")


def vendors() -> list[str]:
    """Return the third-party requirements of the packages, which an index provides."""
    needed: set[str] = set()
    for folder in OURS:
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        needed |= {line for line in project["dependencies"] if not line.startswith("delf")}
    return sorted(needed)


@pytest.fixture(scope="module", params=PYTHONS)
def python(
    request: pytest.FixtureRequest, wheels: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment with only the packages that an installer installs."""
    base, folder = python_of(request.param), tmp_path_factory.mktemp(f"python{request.param}")
    made = folder / "venv/bin/python"
    run(BIN / "uv", "venv", "--quiet", "--python", base, folder / "venv", cwd=folder)
    install = (BIN / "uv", "pip", "install", "--quiet", "--python", made)
    run(*install, *vendors(), cwd=folder, **OF_THE_MACHINE)
    ours = [f"{fields_of(name_of(kind), kind)['distribution']}[test]" for kind in KINDS]
    run(*install, "--no-index", "--find-links", wheels, *ours, cwd=folder)
    return made


def test_scaffolded_suites_and_tasks_pass(python: Path, scaffolds: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    shutil.copytree(scaffolds, tmp_path / "packages")  # what a run leaves beside a test
    for source in (tmp_path / "packages").glob("*/src"):
        shutil.rmtree(source)  # the wheel is what is tested
    tests = sorted((tmp_path / "packages").glob("*/tests"))
    assert len(tests) == len(KINDS)
    options = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-rs")
    message = run(python, "-m", "pytest", *options, *tests, cwd=tmp_path)
    assert " passed" in message
    assert "SKIPPED" not in message
    checked = run(python.with_name("delf"), "plugins", "check", cwd=tmp_path)
    assert "✗" not in checked


@pytest.mark.parametrize("python", PYTHONS[-1:], indirect=True)
def test_scaffolded_code_passes_strict_type_checks(
    python: Path, scaffolds: Path, tmp_path: Path
) -> None:
    sources = sorted(scaffolds.glob("*/src"))
    mypy = (BIN / "mypy", "--strict", "--no-incremental", "--python-executable", python)
    # Programs of users, too: their imports are read already, so that one run costs little more.
    checked = [*(path for source in sources for path in source.iterdir()), *PROGRAMS]
    run(*mypy, *checked, cwd=tmp_path)
    settings = {
        "include": list(map(str, sources)),
        "typeCheckingMode": "strict",
        "pythonVersion": run(python, "-c", VERSION, cwd=tmp_path).strip(),
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    run(BIN / "pyright", "-p", tmp_path, "--pythonpath", python, cwd=tmp_path)
