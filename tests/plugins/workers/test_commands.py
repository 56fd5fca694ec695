"""``delf workers`` and ``delf init``, as people type them."""

import json

import pytest

from delf.errors import AgentStateError
from delf.events import ScriptGenerated, TaskStarted
from delf_workers import arun_worker, run_worker
from support.commands import check_object, json_tables
from support.program import DELF, delf, environment, run

FIRST = "---\ndescription: Sums up.\nattachments: {suffixes: [.md]}\ninputs: {words: {type: integer, default: 9}}\n---\nSum up in {{words}} words.\n"


def reply(code, *contains):
    text = f"```python\n{code}\n```"
    return json.dumps(
        {"request": {"contains": list(contains)}, "reply": {"text": text, "cost_usd": 0.5}}
    )


@pytest.fixture
def project(tmp_path):
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers/sum.worker").write_text(FIRST)
    (tmp_path / "delf.toml").write_text('[agent]\nllm = "recorded:a.jsonl"\njournal = "none"\n')
    (tmp_path / "a.md").write_text("one two")
    (tmp_path / "a.jsonl").write_text(
        reply("print(open('a.md').read())", "Sum up in 5 words.", "Sum it up.", "a.md") + "\n"
    )
    return tmp_path


def test_workers_list_and_show_describe_workers(project):
    (project / "workers/bad.worker").write_text("---\nx: 1\n---\nx\n")
    listed = delf("workers", "list", cwd=project)
    bad, good = listed.stdout.splitlines()
    assert bad.startswith(f"bad  ! {project}/workers/bad.worker, line 2: x: unknown key")
    assert good == "sum  Sums up."
    rows = json.loads(delf("workers", "list", "--json", cwd=project).stdout)
    for row in rows:
        check_object(row, json_tables()["delf workers list"])
    assert FIRST.rstrip() in delf("workers", "show", "sum", cwd=project).stdout
    shown = json.loads(delf("workers", "show", "sum", "--json", cwd=project).stdout)
    assert shown["instructions"] == "Sum up in {{words}} words."
    missing = delf("workers", "show", "som", cwd=project)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no worker 'som'; did you mean 'sum'?" in missing.stderr


def test_workers_check_reports_broken_workers(project):
    assert delf("workers", "check", cwd=project).stdout == "sum: ok\n"
    (project / "workers/bad.worker").write_text("---\nconnections: [nothing]\n---\nx\n")
    done = delf("workers", "check", cwd=project)
    assert (done.returncode, done.stdout) == (2, "sum: ok\n")
    assert "bad.worker, line 2: connections.nothing: unknown connection 'nothing'" in done.stderr


def test_workers_run_prints_the_answer(project):
    done = delf(
        "workers", "run", "sum", "Sum it up.", "--attach", "a.md", "--input", "words=5", "--json",
        cwd=project,
    )  # fmt: skip
    response = json.loads(done.stdout)
    assert response["text"] == "one two"
    assert response["cost_usd"] == 0.5
    for arguments, message in (
        (("som",), "did you mean 'sum'"),
        (("sum", "--input", "words=x"), "'x' is not of the type integer"),
        (("sum", "--input", "words"), "KEY=VALUE"),
        (("sum", "--input", "word=1"), "has no input 'word'"),
    ):
        wrong = delf("workers", "run", *arguments, cwd=project)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert message in wrong.stderr


def test_workers_run_ends_with_a_summary(project):
    arguments = ("sum", "Sum it up.", "--attach", "a.md", "--input", "words=5")
    reported = delf("workers", "run", *arguments, cwd=project).stderr
    assert "1 model call · 0 tool calls" in reported
    assert "workers.call" not in reported


def test_script_calls_workers_by_the_connections_name(project):
    call = "print(await workers.call('sum', 'Sum it up.', ['a.md'], {'words': 5}))"
    with (project / "a.jsonl").open("a") as file:
        file.write(reply(call, "Have it summed up.") + "\n")
    done = delf("run", "Have it summed up.", "-c", "workers", "--file", "a.md", cwd=project)
    assert done.stdout == "one two\n", done.stderr


def test_workers_init_makes_a_working_project(tmp_path):
    made = delf("init", "papers", "--llm", "recorded:a.jsonl", cwd=tmp_path)
    assert made.returncode == 0
    folder = tmp_path / "papers"
    assert made.stdout.splitlines() == [
        "papers/delf.toml",
        "papers/tools.py",
        "papers/notes.md",
        "papers/workers/summarise.worker",
        "papers/workers/tools.py",
    ]
    assert "cd papers" in made.stderr
    assert "delf workers run summarise --attach notes.md" in made.stderr
    assert delf("workers", "check", cwd=folder).stdout == "summarise: ok\n"
    assert "Uji" in (folder / "notes.md").read_text()
    (folder / "notes.md").write_text("Tea at five, with Ann.")
    lines = [
        reply(
            "text = open('notes.md').read()\nprint(await count_words(text))",
            "Sum it up in at most 9 words",
        ),
        reply("print(await count_words('a b c'))", "How many words"),
    ]
    (folder / "a.jsonl").write_text("\n".join(lines))
    done = delf("workers", "run", "summarise", "--attach", "notes.md", "--input", "words=9", "--journal", "none", cwd=folder)  # fmt: skip
    assert done.stdout == "5\n", done.stderr
    done = delf("run", "How many words?", "--tools", "tools.py", "--journal", "none", cwd=folder)
    assert done.stdout == "3\n", done.stderr
    (folder / "tools.py").write_text("mine")
    again = delf("init", ".", cwd=folder)
    assert "tools.py: left as it is" in again.stdout
    assert (folder / "tools.py").read_text() == "mine"


def test_workers_init_uses_only_installed_plugins(tmp_path):
    variables = {"DELF_DISABLE_PLUGINS": "filesystem,llm", "ANTHROPIC_API_KEY": "sk-none"}
    env = {**environment(), **variables, "OPENAI_API_KEY": ""}
    made = run([DELF, "init", "."], cwd=tmp_path, env=env, text=True)
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "delf.toml").read_text()
    assert "filesystem" not in text
    assert "llm.call" not in (tmp_path / "workers" / "summarise.worker").read_text()
    assert 'llm = "claude-haiku-4-5"' in text
    assert "export" not in made.stderr
    checked = run([DELF, "config", "check"], cwd=tmp_path, env=env, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_run_worker_works_from_code(project, monkeypatch):
    monkeypatch.chdir(project)
    response = run_worker(
        "sum", "Sum it up.", inputs={"words": 5}, attachments=["a.md"], project=project
    )
    assert response.text == "one two"
    assert response.trace.scripts == ["print(open('a.md').read())"]
    assert (response.trace.tool_calls, len(response.trace.model_calls)) == ([], 1)
    assert response.cost_usd == 0.5


def test_run_worker_without_attachments_has_no_files_of_the_project(project):
    (project / "delf.toml").write_text(
        '[agent]\nllm = "recorded:a.jsonl"\njournal = "none"\nfiles = ["missing.md"]\n'
    )
    (project / "a.jsonl").write_text(reply("print('done')", "Sum it up.") + "\n")
    assert run_worker("sum", "Sum it up.", inputs={"words": 5}, project=project).text == "done"


async def test_run_worker_inside_an_event_loop_is_refused():
    with pytest.raises(AgentStateError) as reported:
        run_worker("nobody")
    assert reported.value.hint == "await arun_worker(…)"


NESTED = [
    ("total = await workers.call('sum', 'Sum it up.', inputs={'words': 5})\nprint(total)", "Lead."),
    ("print(7)", "Sum up in 5 words."),
]


@pytest.fixture
def nested(project):
    """A worker that calls another one."""
    head = "---\nconnections: {workers: {allow_workers: [sum]}}\n"
    head += "result: {type: integer}\n---\nLead.\n"
    (project / "workers/lead.worker").write_text(head)
    (project / "a.jsonl").write_text("".join(reply(*one) + "\n" for one in NESTED))
    return project


async def test_arun_worker_returns_response_and_events(nested):
    events, messages = [], []
    response = await arun_worker(
        "lead",
        project=nested,
        listeners=[events.append],
        message_callback=lambda name, call: messages.append((name, call)),
    )
    trace = response.raise_for_status().trace
    assert (response.text.strip(), response.value) == ("7", 7)
    assert trace.scripts == [NESTED[0][0]]
    assert [call.name for call in trace.tool_calls] == ["workers.call"]
    assert trace.usage.total_tokens == trace.model_calls[0].usage.total_tokens
    assert [name for name, _ in messages] == ["lead", "sum"]
    assert all(
        script in call.answer for (script, _), (_, call) in zip(NESTED, messages, strict=True)
    )
    assert "Lead." in "".join(message.text for message in messages[0][1].messages)
    assert [e.code for e in events if isinstance(e, ScriptGenerated)] == [
        code for code, _ in NESTED
    ]
    assert all(not isinstance(e, TaskStarted) or e.parent for e in events)


async def test_run_worker_reports_why_a_worker_could_not_start(nested):
    with_a_hole = nested / "workers/lead.worker"
    with_a_hole.write_text("---\ninputs: {x: {type: integer}}\n---\nLead {{x}}.\n")
    response = await arun_worker("lead", project=nested)
    assert not response.status
    assert "needs the input 'x'" in response.error
    assert [call.name for call in response.trace.tool_calls] == ["workers.call"]


async def test_worker_uses_the_strategy_of_the_project(project, monkeypatch):
    monkeypatch.chdir(project)
    chosen = '[agent]\nllm = "recorded:a.jsonl"\njournal = "none"\nstrategy = "stream"\n'
    (project / "delf.toml").write_text(chosen)
    answer_text = {"request": {"contains": ["Sum up in 5 words."]}, "reply": {"text": "No script."}}
    (project / "a.jsonl").write_text(json.dumps(answer_text) + "\n")
    response = await arun_worker("sum", "Sum it up.", inputs={"words": 5}, project=project)
    assert response.raise_for_status().text == "No script."


@pytest.mark.timeout(120)
def test_killed_worker_run_is_resumed(project):
    """``delf resume`` recognises the task as a worker's."""
    (project / "delf.toml").write_text('[agent]\nllm = "recorded:a.jsonl"\n')
    (project / "tools.py").write_text("")
    (project / "workers/tools.py").write_text(
        "import os\nfrom pathlib import Path\nfrom delf import tool\n"
        "@tool\ndef die_once() -> str:\n    'Die.'\n"
        f"    mark = Path({str(project)!r}) / 'mark'\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n        os.kill(os.getpid(), 9)\n"
        "    return 'alive'\n"
    )
    (project / "workers/die.worker").write_text(
        "---\nconnections: {custom: {die_once: {pre_approved: true}}}\n---\nDie.\n"
    )
    (project / "a.jsonl").write_text(reply("print(await die_once())", "Die.") + "\n")
    killed = delf("workers", "run", "die", cwd=project)
    assert killed.returncode in (-9, 137)
    (row,) = json.loads(
        delf("runs", "list", "--state", "interrupted", "--json", cwd=project).stdout
    )[-1:]
    done = delf("resume", row["task_id"], "--approve", "all", "--settle", "again", cwd=project)
    assert "alive" in done.stdout + done.stderr
