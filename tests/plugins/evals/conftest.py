"""A project with a tool that sends and a database, and a model with written answers."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from support.cli_fixtures import *  # noqa: F403 - here, run

TOOLS = """\
from pathlib import Path
from delf import tool

@tool(effect="read")
def balance(customer: str, year: int = 2026) -> float:
    "The balance of a customer."
    return 17.5

@tool(effect="irreversible")
def send(to: str, text: str) -> str:
    "Send a mail."
    with Path("sent.txt").open("a") as file:
        file.write(to)
    return "sent"
"""


@pytest.fixture
def model(here: Any):
    """Make the model write a script for a task, found by words of the prompt."""

    def write(*pairs: Any, file: Any = "model.jsonl", fence: Any = True):
        lines: list[str] = []
        for words, script in pairs:
            text = f"```python\n{script}\n```" if fence else script
            entry = {"request": {"contains": [words]}, "reply": {"text": text, "cost_usd": 0.005}}
            lines.append(json.dumps(entry))
        (here / file).write_text("\n".join(lines) + "\n")
        return f"recorded:{file}"

    return write


@pytest.fixture
def project(here: Any, model: Any, monkeypatch: pytest.MonkeyPatch):
    """A trusted project."""
    monkeypatch.setenv("DELF_TRUST", str(here))
    monkeypatch.setenv("DELF_PLUGINS_JOURNAL_SQL_URL", str(here / "journal.db"))
    (here / "tools.py").write_text(TOOLS)
    with closing(sqlite3.connect(here / "shop.db")) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER, total REAL)")
        database.execute("INSERT INTO orders VALUES (1, 40.0)")
    (here / "delf.toml").write_text(
        '[agent]\nllm = "recorded:model.jsonl"\nsandbox = "monty"\nretry_count = 0\n'
        '[connections.shop]\ntype = "sql"\nurl = "sqlite:///shop.db"\n'
    )
    (here / "evals").mkdir()
    model(("", "print('nothing')"))
    return here


@pytest.fixture
def cases(project: Any):
    """Write a data set, named after its file."""

    def write(text: Any, name: Any = "mine"):
        (project / f"evals/{name}.yaml").write_text(text)
        return name

    return write


@pytest.fixture
def report(run: Any):
    """Run a data set; return its report and its exit status."""

    def made(*words: Any):
        done = run("evals", "run", *words, "--tools", "tools.py", "--json")
        assert done.exit_code in (0, 1), done.output
        return json.loads(done.stdout), done.exit_code

    return made
