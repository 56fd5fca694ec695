"""The journal that ``delf run`` uses."""

import json
import os
import re
from pathlib import Path

import pytest

from support.program import delf, failure_lines, write_recording


@pytest.fixture
def run(tmp_path: Path):
    def start(*flags: str, script: str = "print('done')", **env: str):
        llm = write_recording(tmp_path / "answers.jsonl", script)
        return delf("run", "x", "--llm", llm, *flags, cwd=tmp_path, env=env)

    return start


def kept(here: Path, **env: str) -> list[str]:
    done = delf("runs", "list", "--json", cwd=here, env=env)
    assert done.returncode == 0, done.stderr
    return [task["state"] for task in json.loads(done.stdout)]


def test_default_journal_is_in_the_data_folder(run, tmp_path):
    assert run().stdout == "done\n"
    assert Path(os.environ["XDG_DATA_HOME"], "delf", "journal.db").is_file()
    assert kept(tmp_path) == ["done"]


def test_journal_none_writes_no_database(run, tmp_path):
    assert run("--journal", "none").stdout == "done\n"
    assert run(DELF_JOURNAL="none").stdout == "done\n"
    (tmp_path / "delf.toml").write_text('[agent]\njournal = "none"\n')
    assert run().stdout == "done\n"
    assert not list(Path(os.environ["XDG_DATA_HOME"]).rglob("*.db"))
    assert run("--journal", "sql").stdout == "done\n"
    assert kept(tmp_path, DELF_JOURNAL="sql") == ["done"]


def test_unwritable_default_journal_is_only_a_warning(run, tmp_path):
    (tmp_path / "file").write_text("")
    done = run(XDG_DATA_HOME=str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "warning: nothing of this task is kept: the journal " in done.stderr
    assert re.search("cannot be opened: (Not a directory|File exists)", done.stderr)
    quiet = run("--journal", "none", XDG_DATA_HOME=str(tmp_path / "file"))
    assert "kept" not in quiet.stderr


@pytest.mark.parametrize("journal", ["none", "unwritable"])
def test_failure_of_an_unkept_task_names_no_command_that_needs_a_journal(run, tmp_path, journal):
    (tmp_path / "file").write_text("")
    where = {"DELF_JOURNAL": "none"} if journal == "none" else {"XDG_DATA_HOME": f"{tmp_path}/file"}
    done = run(**where, script="1 / 0")
    assert done.returncode == 1
    assert "delf runs" not in done.stderr
    assert "hint: --verbose shows the scripts" in done.stderr
    assert "hint: --verbose" not in run("--verbose", **where, script="1 / 0").stderr


@pytest.mark.parametrize("url", ["postgresql://a:b@127.0.0.1:1/tasks", "{folder}/no/j.db"])
def test_unreachable_chosen_journal_is_an_error(run, tmp_path, url):
    (tmp_path / "no").write_text("a file")
    done = run(DELF_JOURNAL_SQL_URL=url.format(folder=tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "the journal" in failure_lines(done.stderr)[0]


@pytest.mark.parametrize("how", ["flag", "file", "variable"])
def test_unwritable_chosen_journal_is_an_error(run, tmp_path, how):
    (tmp_path / "file").write_text("")
    if how == "file":
        (tmp_path / "delf.toml").write_text('[agent]\njournal = "sql"\n')
    flags = ["--journal", "sql"] if how == "flag" else []
    env = {"DELF_JOURNAL": "sql"} if how == "variable" else {}
    done = run(*flags, XDG_DATA_HOME=str(tmp_path / "file"), **env)
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = failure_lines(done.stderr)
    assert error.startswith("error: the journal ")
    assert hint.startswith("hint: ")


def test_unknown_task_is_an_error(run):
    done = run("--journal", "sqll")
    assert done.returncode == 2
    assert "'sqll'" in done.stderr
