"""Trust in a folder covers what a configured program would run or import."""

from __future__ import annotations

import json
import py_compile
import shutil
from pathlib import Path

import pytest

from support.program import delf, write_recording

SERVER = "from pathlib import Path\nPath('started.txt').touch()\n"
COMMANDS = {
    "module": ('command = "python3"\nargs = ["-m", "server"]', "server.py"),
    "package": ('command = "python3"\nargs = ["-m", "server"]', "server/__main__.py"),
    "neighbour": ('command = "python3"\nargs = ["server.py"]', "helper.py"),
    "deep": ('command = "python3"\nargs = ["src/server.py"]', "src/lib/deep/helper.py"),
    "shell": ('command = "bash"\nargs = ["-c", "python3 server.py"]', "server.py"),
    "node": ('command = "npx"\nargs = ["./server"]', "server/index.js"),
    "node package": ('command = "npx"\nargs = ["server"]', "node_modules/server/index.js"),
    "uv": ('command = "uv"\nargs = ["run", "server"]', "pyproject.toml"),
    "folder": ('command = "python3"\nargs = ["-m", "server"]\ncwd = "sub"', "sub/server.py"),
    "path": (
        'command = "python3"\nargs = ["-m", "server"]\nenv = { PYTHONPATH = "lib" }',
        "lib/server.py",
    ),
    "site": ('command = "python3"\nargs = ["-c", "pass"]', "sitecustomize.py"),
    "native": ('command = "python3"\nargs = ["-m", "server"]', "server.cpython-311.so"),
    "requirements": ('command = "uv"\nargs = ["run", "x"]', "requirements.txt"),
    "no suffix": ('command = "make"\nargs = ["serve"]', "Makefile"),
    "environment": ('command = "python3"\nargs = ["x.py"]', ".venv/lib/site-packages/x.py"),
    "mcp.json": ('config = "mcp.json"', "server.py"),
    "other name": ('config = "servers"', "server.py"),
    "text": ('command = "python3"\nargs = ["server.txt"]', "server.txt"),
}
JSON = '{"mcpServers": {"tools": {"command": "python3", "args": ["-m", "server"]}}}'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write_project(here: Path, command: str, file: str) -> Path:
    (here / "mcp.json").write_text(JSON)
    (here / "servers").write_text(JSON.replace("command", "comm\\u0061nd"))
    (here / "delf.toml").write_text(f'[connections.tools]\ntype = "mcp"\n{command}\n')
    path = here / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# harmless\n")
    return path


def state(here: Path, tmp_path: Path, *flags: str):
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "DELF_TRUST": ""}
    return delf("trust", *flags, cwd=here, env=env)


def changes(here: Path, tmp_path: Path):
    message = json.loads(state(here, tmp_path, "--show", "--json").stdout)
    return message["trusted"], {(item["file"], item["kind"]) for item in message["changes"]}


@pytest.mark.parametrize("name", COMMANDS)
def test_changed_program_file_needs_trust_again(here, tmp_path, name):
    path = write_project(here, *COMMANDS[name])
    assert state(here, tmp_path, "--yes").returncode == 0
    assert changes(here, tmp_path) == (True, set())
    path.write_text("import evil\n")
    trusted, changed = changes(here, tmp_path)
    assert not trusted
    file = path.relative_to(here).as_posix()
    assert all(file.startswith(message) for message, _ in changed), changed
    assert {kind for _, kind in changed} == {"changed"}


@pytest.mark.parametrize("file", ["json.py", "conftest.py", "lib/new.py", "server"])
def test_new_program_file_needs_trust_again(here, tmp_path, file):
    write_project(here, *COMMANDS["module"])
    state(here, tmp_path, "--yes")
    (here / file).parent.mkdir(exist_ok=True)
    (here / file).write_text("import evil\n")
    assert changes(here, tmp_path) == (False, {(file, "new")})


def test_retargeted_link_needs_trust_again(here, tmp_path):
    write_project(here, *COMMANDS["module"])
    (here / "helper.py").symlink_to(tmp_path / "one.py")
    state(here, tmp_path, "--yes")
    (here / "helper.py").unlink()
    (here / "helper.py").symlink_to(tmp_path / "two.py")
    assert changes(here, tmp_path) == (False, {("helper.py", "changed")})


def test_folder_stays_trusted_after_its_data_files_change(here, tmp_path):
    write_project(here, *COMMANDS["module"])
    (here / "sales.csv").write_text("1\n")
    state(here, tmp_path, "--yes")
    (here / "sales.csv").write_text("2\n")
    (here / "notes.md").write_text("new\n")
    py_compile.compile(str(here / "server.py"))
    assert changes(here, tmp_path) == (True, set())


def test_project_without_a_program_needs_trust_for_settings_only(here, tmp_path):
    (here / "delf.toml").write_text('[connections.db]\ntype = "sql"\nurl = "sqlite:///a.db"\n')
    state(here, tmp_path, "--yes")
    (here / "script.py").write_text("print(1)\n")
    assert changes(here, tmp_path) == (True, set())


def test_folder_with_very_many_files_needs_trust_for_each(here, tmp_path):
    write_project(here, *COMMANDS["module"])
    for number in range(1200):
        (here / f"m{number:04}.py").write_text("")
    state(here, tmp_path, "--yes")
    assert changes(here, tmp_path) == (True, set())
    (here / "m1199.py").write_text("import evil\n")
    assert changes(here, tmp_path) == (False, {("(the other files)", "changed")})


def test_untrusted_program_is_not_started(here, tmp_path):
    write_project(here, *COMMANDS["module"])
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "DELF_TRUST": ""}
    assert state(here, tmp_path, "--yes").returncode == 0
    (here / "server.py").write_text(SERVER)
    llm = write_recording(tmp_path / "answers.jsonl", "print(1)")
    done = delf("run", "x", "--llm", llm, cwd=here, env=env)
    assert done.returncode == 2
    assert "ERR-TRUST" in done.stderr or "trust" in done.stderr
    assert not (here / "started.txt").exists()
    assert state(here, tmp_path, "--yes").returncode == 0
    delf("run", "x", "--llm", llm, cwd=here, env=env)
    assert (here / "started.txt").exists()
    shutil.rmtree(here)
