"""``delf plugins new``: what it writes works at once, whatever the kind."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from delf.hookspecs import HOOKS
from delf_cli.main import cli
from delf_devkit.new import KINDS, fields_of, render, write_package
from delf_devkit.testing.hosts import install_plugin
from support import program
from support.workspace import ROOT

DEVKIT = ROOT / "plugins/devkit"

every_kind = pytest.mark.parametrize("kind", list(KINDS))


def write(folder: Path, kind: str, name: str = "help-desk") -> Path:
    write_package(folder, render(kind, fields_of(name, kind)))
    return folder


def install(package: Path) -> str:
    """Install a package as pip does with -e, from its own pyproject.toml."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    ((points),) = project["entry-points"].values()
    ((name, target),) = points.items()
    info = install_plugin(
        package / "src",
        name,
        module=target,
        requires=project["dependencies"],
        keywords=project["keywords"],
        version=project["version"],
        summary=project["description"],
    )
    assert info.name.startswith(project["name"].replace("-", "_"))
    return str(package / "src")


def test_new_command_has_a_template_for_every_hook() -> None:
    assert set(KINDS) == {spec.kind for spec in HOOKS.values()}


PYTEST = ("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")


@pytest.mark.timeout(120)
def test_new_plugin_passes_its_own_tests(tmp_path: Path) -> None:
    """The plugin is a connection; test_scaffolds.py tests every kind, from its wheel."""
    package = write(tmp_path / "package", "connection")
    environ = {**os.environ, "PYTHONPATH": install(package)}
    plugins = ("pytest_asyncio.plugin", "delf_devkit.testing.pytest_plugin")
    options = [f"-p{name}" for name in plugins]
    command = [*PYTEST, "--disable-plugin-autoload", *options]
    check_passed(program.run(command, cwd=package, env=environ, text=True, timeout=100))


def check_passed(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    assert " passed" in last
    assert "skipped" not in last


@every_kind
def test_new_plugin_code_is_formatted(kind: str, tmp_path: Path) -> None:
    package = write(tmp_path / "delf-plugin-help-desk", kind)
    ruff = Path(sys.executable).with_name("ruff")
    options = ["--isolated", "--line-length=100", "--no-cache"]
    for command in (["check", "--select=E,F,W,B,UP,SIM,RET,PIE"], ["format", "--check"]):
        result = subprocess.run([ruff, *command, *options, package], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plugins", "new", *arguments])


def test_new_command_prints_the_next_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("pager", "--kind", "approval")
    assert result.exit_code == 0, result.output
    assert "delf-plugin-approval-pager has the approval 'pager'" in result.output
    package = tmp_path / "delf-plugin-approval-pager"
    assert (package / "src/delf_approval_pager/channel.py").is_file()
    assert (package / "src/delf_approval_pager/py.typed").is_file()
    assert sorted(os.listdir(tmp_path)) == ["delf-plugin-approval-pager"], "nothing else is left"
    assert result.output.splitlines()[2].strip() == "cd delf-plugin-approval-pager"


def test_new_command_derives_the_kind_from_the_name() -> None:
    assert fields_of("approval-pager", "approval") == fields_of("pager", "approval")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("Help", "connection", "small letters"),
        ("a--b", "connection", "small letters"),
        ("../evil", "connection", "small letters"),
        ("", "connection", "small letters"),
        ("class", "connection", "a reserved name: it is a keyword"),
        ("delf", "connection", "a reserved name: it stands for delf itself"),
        ("trust", "command", "a reserved name: delf trust is a command"),
        ("print", "connection", "a reserved name: scripts need it"),
        ("find-tools", "connection", "a reserved name: scripts need it"),
        ("none", "journal", "a reserved name: the setting of the journal"),
        ("off", "prefilter", "a reserved name: the setting of the"),
        ("auto", "sandbox", "a reserved name: the setting of the"),
        ("sql", "connection", "delf-plugin-sql already"),
        ("model-http", "connection", "delf-plugin-model-http is one of delf's own packages"),
        ("cli", "command", "delf-cli is one of delf's own packages, with the module delf_cli"),
        ("docker", "sandbox", "delf-plugin-sandbox-docker already"),
    ],
)
def test_new_command_refuses_an_invalid_name(
    name: str, kind: str, says: str, tmp_path: Path
) -> None:
    target = tmp_path / "package"
    options = ["--kind", kind, "--directory", str(target), "--", name]
    result = invoke(*options)
    assert result.exit_code == 2
    assert says in result.output
    assert not target.exists()


def test_new_command_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for target in (tmp_path, tmp_path / "mine.txt"):
        result = invoke("pager", "--directory", str(target))
        assert result.exit_code == 1
        assert "exists already" in result.output
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_new_command_names_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "package"
    result = invoke("pager", "--directory", str(target))
    assert result.exit_code == 1
    assert str(target) in result.output


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_templates_are_in_the_wheel(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    own = ("--no-build-isolation", "--python", sys.executable)  # hatchling is not fetched
    command = [uv, "build", "--wheel", *own, "--out-dir", tmp_path, DEVKIT]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    templates = {
        path.relative_to(DEVKIT / "src").as_posix()
        for path in (DEVKIT / "src/delf_devkit/templates").rglob("*.txt")
    }
    assert templates
    assert templates <= names
    assert "delf_devkit/py.typed" in names
