"""A data set is run with recorded results: checks, variants, the report, and its exit status."""

import json
import sqlite3
from contextlib import closing

import pytest

GREET = "cases:\n- name: greet\n  inputs: Greet Ada\n  expected_output: hello Ada\n"
SENDS = """\
cases:
- name: mail
  inputs:
    task: Send Ada her balance
    calls:
    - {action: balance, arguments: {customer: Ada}, result: 40.0}
    - {action: send, result: sent}
  evaluators:
"""


def problems(report, variant=0):
    (case,) = report["variants"][variant]["cases"]
    return [case["error"]] * bool(case["error"]) + [
        check["name"] for check in case["checks"] if check["passed"] is False
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "is_met"),
    [
        ("EqualsExpected", True),
        ("Equals: hello Ada", True),
        ("Equals: hello Bob", False),
        ("Contains: Ada", True),
        ("Contains: Bob", False),
        ("NotCalled: send", True),
        ("NoChanges", True),
        ("Called: send", False),
        ("WroteFile: '*.csv'", False),
        ("MaxCost: 0.01", True),
        ("MaxCost: 0.001", False),
        ("MaxDuration: {seconds: 30}", True),
        ("MaxDuration: {seconds: 0}", False),
        ("ToolCorrectness: {expected_tools: []}", True),
        ("MaxModelRequests: {max_requests: 0}", False),
    ],
)
def test_check_passes_or_fails_the_case(cases, model, report, check, is_met):
    model(("Greet Ada", "print('hello Ada')"))
    found, status = report(cases(f"{GREET}  evaluators:\n  - {check}\n"))
    (case,) = found["variants"][0]["cases"]
    assert case["passed"] is is_met, case
    assert status == (0 if is_met else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "is_met"),
    [
        ("Called: {action: send, arguments: {to: ada@x.org}, times: 1}", True),
        ("Called: {action: 'se*', arguments: {to: bob@x.org}}", False),
        ("Called: {action: send, times: 2}", False),
        ("Called: {action: sned, times: 0}", False),
        ("NotCalled: sned", False),
        ("NotCalled: shop.*", True),
        ("NotCalled: send", False),
        ("NoChanges", False),
        ("ToolCorrectness: {expected_tools: [send, balance]}", True),
        ("TrajectoryMatch: {expected_trajectory: [send, balance], order: exact}", True),
        ("ArgumentCorrectness: {tool_name: send, expected_arguments: {to: bob@x.org}}", False),
    ],
)
def test_calls_are_checked_without_effect(cases, model, report, project, check, is_met):
    model(("her balance", "send('ada@x.org', f'{balance(\"Ada\", year=2026)}')\nprint('done')"))
    found, _ = report(cases(f"{SENDS}  - {check}\n"))
    (case,) = found["variants"][0]["cases"]
    if "TrajectoryMatch" in check:  # a score, and the order is another one
        assert [c["value"] for c in case["checks"]] == [0.0]
    else:
        assert case["passed"] is is_met, case
    assert [call["action"] for call in case["calls"]] == ["balance", "send"]
    assert "40.0" in case["calls"][1]["arguments"]
    assert not (project / "sent.txt").exists()


LONG = "a" * 300


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ("EqualsExpected", "EqualsExpected: expected 'hello Ada'; the answer is 'hello Eve'"),
        ("Equals: 7", "Equals: expected 7; the answer is 'hello Eve'"),
        (f"Equals: hello E{LONG}", "Equals: expected 'hello E" + "a" * 192 + "…; the answer is 'hello Eve'"),
        ("Equals: {value: null}", "Equals: expected null; the answer is 'hello Eve'"),
        ("Contains: Bob", "Contains: Output string 'hello Eve' does not contain expected string 'Bob'"),
        ("IsInstance: int", "IsInstance: expected 'int'; output is of type str"),
        ("MaxDuration: {seconds: 0}", 'MaxDuration: expected 0; it took 0.'),
        ("HasMatchingSpan: {query: {name_equals: x}}", 'HasMatchingSpan: expected {"query": {"name_equals": "x"}}; no span matches'),
        ("MaxCost: 0.001", "MaxCost: expected 0.001; it cost $0.0050"),
        ("WroteFile: a.csv", "WroteFile a.csv: files: none"),
        ("Called: {action: send, times: 2}", 'Called send: expected {"action": "send", "times": 2}; 0 such calls'),
    ],
)  # fmt: skip
def test_failed_check_says_what_was_expected_and_what_came(cases, model, report, run, check, line):
    model(("Greet Ada", "print('hello Eve')"))
    name = cases(f"{GREET}  evaluators:\n  - {check}\n")
    report(name)
    shown = " ".join(run("evals", "show", name).stdout.split())
    assert line in shown, shown


@pytest.mark.parametrize(("wanted", "got"), [(f"{LONG}b", f"{LONG}c"), (f"{LONG}b", LONG)])
def test_difference_at_the_end_of_long_answers_is_shown(cases, model, report, wanted, got):
    model(("Greet Ada", f"print({got!r})"))
    found, _ = report(cases(f"{GREET}  evaluators:\n  - Equals: {wanted}\n"))
    (check,) = found["variants"][0]["cases"][0]["checks"]
    assert check["wanted"] == f"…{'a' * 20}b'"
    assert check["reason"] == f"the answer is …{'a' * 20}{got[300:]}'"


def test_output_files_are_checked_by_name_and_text(cases, model, report, project):
    model(("table", "open('a.csv', 'w').write('id,total')"))
    text = "cases:\n- name: t\n  inputs: Write a table\n  evaluators:\n"
    toml = (project / "delf.toml").read_text().replace("monty", "local")
    (project / "delf.toml").write_text(toml)
    name = cases(f"{text}  - WroteFile: '*.csv'\n  - WroteFile: {{name: a.csv, contains: Ada}}\n")
    found, _ = report(name)
    (case,) = found["variants"][0]["cases"]
    assert [check["passed"] for check in case["checks"]] == [True, False]


def test_unrecorded_call_fails_the_case_even_if_caught(cases, model, report, project):
    script = "try:\n    send('eve@x.org', 'x')\nexcept Exception:\n    pass\nprint('hello Ada')"
    model(("Greet Ada", script))
    found, status = report(cases(f"{GREET}  evaluators:\n  - EqualsExpected\n"))
    (case,) = found["variants"][0]["cases"]
    assert case["unrecorded"] == ["send(to='eve@x.org', text='x')"]
    assert "no recorded result for send(" in case["error"]
    assert status == 1
    assert not (project / "sent.txt").exists()


@pytest.mark.parametrize(
    ("script", "left"),
    [
        # A recorded read answers any number of equal calls, a recorded change only one.
        ("print(balance('Ada'), balance('Ada'))", []),
        ("send('a', 'b')\nsend('a', 'b')", ["send(to='a', text='b')"]),
        # Equal calls get their results in order, and the last one again.
        ("print([balance('Bob') for _ in range(3)])", []),
        ("print(balance('Eve'))", ["balance(customer='Eve')"]),
    ],
)
def test_recorded_result_is_found_by_arguments_and_order(cases, model, report, script, left):
    model(("Do", script))
    found, _ = report(
        cases("""\
cases:
- name: do
  inputs:
    task: Do
    calls:
    - {action: balance, arguments: {customer: Ada, year: 2026}, result: 1}
    - {action: send, arguments: {to: a, text: b}, result: sent}
    - {action: balance, arguments: {customer: Bob}, result: 2}
    - {action: balance, arguments: {customer: Bob}, result: 3}
""")
    )
    (case,) = found["variants"][0]["cases"]
    assert case["unrecorded"] == left
    assert "Bob" not in script or case["answer"] == "[2, 3, 3]"


def test_recorded_error_is_raised_in_the_script(cases, model, report):
    model(("Do", "try:\n    balance('Ada')\nexcept Exception as e:\n    print(e)"))
    text = "calls: [{action: balance, error: no such customer}]"
    name = cases(f"cases:\n- name: do\n  inputs: {{task: Do, {text}}}\n")
    found, _ = report(name)
    assert "no such customer" in found["variants"][0]["cases"][0]["answer"]


WHICH = "print('for', await ask('Which one?', options=['Smith Ltd', 'Smith & Co']))"
ASKED = {"question": "Which one?", "options": ["Smith Ltd", "Smith & Co"]}


@pytest.mark.parametrize(
    ("call", "status", "shown"),
    [
        ({"arguments": ASKED, "result": "Smith & Co"}, 0, "for Smith & Co"),
        ({"result": "Smith Ltd"}, 0, "for Smith Ltd"),
        ({"arguments": ASKED, "error": "nobody knows"}, 1, "nobody knows"),
        ({"result": "Smith GmbH"}, 1, "Smith GmbH"),
        ({"arguments": {"question": "Who?"}, "result": "Ann"}, 1, "no recorded result for ask("),
    ],
)
def test_questions_get_recorded_answers_and_others_fail(cases, model, report, call, status, shown):
    model(("", WHICH))
    inputs = {"task": "x", "calls": [{"action": "ask", **call}]}
    cases(json.dumps({"cases": [{"inputs": inputs, "evaluators": [{"Contains": "for Smith"}]}]}))
    found, ended = report("mine")
    assert ended == status
    assert shown in json.dumps(found, ensure_ascii=False)


def test_question_without_an_answer_fails_the_case_even_if_caught(cases, model, report):
    script = "try:\n    await ask('Which one?', default='Ann')\nexcept Exception:\n    print('ok')"
    model(("", script))
    found, _ = report(cases(GREET))
    [problem] = problems(found)
    assert problem == "no recorded result for ask(default='Ann', question='Which one?')"


def test_typed_answer_is_compared_field_by_field(cases, model, report):
    model(("How many", "answer({'count': 3, 'city': 'Graz'})"))
    name = cases("""\
cases:
- name: count
  inputs:
    task: How many?
    output: {type: object, properties: {count: {type: integer}, city: {type: string}}}
  expected_output: {count: 3, city: Graz}
  evaluators:
  - EqualsExpected
  - Contains: {value: {count: 3}}
  - Contains: {value: {city: Wien}}
""")
    found, _ = report(name)
    (case,) = found["variants"][0]["cases"]
    assert [check["passed"] for check in case["checks"]] == [True, True, False]


def test_variants_are_compared_with_each_other_and_the_last_run(cases, model, report, run, project):
    model(("Greet Ada", "print('hello Ada')"))
    model(("Greet Ada", "print('hi')"), file="other.jsonl")
    name = cases(f"{GREET}  evaluators:\n  - EqualsExpected\n")
    variants = ("--with", "llm=recorded:model.jsonl", "--with", "llm=recorded:other.jsonl")
    found, status = report(name, *variants)
    assert [row["passed"] for row in found["variants"]] == [1, 0]
    assert (found["since"], status) == (None, 1)
    model(("Greet Ada", "print('hello Ada')"), file="other.jsonl")
    again, status = report(name, *variants)
    assert (again["since"], status) == (found["at"], 0)
    assert again["changes"] == [
        {"variant": "llm=recorded:other.jsonl", "case": "greet", "passed": True}
    ]
    shown = run("evals", "show", name).stdout
    assert "A  llm=recorded:model.jsonl" in shown
    assert "passed (new)" in shown
    assert "1 better, 0 worse" in shown
    assert json.loads(run("evals", "show", name, "2", "--json").stdout)["at"] == found["at"]


def test_variant_takes_a_prompt_from_a_file(cases, model, report, project):
    (project / "evals/short.txt").write_text("Answer in one word.\n")
    model(("Answer in one word.", "print('hello')"))
    name = cases(GREET)
    found, _ = report(name, "--with", "system_prompt=@short.txt", "--with", "retry_count=0")
    assert [row["passed"] for row in found["variants"]] == [1, 0]
    (case,) = found["variants"][0]["cases"]
    assert case["answer"] == "hello"


@pytest.mark.parametrize(("least", "status"), [("50", 0), ("51", 1), ("0", 0)])
def test_exit_status_follows_the_threshold(cases, model, report, least, status):
    model(("Greet Ada", "print('hello Ada')"), ("Bob", "print('hello Bob')"))
    text = GREET + "- name: bob\n  inputs: Greet Bob\n  expected_output: hi\n"
    name = cases(f"{text}evaluators:\n- EqualsExpected\n")
    assert report(name, "--fail-under", least)[1] == status


def test_secret_of_a_variant_is_in_no_report(cases, model, run, project):
    """The command line, the kept report and the page name a variant by its settings."""
    model(("", "print(1)"))
    settings = (
        "llm.model=recorded:model.jsonl llm.api_key=sk-very-secret-1 "
        "connections.shop.url=postgresql://ann:very-secret-2@127.0.0.1:9/shop"
    )
    done = run("evals", "run", cases(GREET), "--with", settings, "--html", "page.html")
    kept = "".join(path.read_text() for path in (project / "evals/runs").rglob("*.json"))
    for shown in (done.output, kept, (project / "page.html").read_text()):
        assert "llm.api_key=" in shown
        assert "very-secret" not in shown


def test_variant_without_settings_is_the_project(cases, model, report):
    model(("", "print(1)"))
    found, _ = report(cases(GREET), "--with", "")
    assert [variant["name"] for variant in found["variants"]] == ["the project's settings"]


def test_run_is_compared_with_the_last_run_of_the_same_variant(cases, model, report):
    name = cases(f"{GREET}  evaluators:\n  - EqualsExpected\n")
    first, _ = report(name)
    other, _ = report(name, "--with", "retry_count=1")
    model(("Greet Ada", "print('hello Ada')"), ("Greet Ada", "print('hi')"))
    again, _ = report(name, "--repeat", "2")
    assert (other["since"], again["since"]) == (None, first["at"])
    assert [(change["case"], change["passed"]) for change in again["changes"]] == [("greet", True)]
    assert again["table"][1] == ["greet", "FAILED 1 of 2 (new)"]


def test_checks_in_python_see_the_inputs_of_a_foreign_data_set(cases, model, report, project):
    (project / "shorter.py").write_text(
        "from dataclasses import dataclass\n"
        "from pydantic_evals.evaluators import Evaluator, EvaluatorContext\n"
        "@dataclass\nclass Shorter(Evaluator):\n"
        "    def evaluate(self, ctx: EvaluatorContext) -> bool:\n"
        "        return len(ctx.output) <= ctx.inputs['most']\n"
    )
    model(*[("Greet", "print('hello')")] * 2)
    rows = "".join(f"- inputs: {{whom: Ada, most: {most}}}\n" for most in (4, 5))
    name = cases(f"cases:\n{rows}evaluators: [Shorter]\n")
    found, _ = report(name, "--checks", "shorter.py", "--task", "Greet {whom}")
    assert [case["passed"] for case in found["variants"][0]["cases"]] == [False, True]


def test_repetitions_of_a_case_are_counted(cases, model, report):
    model(("Greet Ada", "print('hello Ada')"), ("Greet Ada", "print('hi')"))
    found, _ = report(cases(f"{GREET}  evaluators:\n  - EqualsExpected\n"), "--repeat", "2")
    (row,) = found["variants"]
    assert [case["name"] for case in row["cases"]] == ["greet [1/2]", "greet [2/2]"]
    assert (row["passed"], row["total"]) == (1, 2)


def test_judge_is_asked_through_the_project(cases, model, report):
    verdict = '{"reason": "It greets.", "pass": true, "score": 1.0}'
    model(("Greet Ada", "print('hello Ada')"))
    model(
        ("The answer greets", f"```json\n{verdict}\n```"),
        ("rude", verdict.replace("true", "false")),
        file="judge.jsonl",
        fence=False,
    )
    checks = "  - LLMJudge: The answer greets\n"
    checks += "  - LLMJudge: {rubric: Nobody is rude, model: 'recorded:judge.jsonl'}\n"
    name = cases(f"{GREET}  evaluators:\n{checks}")
    found, _ = report(name, "--judge", "recorded:judge.jsonl")
    (case,) = found["variants"][0]["cases"]
    assert [(c["passed"], c["reason"]) for c in case["checks"]] == [
        (True, "It greets."),
        (False, "It greets."),
    ]


@pytest.mark.parametrize(
    ("words", "status", "answer"), [((), 1, None), (("--live-reads",), 0, "[{'total': 40.0}]")]
)
def test_unrecorded_read_is_made_only_on_request(cases, model, report, words, status, answer):
    model(("Sum", "print(shop.query('SELECT total FROM orders'))"))
    found, given = report(cases("cases:\n- name: sum\n  inputs: Sum\n"), *words)
    assert given == status
    assert found["variants"][0]["cases"][0]["answer"] == answer


def test_live_reads_never_change_anything(cases, model, report, project):
    script = "shop.{}('DELETE FROM orders')\nprint('gone')"
    for action in ("query", "write"):
        model(("Empty", script.format(action)))
        name = cases("cases:\n- name: empty\n  inputs: Empty the table\n")
        assert report(name, "--live-reads")[1] == 1
    with closing(sqlite3.connect(project / "shop.db")) as database, database:
        assert database.execute("SELECT COUNT(*) FROM orders").fetchone() == (1,)


def test_page_escapes_foreign_text(cases, model, run, project):
    model(("Greet", "print('<script>alert(1)</script>')"))
    name = cases("cases:\n- name: <b>\n  inputs: Greet\n")
    run("evals", "run", name, "--html", "page.html")
    page = (project / "page.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
    assert "<b>" not in page
    assert "default-src 'none'" in page


def test_data_set_of_pydantic_evals_is_run(model, report, run, project):
    from pydantic_evals import Case, Dataset, evaluators

    case = Case(name="greet", inputs="Greet Ada", metadata={"difficulty": "easy"})
    case.expected_output = "hello Ada"
    case.evaluators = [evaluators.EqualsExpected()]
    checks = [evaluators.IsInstance("str"), evaluators.Contains("Ada")]
    written = Dataset[str, str, dict](name="theirs", cases=[case], evaluators=checks)
    written.to_file(project / "evals/theirs.yaml")
    model(("Greet Ada", "print('hello Ada')"))
    found, status = report("theirs")
    assert (status, len(found["variants"][0]["cases"][0]["checks"])) == (0, 3)
    assert [row["name"] for row in json.loads(run("evals", "list", "--json").stdout)] == ["theirs"]


def test_task_option_turns_foreign_inputs_into_a_task(cases, model, report):
    model(("Answer in one word: Who is there?", "print('Ada')"))
    inputs = "{question: 'Who is there?', context: null}"
    name = cases(
        f"cases:\n- inputs: {inputs}\n  expected_output: Ada\nevaluators: [EqualsExpected]\n"
    )
    found, status = report(name, "--task", "Answer in one word: {question}")
    assert (status, found["variants"][0]["cases"][0]["name"]) == (0, "case 1")


def test_only_the_named_connections_are_used(cases, model, report):
    model(("Sum", "print(shop.query('SELECT total FROM orders'))"))
    name = cases("cases:\n- name: sum\n  inputs: {task: Sum, calls: [{action: shop.query}]}\n")
    assert report(name)[1] == 0
    assert report(name, "-c", "shop")[1] == 0
    found, _ = report(name, "-c", "workers")
    assert "shop" in found["variants"][0]["cases"][0]["error"]


def test_concurrent_cases_use_their_own_recorded_results(cases, model, report):
    scripts = [(f"Task {n}.", "print([balance('Ada') for _ in range(20)])") for n in range(6)]
    model(*scripts)
    rows = "".join(
        f"- name: c{n}\n  inputs: {{task: Task {n}., calls: [{{action: balance, result: {n}}}]}}\n"
        f"  expected_output: '{[n] * 20}'\n"
        for n in range(6)
    )
    found, status = report(cases(f"cases:\n{rows}evaluators: [EqualsExpected]\n"), "--jobs", "6")
    assert status == 0, found
