"""What scripts print is seen while they run, and stays however a task ends."""

import re

from support.program import DELF, delf, environment, write_recording
from support.terminal import TerminalProcess

SLOW = "import asyncio\nprint('first of all')\nawait asyncio.sleep(60)"


def command(model: str, *more: str) -> list[str]:
    return [str(DELF), "run", "x", "--llm", model, "--sandbox", "local", *more]


def test_prints_are_shown_as_they_come_and_stay_after_ctrl_c(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", SLOW)
    with TerminalProcess(command(model), env=environment(), cwd=tmp_path) as terminal:
        terminal.expect("first of all")
        terminal.send("\x03")
        terminal.expect("printed before it was stopped:")
        terminal.expect("first of all")
        assert terminal.wait() == 130


def test_they_stay_after_a_timeout(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", SLOW)
    done = delf(*command(model, "--timeout", "3")[1:], cwd=tmp_path)
    assert done.returncode == 1
    assert "printed before it failed:\n  first of all\n" in done.stderr


def test_all_of_them_stay_after_a_failure_and_the_hint_is_where_to_look(tmp_path):
    script = "for i in range(50): print('line', i)\nraise ValueError('no')"
    model = write_recording(tmp_path / "r.jsonl", script)
    done = delf(*command(model, "--set", "agent.retry_count=0")[1:], cwd=tmp_path)
    assert [f"  line {i}" in done.stderr.splitlines() for i in range(50)] == [True] * 50
    (hint,) = re.findall(r"^hint: (.*)$", done.stderr, re.MULTILINE)
    assert re.fullmatch(r"delf runs show [0-9a-f]{7}", hint)
    shown = delf(*hint.split()[1:], cwd=tmp_path)
    assert "line 49" in shown.stdout


def test_verbose_in_a_program_shows_the_script_and_what_it_prints(tmp_path, capfd):
    from delf import Agent

    model = write_recording(tmp_path / "r.jsonl", "total = 6 * 7\nprint(total)")
    with Agent(llm=model, sandbox="local", verbose=True) as agent:
        assert agent.run("x").text.strip() == "42"
    told = capfd.readouterr().err
    assert "    total = 6 * 7\n" in told
    assert "  | 42\n" in told
