from pathlib import Path

import pytest

from delf_shell import Shell

RULES = [
    {"pattern": pattern, "approval_required": False}
    for pattern in (
        "git status",
        "git log *",
        "ls *",
        "cat *",
        "find *",
        "tar *",
        "echo *",
        'python3 -c "print(1)"',
    )
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("s3cret-7731")
    folder = tmp_path / "work"
    (folder / "a").mkdir(parents=True)
    (folder / "plan.md").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def shell(folder: Path) -> Shell:
    return Shell(rules=RULES, folder=folder)
