"""Unusable data sets are reported with a place and a hint, before a model is called."""

import json

import pytest

CASE = "cases:\n- name: one\n  inputs: Greet\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cases: [", "mine.yaml:1:"),
        ("just words", "is not a data set"),
        ("cases: []", "has no case"),
        (f"{CASE}- name: one\n  inputs: Greet\n", "Duplicate case name: 'one'"),
        (f"{CASE}  evaluators: [Equal: 3]\n", "one has an unknown check 'Equal'"),
        (f"{CASE}evaluators: [Cheap]\n", "the data set has an unknown check 'Cheap'"),
        (f"{CASE}  evaluators: [Called]\n", "Called"),
        (f"{CASE}  evaluators: [MaxCost: {{eur: 3}}]\n", "MaxCost"),
        (f"{CASE}  answer: x\n", "answer"),
        ("cases:\n- name: one\n  inputs: {question: x}\n", "task"),
        ("cases:\n- name: one\n  inputs: {task: x, cals: []}\n", "cals"),
        ("cases:\n- name: one\n  inputs: {task: x, calls: [{result: 1}]}\n", "action"),
        (
            "cases:\n- name: one\n  inputs: {task: x, files: [no.csv]}\n",
            "one: there is no input file",
        ),
        ("cases:\n- name: one\n  inputs: {task: x, recording: r.json}\n", "there is no recording"),
        ("cases:\n- name: one\n  inputs: {task: x, recording: ../../k.json}\n", "is outside of"),
        ("cases:\n- name: one\n  inputs: {task: x, recording: mine.yaml}\n", "is not a recording"),
    ],
)
def test_faulty_data_set_error_names_the_fault(cases, run, text, message):
    done = run("evals", "run", cases(text))
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("others",), "there is no data set 'others'"),
        (("min",), "did you mean 'mine'?"),
        (("no/such.yaml",), "there is no data set 'no/such.yaml'"),
        (("mine", "--case", "on"), "has no case 'on'; did you mean 'one'?"),
        (("mine", "--with", "stream"), "'stream' is no setting"),
        (("mine", "--with", "llm='x"), "No closing quotation"),
        (("mine", "--with", "strategy=x"), "strategy"),
        (("mine", "--with", "system_prompt=@none.txt"), "none.txt"),
        (("mine", "--task", "Say {word}"), "--task does not fit"),
        (("mine", "--with", "retry_count=0", "--with", "llm=nobodys"), "no provider is known"),
        (("mine", "--checks", "none.py"), "--checks none.py: it does not exist"),
        (("mine", "--checks", "tools.py"), "tools.py defines no check"),
    ],
)
def test_faulty_option_error_names_the_option(cases, run, words, message):
    cases(CASE)
    done = run("evals", "run", *words)
    assert done.exit_code == 2, done.output
    assert "passed" not in done.output  # no variant was run
    assert message in " ".join(done.output.split())


def test_model_without_a_key_ends_the_run_with_one_error(cases, run, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run("evals", "run", cases(CASE), "--with", "llm=gpt-4o-mini")
    assert done.exit_code == 2
    assert done.output.count("error: ") == 1
    assert "OPENAI_API_KEY" in done.output


def test_show_without_runs_suggests_a_command(cases, run):
    done = run("evals", "show", cases(CASE))
    assert "has 0 runs" in done.output
    assert "delf evals run mine" in done.output


def test_evals_show_reports_a_damaged_report(cases, run, project):
    folder = project / "evals/runs" / cases(CASE)
    folder.mkdir(parents=True)
    (folder / "2026.json").write_text("{")
    assert "is not a report of an evaluation" in run("evals", "show", "mine").output
    assert "stored as" in run("evals", "run", "mine").output


def test_report_is_kept_if_its_html_page_cannot_be_written(cases, run, project):
    done = run("evals", "run", cases(CASE), "--html", str(project))
    assert done.exit_code == 2
    assert "cannot be written" in done.output
    assert len(list((project / "evals/runs/mine").iterdir())) == 1


def test_project_without_data_sets_suggests_a_command(project, run):
    assert "delf evals add TASK" in run("evals", "list").output
    assert json.loads(run("evals", "list", "--json").stdout) == []
