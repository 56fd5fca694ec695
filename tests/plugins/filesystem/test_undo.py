"""A task gives back what it changed: ``delf runs undo``."""

import json
from pathlib import Path

import pytest

from delf_filesystem import copies
from support.commands import check_object, json_tables
from support.program import delf

SCRIPT = """
await disk.write_file('here/a.md', 'A2')
await disk.edit_file('here/a.md', 'A2', 'A3')
await disk.write_file('here/new/deep/b.md', 'B')
await disk.replace('x', 'y', 'here', 'c*.md')
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    for name, text in (("a.md", "A1"), ("c1.md", "x1"), ("c2.md", "x2"), ("d.md", "D")):
        (tmp_path / "here" / name).write_text(text)
    (tmp_path / "here/a.md").chmod(0o640)
    (tmp_path / "delf.toml").write_text(
        '[agent]\nllm = "recorded:a.jsonl"\n[connections.disk]\ntype = "filesystem"\n'
        'roots = { here = { root = "here", mode = "rw", write_approval = false } }\n'
    )
    (tmp_path / "a.jsonl").write_text(
        json.dumps(
            {"request": {"contains": ["Change"]}, "reply": {"text": f"```python{SCRIPT}```"}}
        )
    )
    return tmp_path


def contents(project: Path) -> dict[str, str]:
    here = project / "here"
    return {str(p.relative_to(here)): p.read_text() for p in here.rglob("*") if p.is_file()}


@pytest.mark.timeout(120)
def test_a_task_gives_back_what_it_changed(project: Path) -> None:
    before = contents(project)
    assert delf("run", "Change it.", cwd=project).returncode == 0
    after = contents(project)
    assert after["new/deep/b.md"] == "B"
    (task,) = json.loads(delf("runs", "list", "--json", "--limit", "1", cwd=project).stdout)

    shown = delf("runs", "undo", task["task_id"], "--dry-run", cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert "here/a.md: as it was before" in shown.stdout
    assert "here/new/deep/b.md: removed" in shown.stdout
    assert contents(project) == after
    assert delf("runs", "undo", task["task_id"], cwd=project, stdin="n\n").returncode == 1
    assert contents(project) == after

    (project / "here/c1.md").write_text("mine")
    done = delf("runs", "undo", task["task_id"], "--yes", "--json", cwd=project)
    rows = json.loads(done.stdout)
    for row in rows:
        check_object(row, json_tables()["delf runs undo"])
    assert done.returncode == 1, "one file has changed since"
    assert {row["path"]: row["why"] for row in rows if row["why"]} == {
        "here/c1.md": "it has changed since"
    }
    assert contents(project) == {**before, "c1.md": "mine"}
    assert not (project / "here/new").exists(), "folders that were made are gone"
    assert (project / "here/a.md").stat().st_mode & 0o777 == 0o640

    again = delf("runs", "undo", task["task_id"], "--yes", cwd=project)
    assert "here/a.md: is as it was" in again.stdout


def test_copies_are_kept_for_thirty_days(tmp_path: Path) -> None:
    home = copies.folder()
    home.mkdir(parents=True)
    (home / "old").write_text("x")
    assert copies.prune() == 0
    assert copies.prune(now=(home / "old").stat().st_mtime + copies.KEPT_SECONDS + 1) == 1
