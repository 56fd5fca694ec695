"""A task of the journal becomes a case, which needs no service."""

import json
from typing import Any

import pytest
import yaml

from delf import Agent

TASK = "What did we sell?"
SCRIPT = "rows = shop.query('SELECT SUM(total) AS s FROM orders')\nprint(f\"{rows[0]['s']} euros\")"


@pytest.fixture
def task(project: Any, model: Any, run: Any):
    """Run a task; return its id."""

    def do(text: Any = TASK, script: Any = SCRIPT, *words: Any):
        model((text, script))
        done = run("run", text, "--json", "--approve", "all", "--tools", "tools.py", *words)
        return json.loads(done.stdout)["trace"]["task_id"]

    return do


def test_task_becomes_a_case_that_runs_without_its_database(
    task: Any, run: Any, report: Any, project: Any
):
    done = run("evals", "add", task(), "--name", "sold", "--json")
    assert json.loads(done.stdout)["checks"] == 2, done.output
    (case,) = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert case["inputs"]["task"] == TASK
    assert case["expected_output"] == "40.0 euros"
    assert case["evaluators"] == ["EqualsExpected", "NoChanges"]
    recorded = json.loads((project / "evals" / case["inputs"]["recording"]).read_text())
    assert "orders(id integer, total real)" in recorded["context"]["shop"].lower()
    (project / "shop.db").unlink()
    found, status = report("cases")
    assert (status, found["variants"][0]["passed"]) == (0, 1)


def test_shown_commands_quote_the_name_of_the_data_set(task: Any, run: Any, project: Any) -> None:
    added = run("evals", "add", task(), "--to", "my cases")
    assert "delf evals run 'my cases' --tools tools.py" in " ".join(added.output.split())
    shown = run("evals", "show", "my cases")
    assert "delf evals run 'my cases'" in " ".join(shown.output.split())


def test_changing_calls_become_expectations_without_effect(
    task: Any, run: Any, report: Any, project: Any, model: Any
):
    script = "send('ada@x.org', 'hello')\nprint('done')"
    added = run("evals", "add", task("Mail Ada", script))
    assert "run it with: delf evals run cases --tools tools.py" in " ".join(added.output.split())
    (case,) = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert case["evaluators"] == ["EqualsExpected", {"Called": "send"}]
    assert report("cases")[1] == 0
    assert (project / "sent.txt").read_text() == "ada@x.org"
    model(("Mail Ada", "print('done')"))
    assert report("cases")[1] == 1


def test_answers_to_questions_are_saved_in_the_evaluation_case(
    task: Any, run: Any, report: Any, project: Any, model: Any
):
    script = "print('Hello', await ask('Who are you?', default='Ann'))"
    run("evals", "add", task("Greet me", script))
    [recording] = (project / "evals" / "recordings").glob("*.json")
    [call] = json.loads(recording.read_text())["calls"]
    assert (call["action"], call["result"]) == ("ask", "Ann")
    assert report("cases")[1] == 0


def test_cases_are_appended_and_the_rest_of_the_file_stays(task: Any, run: Any, project: Any):
    text = "# By hand.\ncases:\n  - name: one  # first\n    inputs: Greet\n\nevaluators:\n  - NoChanges\n"
    (project / "evals/mine.yaml").write_text(text)
    assert run("evals", "add", task(), "--to", "mine", "--name", "two").exit_code == 0
    now = (project / "evals/mine.yaml").read_text()
    assert [case["name"] for case in yaml.safe_load(now)["cases"]] == ["one", "two"]
    assert now.startswith("# By hand.\ncases:\n  - name: one  # first\n")
    assert now.endswith("\nevaluators:\n  - NoChanges\n")
    again = run("evals", "add", "last", "--to", "mine", "--name", "two")
    assert "has a case 'two'" in again.output


def test_input_files_are_copied_beside_the_data_set(task: Any, run: Any, report: Any, project: Any):
    (project / "old").mkdir()
    files = [project / "notes.txt", project / "old/notes.txt"]  # scripts know two names
    for number, file in enumerate(files):
        file.write_text(f"Ada: {number}")
    script = "print(files.read('notes.txt'), files.read('notes-2.txt'))"
    words = ["--file", "notes.txt", "--file", "old/notes.txt"]
    run("evals", "add", task("Read notes", script, *words))
    for file in files:
        file.unlink()
    found, status = report("cases")
    assert status == 0, found


def test_added_case_keeps_all_kinds_of_line_breaks(task: Any, run: Any, project: Any):
    text = "one\u2028two\x85three\u2029four\nfive"
    task_id = task(script=f"print({text!r})")
    for name in ("first", "second"):  # the second is added to a file
        run("evals", "add", task_id, "--name", name)
    cases = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert [case["expected_output"] for case in cases] == [text, text]


def test_case_without_files_does_not_get_those_of_the_project(
    run: Any, report: Any, project: Any, model: Any
):
    (project / "agents.txt").write_text("the project's")
    config = project / "delf.toml"
    config.write_text(config.read_text().replace("[agent]", '[agent]\nfiles = ["agents.txt"]'))
    model(("Say nothing", "print('nothing')"))
    with Agent.from_project(project, journal="sql") as agent:
        response = agent.run("Say nothing", files=[])
    run("evals", "add", response.trace.task_id)
    (case,) = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert case["inputs"]["files"] == []
    model(("agents.txt", "print('some')"), ("Say nothing", "print('nothing')"))
    found, status = report("cases")
    assert status == 0, found


def test_case_keeps_a_schema_without_conditions(run: Any, report: Any, project: Any, model: Any):
    model(("Count", "await answer([1, 2])"))
    with Agent.from_project(project, journal="sql") as agent:
        response = agent.run("Count", output={})
    assert response.value == [1, 2], response.error
    run("evals", "add", response.trace.task_id)
    (case,) = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert (case["inputs"]["output"], case["expected_output"]) == ({}, [1, 2])
    found, status = report("cases")
    assert status == 0, found


def test_judged_case_compares_the_meaning_of_answers(task: Any, run: Any, project: Any):
    run("evals", "add", task(), "--judge")
    (case,) = yaml.safe_load((project / "evals/cases.yaml").read_text())["cases"]
    assert case["evaluators"][0]["LLMJudge"]["include_expected_output"] is True


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        ("1 / 0", (), "is failed, but an evaluation case needs a task that is done"),
        (SCRIPT, ("--to", "x.json"), "x.json is JSON"),
    ],
)
def test_unsuitable_task_cannot_become_a_case(
    task: Any, run: Any, script: Any, words: Any, message: Any
):
    done = run("evals", "add", task(script=script), *words)
    assert done.exit_code == 2
    assert message in done.output


def test_unknown_task_is_reported(project: Any, run: Any):
    done = run("evals", "add", "abcdef1")
    assert done.exit_code != 0
    assert "abcdef1" in done.output
