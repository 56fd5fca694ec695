"""Files that delf writes in the user's folders: only the user can read them, with any umask."""

import os
import sys
from pathlib import Path

import pytest

from support.program import DELF, run, write_recording

PROGRAM = """
from pathlib import Path

from delf import Agent, Chat, Memory, tool
from delf_chat.lines import _history, history_file
from delf_runner_dbos.settings import RunnerSettings
from delf_cli.progress import mark_as_shown
from platformdirs import user_data_path

@tool(effect="write", confirm=True)
def change() -> str:
    "Change something."
    return "changed"

memory = Memory(embedding_model="static")
memory.save("Ada likes tea")
with Agent(
    tools=[change], llm="{llm}", sandbox="local", journal="sql", observers=["audit"],
    memory=memory, chat=Chat(persist=True), on_confirm=lambda _: True,
) as agent:
    assert agent.run("change it").text == "changed"
memory.close()
_history(history_file())
mark_as_shown("something")
url = RunnerSettings().url(user_data_path("delf"), Path())
assert url.startswith("sqlite:///")
"""


def written(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*")]


def succeed(command, **options):
    done = run(command, text=True, **options)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("umask", [0o022, 0o000], ids=["usual", "none"])
def test_delf_folders_are_private_to_the_user(tmp_path, umask):
    homes = {
        f"XDG_{kind}_HOME": str(tmp_path / "home" / kind.lower())
        for kind in ("DATA", "STATE", "CACHE", "CONFIG")
    }
    environ = {**os.environ, **homes}
    environ.pop("DELF_JOURNAL_SQL_URL", None)
    project = tmp_path / "project"
    project.mkdir()
    (project / "delf.toml").write_text("[agent]\nsandbox = 'local'\n")
    llm = write_recording(project / "answers.jsonl", "print(await change())")
    (project / "program.py").write_text(PROGRAM.format(llm=llm))
    options = {"cwd": project, "env": environ, "umask": umask}
    succeed([sys.executable, "program.py"], **options)
    succeed([DELF, "trust", "--yes"], **options)
    succeed([DELF, "memory", "add", "Ben likes coffee"], **options)
    again = write_recording(project / "more.jsonl", "print(1)")
    succeed([DELF, "run", "x", "--llm", again], **options)
    found = written(tmp_path / "home")
    names = {path.name for path in found}
    assert {"memory.db", "journal.db", "audit.jsonl", "chat_history", "trust", "shown"} <= names
    assert any(name.startswith("dbos-") for name in names)
    open_ = [
        f"{path.relative_to(tmp_path)} {path.stat().st_mode & 0o777:o}"
        for path in found
        if path.stat().st_mode & 0o077
    ]
    assert open_ == []


TABLES = """
lite.write("create table t (a integer)")
duck.write("create table t (a integer)")
print(1)
"""
CONNECTIONS = """
[agent]
sandbox = "local"

[connections.lite]
type = "sql"
url = "sqlite:///lite.db"
create = true
confirm = false

[connections.duck]
type = "sql"
url = "duckdb:///duck.db"
create = true
confirm = false
"""


def test_files_created_by_delf_are_private_to_the_user(tmp_path):
    home = {f"XDG_{kind}_HOME": str(tmp_path / "home") for kind in ("DATA", "STATE", "CACHE")}
    environ = {**os.environ, **home, "DELF_TRUST": str(tmp_path)}
    given = tmp_path / "project"
    given.mkdir()
    (given / "delf.toml").write_text(CONNECTIONS)
    llm = write_recording(given / "tables.jsonl", TABLES, "print(1)")
    before = set(written(tmp_path))
    options = {"cwd": given, "env": environ, "umask": 0}
    succeed([DELF, "run", "make tables", "-c", "lite", "-c", "duck", "--llm", llm], **options)
    succeed([DELF, "init"], **options)
    succeed([DELF, "demo", "--make", "demo"], **options)
    routine = (
        "from pathlib import Path\nfrom delf.trust.decisions import Trust\n"
        "from delf_routines.routine import Routine\nfrom delf_routines.store import RoutineStore\n"
        "routine = Routine(name='r', title='t', task='t', script='print(1)')\n"
        "RoutineStore(Path.cwd(), Trust.here()).keep(routine)"
    )
    succeed([sys.executable, "-c", routine], **options)
    found = {path for path in written(tmp_path) if path not in before}
    names = {path.name for path in found}
    assert {"lite.db", "duck.db", "tools.py", "summarise.worker", "shop.db", "r.py"} <= names
    assert [f"{path.relative_to(tmp_path)}" for path in found if path.stat().st_mode & 0o077] == []
