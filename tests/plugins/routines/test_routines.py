"""A task that worked becomes a program: saved, run with other values, tested, and refused by drift."""

import asyncio
import json
import math
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ConfigurationError
from delf.events import TaskStarted
from delf_journal_sql import SqlJournal
from delf_routines.routine import Parameter

TASK = "How much did Berlin pay in 2026-10?"
SCRIPT = """\
statement = (
    "select sum(total) as s from orders where city = 'Berlin' and day like '2026-10-%'"
)
rows = await shop.query(statement)
await send(to="ada@example.com", city="Berlin", amount=rows[0]["s"])
print(f"{rows[0]['s']} euros")
"""
TOOLS = '''
from delf import tool

@tool(effect="write", confirm=False)
def send(to: str, city: str, amount: float{more}) -> str:
    """Send."""
    with open("sent.txt", "a") as file:
        file.write(f"{{to}} {{city}} {{amount}}\\n")
    return "sent"
'''


@pytest.fixture
def project(here: Any, run: Any):
    """A folder with a shop, and a recorded model that does one task there."""
    with closing(sqlite3.connect(here / "shop.db")) as db, db:
        db.execute("create table orders (city text, day text, total integer)")
        rows = [
            ("Berlin", "2026-10-03", 40),
            ("Berlin", "2026-11-07", 2),
            ("Rome", "2026-10-09", 7),
        ]
        db.executemany("insert into orders values (?, ?, ?)", rows)
    (here / "tools.py").write_text(TOOLS.format(more=""))
    entry = {
        "request": {"contains": [TASK]},
        "reply": {"text": f"```python\n{SCRIPT}```", "cost_usd": 0.5},
    }
    (here / "model.jsonl").write_text(json.dumps(entry) + "\n")
    (here / "delf.toml").write_text(
        '[connections.shop]\ntype = "sql"\nurl = "sqlite:///shop.db"\n'
        '[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n'
    )
    return here


@pytest.fixture
def saved(project: Any, run: Any):
    """The project with the saved routine ``income``."""
    trusting = ("--trust", str(project))
    done = run(*trusting, "run", TASK, "--llm", "recorded:model.jsonl", "--tools", "tools.py")
    assert done.stdout == "40 euros\n", done.output
    found = json.loads(run(*trusting, "runs", "list", "--json").stdout)
    done = run(*trusting, "routines", "save", found[0]["task_id"], "income", "--yes")
    assert done.exit_code == 0, done.output
    command = " ".join(done.output.split()).partition("run it with: ")[2]
    assert command.startswith("delf run income --input ")
    assert command.endswith(" --tools tools.py")

    def call(*arguments: Any):
        group = () if arguments[0] == "run" else ("routines",)
        return run(*trusting, *group, *arguments)

    return call


def test_shown_command_can_be_pasted_into_a_shell(here: Any, run: Any) -> None:
    (here / "delf.toml").write_text('[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n')
    (here / "tools.py").write_text(TOOLS.format(more=""))
    script = 'await send(to="ada@example.com", city="New York; it\'s big", amount=1.0)\nprint(1)'
    entry = {"request": {"contains": ["Tell"]}, "reply": {"text": f"```python\n{script}\n```"}}
    (here / "model.jsonl").write_text(json.dumps(entry) + "\n")
    options = ("--llm", "recorded:model.jsonl", "--tools", "tools.py")
    run("--trust", str(here), "run", "Tell Ada about New York; it's big", *options)
    done = run("--trust", str(here), "routines", "save", "last", "tell", "--yes")
    assert done.exit_code == 0, done.output
    _, _, command = done.output.partition("run it with: ")
    assert "city=New York; it's big" in shlex.split(command)


def test_saved_routine_is_readable_and_has_the_tasks_parameters(saved: Any, here: Any):
    text = (here / "routines/income.py").read_text()
    assert text.startswith(f'# /// routine\n# title = "{TASK}"\n')
    assert "[parameters.city]" in text
    assert "[parameters.month]" in text
    assert "city = '{city}' and day like '{month}-%'" in text
    assert 'send(to="ada@example.com", city=city,' in text
    assert 'effect = "write"' in text


def test_routine_runs_with_other_values_without_a_model(saved: Any, here: Any):
    done = saved("run", "income", "--tools", "tools.py", "--input", "month=2026-11", "--json")
    answer = json.loads(done.stdout)
    assert answer["text"] == "2 euros"
    assert answer["cost_usd"] == 0
    assert (here / "sent.txt").read_text().splitlines()[-1] == "ada@example.com Berlin 2.0"
    runs = json.loads(saved("history", "income", "--json").stdout)
    assert [run["task"] for run in runs] == ["income(month='2026-11', city='Berlin')"]


def test_history_of_a_routine_is_not_hidden_by_tasks_that_name_it(saved: Any, here: Any):
    async def fill() -> None:
        journal = SqlJournal(str(here / "journal.db"))
        names = ["income()", *(f"net_income({number})" for number in range(50))]
        for at, task in enumerate(names, 1):
            event = TaskStarted(task_id=f"task_{at}", seq=1, at=at + 4e9, task=task)
            await journal.append(event)
        await journal.aclose()

    asyncio.run(fill())
    runs = json.loads(saved("history", "income", "--json").stdout)
    assert [run["task"] for run in runs] == ["income()"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("month=x", "it takes a date"),
        ("city=x' or '1", "it has to match"),
        ("towns=1", "no parameter 'towns'"),
        ("month", "is not a NAME=VALUE"),
    ],
)
def test_invalid_value_is_reported_before_any_call(saved: Any, here: Any, given: Any, message: Any):
    before = (here / "sent.txt").read_text()
    done = saved("run", "income", "--tools", "tools.py", "--input", given)
    assert done.exit_code == 2
    assert message in done.output
    assert (here / "sent.txt").read_text() == before


def test_routine_test_uses_recorded_calls_and_reports_differences(saved: Any, here: Any):
    (here / "shop.db").unlink()
    before = (here / "sent.txt").read_text()
    done = saved("test", "--junit", "out.xml")
    assert (done.exit_code, done.stdout) == (0, "income: ok\n"), done.output
    path = here / "routines/income.py"
    path.write_text(path.read_text().replace("euros", "dollars").replace("ada@", "eve@"))
    done = saved("test", "--junit", "out.xml")
    assert done.exit_code == 1
    assert "it calls send(to='eve@example.com'" in done.stdout
    assert "it does not call send any more" in done.stdout
    assert 'failures="1"' in (here / "out.xml").read_text()
    (row,) = json.loads(saved("test", "--json").stdout)
    assert (row["name"], row["ok"], len(row["differences"])) == ("income", False, 2), row
    assert (here / "sent.txt").read_text() == before


def test_missing_action_is_refused(saved: Any, here: Any):
    done = saved("run", "income")
    assert done.exit_code == 1
    message = " ".join(done.output.split())
    assert "send: no such action is there" in message
    assert "name missing tools with --tools FILE.py" in message


@pytest.fixture
def repaired(saved: Any, here: Any):
    """The project with a script that a model repaired for a new argument."""
    path = here / "routines/income.py"
    path.write_text(path.read_text().replace("# task =", '# on_failure = "repair"\n# task =', 1))
    (here / "tools.py").write_text(TOOLS.format(more=", cc: str"))
    script = path.read_text().partition("# ///\n")[2].replace("amount=", "cc='x', amount=")
    reply = {"text": f"```python\n{script}```", "cost_usd": 0.5}
    entry = {"request": {"contains": ["cc: str"]}, "reply": reply}
    (here / "model.jsonl").write_text(json.dumps(entry) + "\n")
    done = saved("run", "income", "--tools", "tools.py", "--llm", "recorded:model.jsonl")
    assert done.stdout == "40 euros\n", done.output
    return saved


def test_repair_proposal_is_shown_as_a_diff_and_tested_on_accept(repaired: Any, here: Any):
    done = repaired("diff", "income")
    assert "city=city, cc='x', amount=" in done.stdout
    assert '+# parameters = ["to: str", "city: str", "amount: float", "cc: str"]' in done.stdout
    assert "a repaired script is proposed" in repaired("check").stdout
    proposed = here / "routines/proposed/income.py"
    whole = proposed.read_text()
    proposed.write_text(whole.replace("ada@", "eve@"))
    done = repaired("accept", "income", "--yes")
    assert done.exit_code != 0
    assert "eve@example.com" in done.output
    proposed.write_text(whole)
    done = repaired("accept", "income", "--yes", "--json")
    assert json.loads(done.stdout) == {"name": "income", "changed": True}, done.output
    assert not proposed.exists()
    assert "cc='x'" in (here / "routines/income.py").read_text()
    assert repaired("test").stdout == "income: ok\n"
    assert repaired("run", "income", "--tools", "tools.py").stdout == "40 euros\n"


def test_rejected_repair_proposal_is_removed(repaired: Any, here: Any):
    before = (here / "routines/income.py").read_text()
    done = repaired("reject", "income", "--json")
    assert json.loads(done.stdout) == {"name": "income", "deleted": True}, done.output
    assert "nothing is proposed" in repaired("reject", "income").output
    assert (here / "routines/income.py").read_text() == before


def test_invalid_repair_proposal_can_be_rejected(repaired: Any, here: Any):
    (here / "routines/proposed/income.py").write_text("no header")
    assert "a repaired script is proposed" in repaired("check").stdout
    assert "does not begin with" in repaired("diff", "income").output
    done = repaired("reject", "income", "--json")
    assert json.loads(done.stdout) == {"name": "income", "deleted": True}, done.output
    assert not list((here / "routines/proposed").iterdir())


def test_changed_actions_are_accepted_as_a_diff(saved: Any, here: Any):
    lines = saved("diff", "income").stdout.splitlines()
    assert '-# [actions."send"]' in lines
    assert [line for line in lines if line.startswith("+")] == ["+++ income new"]
    assert saved("accept", "income", "--yes").exit_code == 0
    assert "nothing of income changes" in saved("diff", "income").output


def test_task_that_is_no_routine_call_shows_the_notation(saved: Any, run: Any, here: Any):
    done = run(
        "--trust", str(here), "run", "do it", "--strategy", "routine", "--llm", "none:no model"
    )
    assert 'report(month="2026-10")' in " ".join(done.output.split())


def test_failed_task_cannot_become_a_routine(project: Any, run: Any):
    trusting = ("--trust", str(project))
    run(*trusting, "run", "something else", "--llm", "recorded:model.jsonl")
    found = json.loads(run(*trusting, "runs", "list", "--json").stdout)
    done = run(*trusting, "routines", "save", found[0]["task_id"], "x", "--yes")
    assert "the task is not done" in done.output


def test_recorded_case_may_contain_large_results(saved: Any, here: Any):
    path = here / "routines/cases/income.json"
    case = json.loads(path.read_text())
    case["calls"][0]["result"][0]["note"] = "x" * 3_000_000
    path.write_text(json.dumps(case))
    assert saved("test").stdout == "income: ok\n"


def test_later_run_becomes_a_test_case(saved: Any, here: Any):
    assert saved("run", "income", "--tools", "tools.py", "--input", "month=2026-11").exit_code == 0
    done = saved("save", "last", "income")
    assert "the run is kept as" in done.output, done.output
    assert len([*(here / "routines/cases").iterdir()]) == 2
    assert saved("test").stdout == "income: ok\n"
    assert saved("rename", "income", "revenue").exit_code == 0
    path = here / "routines/revenue.py"
    path.write_text(path.read_text().replace("euros", "{'euros' if month == '2026-10' else 'x'}"))
    assert "it answers '2 x' in place of '2 euros'" in saved("test").stdout
    assert "there is no routine 'revenues'" in saved("remove", "revenues").stderr
    refused = saved("remove", "revenue")
    assert refused.exit_code == 2
    assert "approve it in advance: --yes" in refused.stderr
    assert saved("remove", "revenue", "--yes").exit_code == 0
    assert "There is no routine yet" in saved("list").output
    assert not [*(here / "routines/cases").iterdir()]


def test_routine_of_another_projects_task_is_written_here(
    saved: Any, project: Any, run: Any, tmp_path_factory: Any, monkeypatch: Any
):
    """`last` is no task of another project; a task that is named by its id is saved here."""
    other = tmp_path_factory.mktemp("other")
    journal = f'[plugins.journal-sql]\nurl = "sqlite:///{project / "journal.db"}"\n'
    (other / "delf.toml").write_text(journal)
    trusting = ("--trust", str(project), "--trust", str(other))
    monkeypatch.chdir(other)
    refused = run(*trusting, "routines", "save", "last", "theirs", "--yes")
    assert refused.exit_code != 0
    assert f"the project {other} has no task yet" in " ".join(refused.output.split())
    assert "delf runs list" in refused.output
    found = json.loads(run(*trusting, "runs", "list", "--json").stdout)
    done = run(*trusting, "routines", "save", found[0]["task_id"], "theirs", "--yes")
    assert done.exit_code == 0, done.output
    assert (other / "routines/theirs.py").is_file()
    assert not (project / "routines/theirs.py").exists()


def test_history_has_no_runs_of_another_projects_routine(
    saved: Any, project: Any, run: Any, tmp_path_factory: Any, monkeypatch: Any
):
    assert saved("run", "income", "--tools", "tools.py", "--input", "month=2026-11").exit_code == 0
    assert len(json.loads(saved("history", "income", "--json").stdout)) == 1
    other = tmp_path_factory.mktemp("other")
    journal = f'[plugins.journal-sql]\nurl = "sqlite:///{project / "journal.db"}"\n'
    (other / "delf.toml").write_text(journal)
    monkeypatch.chdir(other)
    shown = run("--trust", str(other), "routines", "history", "income", "--json")
    assert json.loads(shown.stdout) == []


def write_project(folder: Path, task: str, script: str) -> None:
    """Write a project whose recorded model answers a task with a script."""
    entry = {
        "request": {"contains": [task]},
        "reply": {"text": f"```python\n{script}```", "cost_usd": 0.5},
    }
    (folder / "model.jsonl").write_text(json.dumps(entry) + "\n")
    (folder / "delf.toml").write_text('[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n')


def test_unanswered_question_in_a_routine_takes_its_default(here: Any, run: Any):
    task = "Which city shall it be?"
    script = "city = await ask('Which city?', ['Rome', 'Berlin'], default='Rome')\nprint(city)\n"
    write_project(here, task, script)
    trusting = ("--trust", str(here))
    done = run(*trusting, "run", task, "--llm", "recorded:model.jsonl")
    assert done.stdout == "Rome\n", done.output
    (found,) = json.loads(run(*trusting, "runs", "list", "--json").stdout)
    done = run(*trusting, "routines", "save", found["task_id"], "city", "--yes")
    assert done.exit_code == 0, done.output
    assert run(*trusting, "run", "city").stdout == "Rome\n"
    done = run(*trusting, "routines", "test", "city")
    assert done.exit_code == 0, done.output


def test_swapped_task_and_name_hint_at_their_order(here: Any, run: Any):
    done = run("--trust", str(here), "routines", "save", "remind", "last")
    errors = " ".join(done.stderr.split())
    assert done.exit_code == 1
    assert "no task 'remind' is known" in errors
    assert "the task comes first, then the name of the routine" in errors


def test_value_that_stays_in_the_script_is_a_warning_of_saving(here: Any, run: Any):
    task = "What is in Rome?"
    script = "city = 'Rome'\nprint(len(city), 'things in Rome')\n"
    write_project(here, task, script)
    trusting = ("--trust", str(here))
    assert run(*trusting, "run", task, "--llm", "recorded:model.jsonl").exit_code == 0
    done = run(*trusting, "routines", "save", "last", "things", "--yes", "--json")
    (warning,) = json.loads(done.stdout)["warnings"]
    assert warning.endswith("stays when city_2 changes: print(len(city), 'things in Rome')")
    errors = " ".join(done.stderr.split())
    assert f"warning: {warning}" in errors
    assert "hint: use the parameter there" in errors
    done = run(*trusting, "routines", "save", "last", "x", "--yes", "--fix", "city_2", "--json")
    assert json.loads(done.stdout)["warnings"] == []


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(("number", given) for given in (2**2000, math.inf, "nan", "1e999", True, [1], None)),
        *(("integer", given) for given in (math.inf, math.nan, 1.5, "1e9")),
    ],
)
def test_invalid_number_for_a_parameter_is_refused(kind, given):
    with pytest.raises(ConfigurationError, match="does not fit: it takes a"):
        Parameter(name="n", type=kind, default=1).read(given)


@pytest.mark.parametrize(
    "given", ["2025-13-01", "2025-02-29", "2025-13", "2025-00", "0000", "25-1"]
)
def test_date_that_is_not_in_the_calendar_is_refused(given):
    day = Parameter(name="day", type="date", default="2025-10-31")
    with pytest.raises(ConfigurationError, match="it takes a date of the calendar"):
        day.read(given)
    for valid in ("2025", "2025-12", "2024-02-29"):
        assert day.read(valid) == valid


@pytest.mark.parametrize("kind", ["integer", "number", "text"])
def test_number_of_too_many_digits_is_refused(kind):
    with pytest.raises(ConfigurationError, match="n has too many digits"):
        Parameter(name="n", type=kind, default=1).read(2**20_000)
