"""A process is killed in a call that writes; whether it happened is for a person to say."""

import json
from pathlib import Path

import pytest

from support.program import DELF, delf, environment
from support.terminal import TerminalProcess

from .waiting import FREE_TO_CLOSE, killed_in_a_call, resuming, running, sent

pytestmark = pytest.mark.timeout(120)

RESULT = "as JSON (empty for null): "


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(FREE_TO_CLOSE)
    return tmp_path


def approvals(here: Path, *arguments: str):
    return delf("approvals", *arguments, cwd=here)


# -- from another process ---------------------------------------------------------------------


def test_approvals_show_describes_the_interrupted_call(here):
    task = killed_in_a_call(here)
    assert delf("runs", "show", task, cwd=here).stdout.endswith(f"\nhint: delf resume {task}\n")
    with resuming(here, task) as run:
        name = run.request()
        assert "hint: delf resume" not in delf("runs", "show", task, cwd=here).stdout
        assert "again? desk.close(number=7)" in approvals(here, "list").stdout
        shown = approvals(here, "show", name).stdout
        assert "may already have happened: the call was begun and interrupted" in shown
        data = json.loads(approvals(here, "show", name, "--json").stdout)
        assert (data["outcome_unknown"], data["effect"]) == (True, "write")
        refused = approvals(here, "edit", name, "number=8")
        assert refused.returncode == 1
        assert "the arguments of an interrupted call cannot be changed" in refused.stderr
        assert "settle says that it did happen" in refused.stderr
    assert sent(here) == ["closed 7"]


@pytest.mark.parametrize(
    ("decision", "answer", "done"),
    [
        (("settle", "--result", '"as recorded"'), "answer: as recorded\n", ["closed 7"]),
        (("settle",), "answer: None\n", ["closed 7"]),
        (("approve",), "answer: closed\n", ["closed 7", "closed 7"]),
    ],
    ids=["settle", "settle without result", "approve"],
)
def test_settle_decides_a_call_of_unknown_outcome(here, decision, answer, done):
    task = killed_in_a_call(here)
    command, *more = decision
    with resuming(here, task) as run:
        text = approvals(here, command, run.request(), *more)
        assert (text.returncode, text.stderr) == (0, "")
        assert text.stdout.endswith("again? desk.close(number=7)\n")
        status, out, err = run.end()
    assert (status, out) == (0, answer), err
    assert sent(here) == done
    again = delf("resume", task, cwd=here)
    assert (again.returncode, again.stdout) == (0, answer), "a task that is over stays as it was"
    assert sent(here) == done


def test_call_of_unknown_outcome_requires_approval_despite_approve_all(here):
    task = killed_in_a_call(here)
    with resuming(here, task, "--approve", "all") as run:
        assert approvals(here, "settle", run.request(), "--result", "1").returncode == 0
        assert run.end()[:2] == (0, "answer: 1\n")
    assert sent(here) == ["closed 7"]


def test_settle_refuses_a_call_that_never_began(here):
    with running(here, "print(await desk.send('ada'))") as run:
        name = run.request()
        refused = approvals(here, "settle", name)
        assert refused.returncode == 1
        assert "only an interrupted call can be settled" in refused.stderr
        assert approvals(here, "approve", name).returncode == 0
        assert run.end()[:2] == (0, "sent to ada\n")


# -- on a terminal ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "answer", "done"),
    [
        ((("? help\n> ", "h\n"), (RESULT, '"by hand"\n')), "answer: by hand", 1),
        ((("? help\n> ", "h\n"), (RESULT, "\n")), "answer: None", 1),
        ((("? help\n> ", "a\n"),), "answer: closed", 2),
    ],
    ids=["it did happen", "without a result", "again"],
)
def test_resume_at_a_terminal_requires_approval_for_an_unfinished_call(here, keys, answer, done):
    task = killed_in_a_call(here)
    command = [DELF, "resume", task, "--approve", "all"]
    with TerminalProcess(command, env=environment(), cwd=here) as terminal:
        before = terminal.expect("desk.close was interrupted. Make it again?")
        assert "replaying what was done · " in before
        assert "starting" not in before
        for prompt, typed in keys:
            assert "starting" not in terminal.expect(prompt), "progress gives way to the question"
            terminal.send(typed)
        terminal.expect(answer)
        assert terminal.wait() == 0
    assert sent(here) == ["closed 7"] * done


# -- where nobody can be asked -----------------------------------------------------------------


def test_unanswerable_unknown_outcome_keeps_the_task_interrupted(here):
    task = killed_in_a_call(here, "--approve", "all")
    for _ in range(2):  # as cron does
        done = delf("resume", task, cwd=here)
        assert done.returncode == 3
        assert "desk.close was begun and then interrupted" in done.stderr
        assert "nobody could be asked about it" in done.stderr
        assert "--settle again, or --settle done" in done.stderr
        (listed,) = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
        assert listed["state"] == "interrupted"
    assert sent(here) == ["closed 7"]


@pytest.mark.parametrize(
    ("settle", "answer", "done"),
    [
        ("done", "answer: None\n", ["closed 7"]),
        ("again", "answer: closed\n", ["closed 7", "closed 7"]),
    ],
)
def test_resume_settle_option_decides_in_advance(here, settle, answer, done):
    task = killed_in_a_call(here, "--approve", "all")
    assert delf("resume", task, cwd=here).returncode == 3
    resumed = delf("resume", task, "--settle", settle, cwd=here)
    assert (resumed.returncode, resumed.stdout) == (0, answer), resumed.stderr
    assert sent(here) == done
    shown = delf("runs", "events", task, "--json", cwd=here).stdout
    decided = [json.loads(line) for line in shown.splitlines() if "ApprovalDecided" in line]
    assert [event["data"]["by"] for event in decided] == [f"settle {settle}"]
