"""``delf`` on a terminal: progress, answer, approval."""

import os
import re
import signal
from pathlib import Path

import pytest

from support.program import DELF, environment, write_recording
from support.terminal import TerminalProcess

SEND = "? help\n> "
TOOLS = '''
from delf import tool

@tool(effect="irreversible")
def send(to: str, text: str = "", copies: int = 1) -> str:
    """Send."""
    with open("sent.txt", "a") as file:
        file.write(f"{to}: {text}\\n" * copies)
    return "sent"
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def start(here: Path, *scripts: str, flags: tuple[str, ...] = (), **options) -> TerminalProcess:
    llm = write_recording(here / "answers.jsonl", *scripts)
    return show(here, "run", "x", "--tools", "tools.py", "--llm", llm, *flags, **options)


def show(here: Path, *command: str, columns: int = 100, **options) -> TerminalProcess:
    env = environment(COLUMNS=str(columns))
    return TerminalProcess([DELF, *command], env=env, cwd=here, columns=columns, **options)


def sent(here: Path) -> list[str]:
    path = here / "sent.txt"
    return path.read_text().splitlines() if path.exists() else []


TABLE = (
    "print('# Title\\n\\nsome **bold** words\\nnext line\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |')"
)


def test_terminal_shows_progress_then_markdown_answer_then_cost(here):
    with start(here, TABLE) as terminal:
        assert terminal.wait() == 0
        text = terminal.text
    assert "delf · " in text
    assert "sandbox local (process)" in text
    prints, _, answer = text.rpartition("Title")
    assert "  some **bold** words\n" in prints, "prints are shown as they come"
    assert "**bold**" not in answer
    assert "|---|" not in answer
    assert re.search(r"bold words\s*\n\s*next line", answer)
    assert "done · " in answer
    assert "\x1b[1m" in terminal.raw or "\x1b[1" in terminal.raw


def test_terminal_keeps_the_lines_of_plain_text(here):
    with start(here, "print('first  line\\nsecond_line_\\n    third')") as terminal:
        assert terminal.wait() == 0
    assert "first  line\nsecond_line_\n    third\n" in terminal.text


LONG = "Everything that was ordered before Thursday leaves the warehouse tonight; " * 4
WIDE = "| " + " | ".join(f"column {n}" for n in range(12)) + " |"
ROW = "| " + " | ".join(f"longer_value_of_column_{n}" for n in range(12)) + " |"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("fails", [False, True])
def test_terminal_wraps_lines_between_words(here, columns, fails):
    printed = "\n".join([LONG, "", WIDE, "|---" * 12 + "|", ROW])
    script = f"print({printed!r})" + f"\nraise ValueError({LONG!r})" * fails
    with start(here, script, script, script, columns=columns) as ran:
        assert ran.wait() == fails
    with show(here, "runs", "show", "last", columns=columns) as later:
        assert later.wait() == 0
    for terminal in (ran, later):
        lines = terminal.text.splitlines()
        assert [line for line in lines if len(line.rstrip()) > columns] == []
        words = " ".join(terminal.text.split())
        assert LONG.strip() in words
        assert "longer_value_of_column_11" in words


def test_answer_cannot_send_control_codes_to_the_terminal(here):
    script = "print('a' + chr(27) + ']0;owned' + chr(7) + 'b' + chr(0x9b) + '2J')"
    with start(here, script) as terminal:
        assert terminal.wait() == 0
    assert "]0;owned\x07" not in terminal.raw
    assert "a\\x1b]0;owned\\x07b\\x9b2J" in terminal.text


def test_redirected_stdout_holds_only_the_answer(here):
    with start(here, TABLE, stdout=here / "out.md", flags=("-v",)) as terminal:
        assert terminal.wait() == 0
    assert (here / "out.md").read_text().startswith("# Title\n\nsome **bold** words\n")
    assert "script 1" in terminal.text
    assert "# Title\n" not in terminal.text


def test_terminal_approval_makes_the_call(here):
    with start(here, "print(await send('ada', text='hi', desc='say hi'))") as terminal:
        shown = terminal.expect(SEND)
        assert "May send be called? · ● cannot be undone" in shown
        assert "the script says: say hi" in shown
        assert "to = 'ada'" in shown
        assert sent(here) == []
        terminal.send("a\n")
        assert terminal.wait() == 0
    assert sent(here) == ["ada: hi"]


def test_progress_is_paused_during_a_question(here):
    with start(here, "print(await send('ada'))") as terminal:
        terminal.expect("? help\n> ")
        before = terminal.raw
        terminal.send("v\n")
        terminal.expect("? help\n> ")
        between = terminal.raw[len(before) :]
        assert "running the script" not in between
        assert "\x1b[2K" not in between
        terminal.send("a\n")
        assert terminal.wait() == 0


def test_edited_arguments_are_checked_and_shown_before_the_call(here):
    with start(here, "print(await send('ada', copies=2))") as terminal:
        terminal.expect(SEND)
        for typed, shown in (
            ("e", "done: "),
            ("to", "to, as text: "),
            ("\x15bob", "done: "),
            ("2", "copies, as JSON: "),
            ("\x15{many", "that is not JSON: "),
            ("copies", "copies, as JSON: "),
            ('\x15"many"', "that does not fit: "),
            ("2", "copies, as JSON: "),
            ("\x153", "done: "),
            (
                "",
                "│ to = 'bob'\n│ copies = 3\n│ text (left out by the script) = ''\n",
            ),
        ):
            terminal.send(f"{typed}\n")
            terminal.expect(shown)
        terminal.expect(SEND)
        assert sent(here) == []
        terminal.send("a\n")
        assert terminal.wait() == 0
    assert sent(here) == ["bob: "] * 3


def test_first_ctrl_c_at_a_question_rejects_and_second_interrupts_the_run(here):
    script = "try:\n    await send('ada')\nexcept ApprovalRejected as no:\n    print('told:', no)"
    with start(here, f"{script}\nawait send('bob')", flags=("-v",)) as terminal:
        terminal.expect(SEND)
        terminal.send("\x03")
        terminal.expect("rejected")
        terminal.expect(SEND)
        terminal.send("\x03")
        assert terminal.wait() == 130
    assert "stopped · " in terminal.text
    assert "Traceback" not in terminal.text
    assert sent(here) == []


def test_second_signal_at_a_question_restores_the_terminal(here):
    """Let the second signal end the process at once, in the middle of a question."""
    answers = write_recording(here / "answers.jsonl", "await send('ada')")
    command = f"trap : INT; {DELF} run x --tools tools.py --llm {answers}; stty -a; echo ended"
    shell = ("sh", "-c", command)
    with TerminalProcess(shell, env=environment(), cwd=here, columns=100) as terminal:
        terminal.expect(SEND)
        terminal.send("e\n")
        terminal.expect("done: ")
        delf = _child_of(terminal.process.pid)
        for number in (signal.SIGTERM, signal.SIGINT):  # two of the same would count as one
            os.kill(delf, number)
        assert "intr = ^C;" in terminal.expect("ended\n")
    assert sent(here) == []


def _child_of(pid: int) -> int:
    """Return the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_ctrl_c_interrupts_the_running_task(here):
    with start(here, "print(1)\nawait asyncio.sleep(60)", flags=("-v",)) as terminal:
        terminal.expect("sandbox local")
        terminal.send("\x03")
        assert terminal.wait() == 130
    assert "stopped · " in terminal.text
    assert "Traceback" not in terminal.text
    assert sent(here) == []


def test_terminal_question_ends_when_its_request_expires(here):
    script = (
        "try:\n    await send('ada')\nexcept ApprovalRejected as no:\n    print('told:', no)\n"
        "print(await send('bob'))"
    )
    flags = ("--set", "agent.approval_timeout=1")
    with start(here, script, flags=flags) as terminal:
        terminal.expect(SEND)
        terminal.expect("no answer is needed any more")
        assert "to = 'bob'" in terminal.expect(SEND)
        terminal.send("a\n")
        assert terminal.wait() == 0
    assert sent(here) == ["bob: "]
    assert "nobody answered within 1 s" in terminal.text
