"""Calls that wait in one process and are decided in another, through the journal."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from delf import Agent
from delf_cli import answering
from delf_cli.main import cli
from delf_cli.toolfile import load_tools
from support.program import DELF, delf, environment, write_recording
from support.terminal import TerminalProcess
from support.until import until_now

from .waiting import TOOLS, running, sent

pytestmark = pytest.mark.timeout(120)  # some start a dozen processes

SEND = "print(await desk.send('ada', copies=2, desc='say hi'))"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["postgresql", pytest.param("sqlite", marks=pytest.mark.soak)])
def journal(request: pytest.FixtureRequest) -> dict[str, str]:
    """The variables that name the journal; none for the default one."""
    if request.param == "sqlite":
        return {}
    return {"DELF_JOURNAL_SQL_URL": request.getfixturevalue("postgres_url")}


def approvals(*arguments: str, env=None) -> subprocess.CompletedProcess[str]:
    """``delf approvals`` in this process, which is another one than that of the run."""
    result = CliRunner().invoke(cli, ["approvals", *arguments], env=env)
    return subprocess.CompletedProcess((), result.exit_code, result.stdout, result.stderr)


def test_approvals_command_answers_another_process(here, journal):
    with running(here, SEND, env=journal) as run:
        name = run.request()
        listed = json.loads(delf("approvals", "list", "--json", cwd=here, env=journal).stdout)
        assert [item["request_id"] for item in listed] == [name]
        assert listed[0]["arguments"] == {"to": "ada", "copies": 2}
        shown = delf("approvals", "show", name, cwd=here, env=journal).stdout
        assert "May desk.send be called? ● cannot be undone" in shown
        assert "the script says: say hi" in shown
        assert sent(here) == []
        done = delf("approvals", "approve", name[4:10], "--note", "go", cwd=here, env=journal)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "approved: desk.send(to='ada', copies=2)\n"
        status, out, err = run.end()
    assert (status, out) == (0, "sent to ada\n")
    assert "approved by cli" in err
    assert sent(here) == ["ada 2"]
    shown = json.loads(delf("approvals", "show", name, "--json", cwd=here, env=journal).stdout)
    assert (shown["state"], shown["decided"]["by"], shown["decided"]["reason"]) == (
        "approved",
        "cli",
        "go",
    )
    assert json.loads(delf("approvals", "list", "--json", cwd=here, env=journal).stdout) == []


def test_rejection_reason_reaches_the_script(here):
    script = f"try:\n    {SEND}\nexcept ApprovalRejected as no:\n    print('told:', no)"
    with running(here, script) as run:
        done = approvals("reject", run.request(), "--reason", "not now")
        assert done.returncode == 0
        assert run.end()[:2] == (0, "told: desk.send was rejected: not now\n")
    assert sent(here) == []


def test_approvals_show_names_the_script_and_earlier_changes(here):
    first = "await desk.send('ada')\nraise ValueError('no stamp')"
    with running(here, first, "await desk.send('ada')") as run:
        assert approvals("approve", run.request()).returncode == 0
        name = run.request()
        shown = approvals("show", name).stdout
        assert "script 2: because the one before failed: ValueError: no stamp" in shown
        assert "the very same call was made before in this task" in shown
        assert "changed so far in this task (1): desk.send(to='ada')\n" in shown
        data = json.loads(approvals("show", name, "--json").stdout)
        assert (data["script"], data["made_before"], len(data["changes"])) == (2, 1, 1)
        assert approvals("reject", name).returncode == 0
        status, _, err = run.end()
    assert status == 1
    assert "changed before it failed:\n  desk.send(to='ada')\nfailed · " in err


def test_approvals_edit_changes_arguments(here):
    with running(here, SEND) as run:
        name = run.request()
        assert approvals("edit", name).returncode == 2
        done = approvals("edit", name, "to=3", "copies=5", "--json")
        assert json.loads(done.stdout)["arguments"] == {"to": "3", "copies": 5}
        assert run.end()[0] == 0
    assert sent(here) == ["3 5"]


def test_edit_with_a_wrong_type_is_refused_and_fails_the_call(here):
    script = f"try:\n    {SEND}\nexcept ApprovalRejected as no:\n    print('told:', no)"
    with running(here, script) as run:
        done = approvals("edit", run.request(), "copies=many")
        assert done.returncode == 1
        assert "the edited arguments do not fit" in done.stderr
        assert "the edited arguments do not fit" in run.end()[1]
    assert sent(here) == []


def test_remembered_decision_passes_in_other_processes_until_revoked(here, journal):
    with running(here, SEND, env=journal) as run:
        name = run.request()
        done = approvals("approve", name, "--remember", "until-revoked", env=journal)
        assert done.returncode == 0
        assert run.end()[0] == 0
    with running(here, f"{SEND}\nprint(await desk.send('eve'))", env=journal) as run:
        asked = run.request()
        shown = json.loads(approvals("show", asked, "--json", env=journal).stdout)
        assert shown["arguments"] == {"to": "eve"}, "another call is asked about"
        assert approvals("reject", asked, env=journal).returncode == 0
        assert run.end()[0] == 1
    (task,) = {e["task_id"] for e in events_of(here, journal, "ApprovalRemembered")}
    assert task == shown["task_id"]
    listed = json.loads(approvals("remembered", "--json", env=journal).stdout)
    assert [item["request_id"] for item in listed] == [name]
    assert (listed[0]["by"], listed[0]["project"]) == ("cli", str(here.resolve()))
    assert "desk.send(to='ada', copies=2)" in approvals("remembered", env=journal).stdout
    assert approvals("remembered", "--revoke", name[4:7], env=journal).returncode == 1
    revoked = approvals("remembered", "--revoke", name, env=journal)
    assert revoked.stdout == "revoked: desk.send(to='ada', copies=2)\n"
    assert approvals("remembered", env=journal).stderr == "No decision is remembered\n"
    with running(here, SEND, env=journal) as run:
        assert approvals("reject", run.request(), env=journal).returncode == 0
        run.end()
    assert sent(here) == ["ada 2", "ada 2"]


def events_of(here, journal, kind):
    """The events of a kind, of all tasks."""
    tasks = json.loads(delf("runs", "list", "--json", cwd=here, env=journal).stdout)
    for task in tasks:
        message = delf("runs", "events", task["task_id"], "--json", cwd=here, env=journal).stdout
        yield from (e for e in map(json.loads, message.splitlines()) if e["type"] == kind)


def test_revoked_decision_is_asked_again_at_the_next_call(here):
    (here / "tools.py").write_text(TOOLS + REST, encoding="utf-8")
    with running(here, SEND) as run:
        name = run.request()
        approvals("approve", name, "--remember", "until-revoked", "--any-arguments")
        assert run.end()[0] == 0
    script = "await desk.send('bob')\nawait rest()\nawait desk.send('bob')"
    with running(here, script) as run:
        until_now(lambda: len(sent(here)) >= 2)
        assert approvals("remembered", "--revoke", name).returncode == 0
        (here / "go").touch()
        assert approvals("reject", run.request()).returncode == 0
        run.end()
    assert sent(here) == ["ada 2", "bob 1"]


REST = '''
from delf import tool

@tool(effect="read")
def rest() -> None:
    """Wait until the test says so."""
    while not os.path.exists("go"):
        time.sleep(0.02)
'''


def test_answer_to_a_request_that_expired_is_refused(here):
    script = f"try:\n    {SEND}\nexcept ApprovalRejected as no:\n    print(no)"
    with running(here, script, flags=("--set", "approval_timeout=0.5")) as run:
        name = run.request()
        assert "nobody answered within 0.5 s" in run.end()[1]
    late = approvals("approve", name)
    assert (late.returncode, sent(here)) == (1, [])
    assert "is not pending any more: expired" in late.stderr


def test_task_of_an_expired_request_names_the_setting_of_its_timeout(here):
    with running(here, SEND, flags=("--set", "approval_timeout=0.5")) as run:
        assert "approval_timeout" in "".join(map(str, run.end()))


def test_request_can_be_answered_after_resume(here, journal, monkeypatch):
    with running(here, SEND, env=journal) as run:
        name = run.request()
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        assert approvals("list", env=journal).stderr == "Nothing waits for approval\n"
        late = approvals("approve", name, env=journal)
    assert late.returncode == 1
    assert "the process that worked on its task is gone" in late.stderr
    for variable, value in journal.items():
        monkeypatch.setenv(variable, value)
    shown = json.loads(approvals("show", name, "--json").stdout)
    assert shown["state"] == "interrupted"
    task = shown["task_id"]
    desk = load_tools(here / "tools.py", os.environ)
    llm = f"recorded:{here / 'answers.jsonl'}"
    with (
        Agent(tools=desk, llm=llm, journal="sql", wait_approvals=True, approvals=[]) as agent,
        ThreadPoolExecutor(1) as threads,
    ):
        resumed = threads.submit(agent.resume, task)
        until_now(lambda: resumed.done() or agent.get_pending_approvals())
        assert approvals("approve", name).stdout == "approved: desk.send(to='ada', copies=2)\n"
        assert resumed.result(30).text == "sent to ada"
    assert sent(here) == ["ada 2"]


def test_approving_for_a_stopped_process_reports_that_it_did_not_respond(here, monkeypatch):
    monkeypatch.setattr(answering, "RESPONSE_SECONDS", 0.2)
    with running(here, SEND) as run:
        name = run.request()
        os.kill(run.process.pid, signal.SIGSTOP)
        try:
            done = approvals("approve", name)
        finally:
            os.kill(run.process.pid, signal.SIGCONT)
        assert done.returncode == 1
        assert "has not taken the answer within 0.2 s" in done.stderr
        assert run.end()[0] == 0, "it takes it once it goes on"


@pytest.mark.parametrize("text", ["nope", "req_nope", ""])
def test_unknown_request_id_is_refused(here, text):
    done = approvals("approve", text)
    assert done.returncode == 1
    assert "no request" in done.stderr or "is empty" in done.stderr


@pytest.mark.parametrize("what", [("approve",), ("reject",), ("edit", "to=eve")])
def test_short_request_id_can_be_shown_but_not_decided(here, what):
    with running(here, SEND) as run:
        name = run.request()
        command, *rest = what
        for text in ("r", "req_", name[:5], name[:9], name[4:9]):
            assert approvals("show", text).returncode == 0
            done = approvals(command, text, *rest)
            assert done.returncode == 1
            assert "too short" in done.stderr
        assert sent(here) == []
        assert approvals("reject", name).returncode == 0
        run.end()


def test_approve_at_a_terminal_shows_the_request_first(here, journal):
    with running(here, SEND, env=journal) as run:
        name = run.request()
        for text, answer, status in ((name, "n", 1), (name[4:11], "n", 1), (name, "y", 0)):
            command = [DELF, "approvals", "approve", text]
            with TerminalProcess(command, env=environment() | journal, cwd=here) as terminal:
                terminal.expect("[y/N]: ")
                for line in ("● cannot be undone", "to = 'ada'", "copies = 2", "says: say hi"):
                    assert line in terminal.text
                assert sent(here) == []
                terminal.send(f"{answer}\n")
                assert terminal.wait() == status
        assert run.end()[0] == 0
    assert sent(here) == ["ada 2"]


def test_edit_at_a_terminal_shows_the_resulting_call(here, journal):
    with running(here, SEND, env=journal) as run:
        command = [DELF, "approvals", "edit", run.request(), "copies=7"]
        with TerminalProcess(command, env=environment() | journal, cwd=here) as terminal:
            terminal.expect("[y/N]: ")
            assert "copies = 7" in terminal.text
            assert "copies = 2" not in terminal.text
            terminal.send("y\n")
            assert terminal.wait() == 0
        assert run.end()[0] == 0
    assert sent(here) == ["ada 7"]


def test_approvals_list_needs_a_shared_journal(here):
    (here / "delf.toml").write_text('[agent]\njournal = "none"\n')
    done = approvals("list")
    assert done.returncode == 2
    assert "the journal 'none' is not for several processes" in done.stderr


# -- on a terminal --------------------------------------------------------------------------


def on_terminal(here: Path, *scripts: str, flags: tuple[str, ...] = ()) -> TerminalProcess:
    llm = write_recording(here / "answers.jsonl", *scripts)
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, *flags]
    return TerminalProcess(command, env=environment(), cwd=here)


def waiting() -> str:
    (found,) = json.loads(approvals("list", "--json").stdout)
    return found["request_id"]


def test_answer_of_another_process_ends_the_terminal_question(here):
    with on_terminal(here, SEND) as terminal:
        terminal.expect("? help\n> ")
        assert approvals("approve", waiting()).returncode == 0
        terminal.expect("no answer is needed any more")
        assert terminal.wait() == 0
    assert "approved by cli" in terminal.text
    assert "sent to ada" in terminal.text
    assert sent(here) == ["ada 2"]


def test_approval_by_a_second_process_is_refused_after_a_decision(here):
    with on_terminal(here, SEND) as terminal:
        terminal.expect("? help\n> ")
        name = waiting()
        terminal.send("a\n")
        assert terminal.wait() == 0
    late = approvals("approve", name)
    assert late.returncode == 1
    assert "any more: approved by terminal" in late.stderr


def test_plan_of_a_whole_script_is_approved_on_a_terminal(here):
    script = "for n in (1, 2):\n    await desk.close(n)\nprint(await desk.send('ada'))"
    with on_terminal(here, script, flags=("--confirm-mode", "plan")) as terminal:
        shown = terminal.expect("r reject · c ask for changes · v view all · ? help\n> ")
        assert "May this script run? · ● cannot be undone" in shown
        assert "it may call, as often as it likes: desk.close: ◐ changes something" in shown
        assert "│     await desk.close(n)" in shown
        terminal.send("e\n")
        terminal.expect("writes another script")
        terminal.expect("> ")
        terminal.send("a\n")
        assert terminal.wait() == 0
    assert "\x1b[" in terminal.raw
    assert sent(here) == ["closed 1", "closed 2", "ada 1"]


def test_approvals_command_decides_whole_scripts(here):
    scripts = ("await desk.close(1)", "await desk.close(2)")
    with running(here, *scripts, flags=("--confirm-mode", "plan")) as run:
        name = run.request()
        assert "await desk.close(1)" in approvals("show", name).stdout
        refused = approvals("edit", name, "number=3")
        assert (refused.returncode, "a script cannot be edited" in refused.stderr) == (1, True)
        assert approvals("reject", name, "--reason", "close 2").returncode == 0
        assert approvals("approve", run.request()).returncode == 0
        assert run.end()[0] == 0
    assert sent(here) == ["closed 2"]
