"""Printed text is visible while a script runs, and after any end of its task."""

import json
import re

from support.program import DELF, delf, environment, write_recording
from support.terminal import TerminalProcess

SLOW = "import asyncio\nprint('first of all')\nawait asyncio.sleep(60)"


def command(model: str, *more: str) -> list[str]:
    return [str(DELF), "run", "x", "--llm", model, "--sandbox", "local", *more]


def test_printed_text_appears_immediately_and_stays_after_ctrl_c(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", SLOW)
    with TerminalProcess(command(model), env=environment(), cwd=tmp_path) as terminal:
        terminal.expect("first of all")
        terminal.send("\x03")
        terminal.expect("printed before it was stopped:")
        terminal.expect("first of all")
        assert terminal.wait() == 130


def test_printed_text_stays_after_a_timeout(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", SLOW)
    done = delf(*command(model, "--timeout", "3")[1:], cwd=tmp_path)
    assert done.returncode == 1
    assert "printed before it failed:\n  first of all\n" in done.stderr


def test_printed_text_stays_after_a_failure_with_a_hint(tmp_path):
    script = "for i in range(50): print('line', i)\nraise ValueError('no')"
    model = write_recording(tmp_path / "r.jsonl", script)
    done = delf(*command(model, "--set", "agent.retry_count=0")[1:], cwd=tmp_path)
    assert [f"  line {i}" in done.stderr.splitlines() for i in range(50)] == [True] * 50
    (hint,) = re.findall(r"^hint: (.*)$", done.stderr, re.MULTILINE)
    assert re.fullmatch(r"delf runs show [0-9a-f]{7}", hint)
    shown = delf(*hint.split()[1:], cwd=tmp_path)
    assert "line 49" in shown.stdout


def test_verbose_agent_shows_scripts_and_their_printed_text(tmp_path, capfd):
    from delf import Agent

    model = write_recording(tmp_path / "r.jsonl", "total = 6 * 7\nprint(total)")
    with Agent(llm=model, sandbox="local", verbose=True) as agent:
        assert agent.run("x").text.strip() == "42"
    message = capfd.readouterr().err
    assert "    total = 6 * 7\n" in message
    assert "  | 42\n" in message


PASSES = (
    "print('of the first pass')\nrerun('a', 'b')",
    "print('of a failed script')\n1 / 0",
    "print('of the last')\nimport asyncio\nawait asyncio.sleep(60)",
)


def test_printed_text_of_all_scripts_stays_after_ctrl_c(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", *PASSES)
    with TerminalProcess(command(model), env=environment(), cwd=tmp_path) as terminal:
        terminal.expect("of the last")
        terminal.send("\x03")
        terminal.expect("printed before it was")
        terminal.expect("of the first pass")
        terminal.expect("of the last")
        assert terminal.wait() == 130
    shown = delf("runs", "show", newest(tmp_path), cwd=tmp_path).stdout
    assert shown.endswith("\nof the first pass\nof the last\n")


def newest(folder) -> str:
    return json.loads(delf("runs", "--json", cwd=folder).stdout)[0]["task_id"]


def test_runs_show_includes_printed_text_of_a_running_task(tmp_path):
    model = write_recording(tmp_path / "r.jsonl", *PASSES)
    with TerminalProcess(command(model), env=environment(), cwd=tmp_path) as terminal:
        terminal.expect("of the last")
        shown = delf("runs", "show", newest(tmp_path), cwd=tmp_path).stdout
        assert "running" in shown
        assert shown.endswith("\nof the first pass\nof the last\n")
        terminal.send("\x03")
        assert terminal.wait() == 130
