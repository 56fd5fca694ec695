"""Lists and reports at a terminal of 80 and of 120 columns, with long content in each field.

A command that lists or shows something is found by its last word; :data:`ARGUMENTS` has what it
needs.
"""

import asyncio
import json
import time
from dataclasses import replace

import click
import pytest
from click import testing

from delf.events import ApprovalDecided, ApprovalRequested, TaskStarted
from delf_journal_sql import SqlJournal
from docs_site.command_line import commands
from support.program import write_recording

CHANGES = frozenset(
    [
        "accept",
        "add",
        "answer",
        "approve",
        "assign",
        "backup",
        "changes",
        "comment",
        "delete",
        "demo",
        "edit",
        "effects",
        "export",
        "forget",
        "fork",
        "import",
        "init",
        "install",
        "login",
        "logout",
        "new",
        "pause",
        "prune",
        "quickstart",
        "reject",
        "remove",
        "rename",
        "resume",
        "revoke",
        "run",
        "runner",
        "save",
        "serve",
        "set",
        "settle",
        "stop",
        "test",
        "uninstall",
    ]
)
"""Last words of commands that change something, or start or ask a server; all others show."""
ARGUMENTS = {
    "delf approvals show": ("waits1",),
    "delf config get": ("agent.timeout",),
    "delf evals show": ("cases",),
    "delf google status": ("-c", "gmail", "--credentials", "client.json"),
    "delf inspect": ("shop", "--verbose"),
    "delf memory search": ("warehouse",),
    "delf routines diff": ("north_eastern_orders",),
    "delf routines history": ("north_eastern_orders",),
    "delf runs diff": ("last", "last"),
    "delf runs events": ("last",),
    "delf runs figures": ("--by", "person"),
    "delf runs search": ("warehouse",),
    "delf runs show": ("last",),
    "delf schedule history": ("north-eastern-orders",),
    "delf trust": ("--show",),
}
"""Arguments with which a command shows something; other commands take none."""
TEXTS = {"delf routines show", "delf runs code", "delf workers show"}
"""Commands that print a file as it is."""
LONG = (
    "Compare everything that was ordered in the north-eastern warehouse before last Thursday with"
    " what has left it since, and tell the people of the purchasing department about differences"
)


SCREENS = {
    words: ARGUMENTS.get(words, ())
    for words, ctx in commands().items()
    if words.split()[-1] not in CHANGES and not isinstance(ctx.command, click.Group)
    if words not in TEXTS
}


def test_every_test_argument_belongs_to_a_known_screen():
    assert set(ARGUMENTS) <= set(SCREENS)


@pytest.fixture
def shop(run, here):
    """A project with many entries in every list, with long texts."""
    model = write_recording(here / "model.jsonl", *[f"print({LONG!r})"] * 4)
    (here / "tools.py").write_text(f'from delf import tool\n\n@tool\ndef tell():\n    "{LONG}"\n')
    (here / "client.json").write_text('{"installed": {"client_id": "x", "client_secret": "y"}}')
    (here / "workers").mkdir()
    (here / "workers/orders.worker").write_text(
        f"---\nname: orders\ndescription: {LONG}\n---\n{LONG}\n"
    )
    (here / "delf.toml").write_text(
        f'[agent]\nllm = "{model}"\nobservers = ["audit"]\n[connections.shop]\ntype = "sql"\n'
        f'url = "sqlite:///shop.db"\nallow = ["query"]\n[plugins.serve]\n'
        f'allowed_origins = ["https://the-north-eastern-warehouse.example.com"]\n'
    )

    def done(*words, **options):
        result = run("--trust", str(here), *words, **options)
        assert result.exit_code == 0, (words, result.output)
        return result

    (here / "shop.db").touch()
    done("run", LONG, "--sandbox", "local")
    done("routines", "save", "last", "north_eastern_orders", "--yes")
    done("run", "north_eastern_orders", "--sandbox", "local")
    done("evals", "add", "last", "--name", LONG)
    (here / "delf.toml").write_text((here / "delf.toml").read_text() + "\n")
    run("--trust", str(here), "evals", "run", "cases", "--with", "retry_count=0")
    done("chat", "--sandbox", "local", input=f"{LONG}\n")
    done("memory", "add", LONG, "--source", LONG)
    done(
        "users",
        "add",
        "ada.of.the.purchasing.department",
        "--mail",
        "ada@example.com",
        *[part for n in range(9) for part in ("--team", f"purchasing-{n}")],
    )
    done("schedule", "add", "north-eastern-orders", "0 8 * * 1-5", LONG, "--zone", "Europe/Vienna")
    done("keys", "set", "openai", input="sk-planted-0123456789\n")
    place = json.loads(done("journal", "size", "--json").stdout)["place"]
    with asyncio.Runner() as runner:
        journal = runner.run(wait_for_approval(place))
        yield here
        runner.run(journal.aclose())


async def wait_for_approval(place):
    """Write a task of another project into the journal, with a call that waits for approval.

    Returns:
        The journal, which the caller closes; the task waits while the journal's process lives.
    """
    journal = SqlJournal(place)
    task_id, at = "task_waits1", time.time()
    setup = {"folder": "/home/ada/north-eastern-warehouse"}
    begun = TaskStarted(task_id=task_id, seq=1, at=at, task=LONG, setup=setup)
    asked = ApprovalRequested(
        request_id="req_waits1", task_id=task_id, seq=2, at=at, task=LONG, call_id=1,
        action="purchasing.tell_department", effect="irreversible", digest="d",
        arguments={"people": [LONG, LONG], "text": LONG}, preview=LONG,
    )  # fmt: skip
    other = replace(asked, request_id="req_before", seq=3)
    decided = ApprovalDecided(
        task_id=task_id, seq=4, at=at, request_id="req_before", decision="approved",
        by="ada.of.the.purchasing.department", remember="until_revoked", covers="call",
    )  # fmt: skip
    for event in (begun, asked, other, decided):
        await journal.append(event)
    return journal


def too_long(text, columns):
    """Return the lines that are wider than the terminal although they could be wrapped."""
    for line in click.unstyle(text).splitlines():
        words = line.split()
        # A word alone may be longer than a line: a path, an address.
        if len(line) > columns and len(words) > 1 and max(map(len, words)) < columns - 30:
            yield line


@pytest.mark.parametrize("columns", [80, 120])
def test_screen_lines_fit_the_terminal(run, shop, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(testing._NamedTextIOWrapper, "isatty", lambda _: True)  # noqa: SLF001 - as at a terminal
    faults = []
    for words, arguments in SCREENS.items():
        result = run("--trust", str(shop), *words.split()[1:], *arguments)
        assert result.output, words
        assert not result.stderr.startswith("Nothing"), words
        faults += [f"{words}: {line}" for line in too_long(result.output, columns)]
    assert faults == [], "\n".join(faults)


@pytest.mark.parametrize("words", [("runs", "list"), ("approvals", "list")])
def test_task_lists_name_the_project_of_each_task(run, shop, words):
    listed = run("--trust", str(shop), *words)
    head, *rows = listed.stdout.splitlines()
    at = head.index("project")
    assert "north-eastern-warehouse" in {row[at:].split("  ")[0] for row in rows}
