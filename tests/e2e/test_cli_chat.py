"""``delf chat`` on a terminal of its own, and with pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from support.program import DELF, environment, write_recording
from support.program import delf as run_delf
from support.terminal import TerminalProcess

ENTER = "\r"
ALT_ENTER = "\x1b\r"
CTRL_C = "\x03"
CTRL_D = "\x04"
PROMPT = "› "
TOOLS = '''
import asyncio
from delf import tool

@tool(confirm=False)
async def hold() -> None:
    """Wait."""
    await asyncio.sleep(600)

@tool(effect="irreversible")
def send(to: str) -> str:
    """Send."""
    with open("sent.txt", "a") as file:
        file.write(to + "\\n")
    return "sent to " + to
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def surroundings(here: Path) -> dict[str, str]:
    places = {"HOME": str(here), "XDG_DATA_HOME": str(here / "data")}
    return environment(**places, PROMPT_TOOLKIT_NO_CPR="1")


def start(here: Path, *scripts: str, flags: tuple[str, ...] = ()) -> TerminalProcess:
    llm = write_recording(here / "answers.jsonl", *scripts, cost_usd=0.01)
    command = [DELF, "chat", "--tools", "tools.py", "--llm", llm, *flags]
    return TerminalProcess(command, env=surroundings(here), cwd=here)


def leave(terminal: TerminalProcess) -> int:
    terminal.expect(PROMPT)
    terminal.send(CTRL_D)
    return terminal.wait()


def typed(here: Path) -> list[str]:
    """What the history remembers, without times."""
    text = (here / "data/delf/chat_history").read_text()
    return [line[1:] for line in text.splitlines() if line.startswith("+")]


class TestTasks:
    def test_a_task_its_answer_and_the_next(self, here):
        with start(here, "print('hello Ada')", "print('you are Ada')") as terminal:
            assert "conversation 20" in terminal.expect(PROMPT)
            terminal.send(f"I am Ada{ENTER}")
            terminal.expect("hello Ada")
            assert "$0.0100 · 1 model call" in terminal.expect("0 tool calls")
            terminal.expect(PROMPT)
            terminal.send(f"who am I?{ENTER}")
            terminal.expect("you are Ada")
            assert leave(terminal) == 0
        assert "2 tasks · $0.0200" in terminal.text
        assert terminal.text.count("warning:") <= 1  # each is said once a session
        assert typed(here) == ["I am Ada", "who am I?"]

    def test_the_history_is_private_and_comes_back_with_up(self, here):
        with start(here, "print('one')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"say it{ENTER}")
            terminal.expect("done · ")
            assert leave(terminal) == 0
        assert stat.S_IMODE((here / "data/delf/chat_history").stat().st_mode) == 0o600
        with start(here, "print('again')") as terminal:
            terminal.expect(PROMPT)
            terminal.send("\x1b[A")
            terminal.expect("say it")
            terminal.send(ENTER)
            terminal.expect("again")
            assert leave(terminal) == 0

    @pytest.mark.parametrize("newline", [ALT_ENTER, f"\\{ENTER}"], ids=["alt", "backslash"])
    def test_several_lines_are_one_task(self, here, newline):
        with start(here, "print('done it')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"first{newline}second{ENTER}")
            terminal.expect("done it")
            assert leave(terminal) == 0
        assert typed(here) == ["first", "second"]
        assert terminal.text.count("1 model call") == 1

    def test_what_is_pasted_is_one_task(self, here):
        with start(here, "print('done it')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"\x1b[200~first\nsecond\nthird\x1b[201~{ENTER}")
            terminal.expect("done it")
            assert leave(terminal) == 0
        assert typed(here) == ["first", "second", "third"]

    def test_a_path_is_no_command(self, here):
        with start(here, "print('a file')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"/etc/hosts is what?{ENTER}")
            terminal.expect("a file")
            assert leave(terminal) == 0

    def test_a_task_that_fails_is_not_the_end(self, here):
        flags = ("--set", "agent.retry_count=0")
        with start(here, "1 / 0", "print('fine')", flags=flags) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"break{ENTER}")
            assert "ZeroDivisionError" in terminal.expect("failed · ")
            terminal.expect(PROMPT)
            terminal.send(f"mend{ENTER}")
            terminal.expect("fine")
            assert leave(terminal) == 0

    def test_approvals_are_asked_for_in_between(self, here):
        with start(here, "print(await send('ada'))", "print('next')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"write to Ada{ENTER}")
            terminal.expect("? help\n> ")
            terminal.send("a\n")
            terminal.expect("sent to ada")
            terminal.expect(PROMPT)
            terminal.send(f"go on{ENTER}")
            terminal.expect("next")
            assert leave(terminal) == 0
        assert (here / "sent.txt").read_text() == "ada\n"


class TestInterrupts:
    def test_ctrl_c_stops_the_task_and_not_the_session(self, here):
        scripts = ("await hold()", "print('still here')")
        with start(here, *scripts, flags=("-v",)) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"wait{ENTER}")
            terminal.expect("→ 1 hold")
            terminal.send(CTRL_C)
            terminal.expect("stopped\n")
            terminal.expect(PROMPT)
            terminal.send(f"go on{ENTER}")
            terminal.expect("still here")
            terminal.expect(PROMPT)
            terminal.send(f"/history{ENTER}")
            shown = terminal.expect("still here")
            assert "user: wait\n" in shown
            assert "assistant: (This task was not completed: " in shown
            assert leave(terminal) == 0
        assert "Traceback" not in terminal.text

    def test_ctrl_c_while_asked_for_approval(self, here):
        with start(here, "await send('ada')", "print('still here')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"write{ENTER}")
            terminal.expect("? help\n> ")
            terminal.send(CTRL_C)
            terminal.expect("stopped\n")
            terminal.expect(PROMPT)
            terminal.send(f"go on{ENTER}")
            terminal.expect("still here")
            assert leave(terminal) == 0
        assert not (here / "sent.txt").exists()

    def test_ctrl_c_while_typing_drops_the_line(self, here):
        with start(here, "print('hello')") as terminal:
            terminal.expect(PROMPT)
            terminal.send("this is wro")
            terminal.expect("wro")
            terminal.send(CTRL_C)
            terminal.expect(PROMPT)
            terminal.send(f"hi{ENTER}")
            terminal.expect("hello")
            assert leave(terminal) == 0
        assert typed(here) == ["hi"]

    @pytest.mark.parametrize("busy", [True, False], ids=["in a task", "at the prompt"])
    def test_sigterm_ends_it_in_order(self, here, busy):
        with start(here, "await hold()", flags=("-v",)) as terminal:
            terminal.expect(PROMPT)
            if busy:
                terminal.send(f"wait{ENTER}")
                terminal.expect("→ 1 hold")
            os.kill(terminal.process.pid, signal.SIGTERM)
            assert terminal.wait() == 128 + signal.SIGTERM
        assert "Traceback" not in terminal.text


class TestCommands:
    def test_help_exit_and_completion(self, here):
        with start(here) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"/help{ENTER}")
            shown = terminal.expect("Ctrl-D leaves.")
            for name in ("/new", "/history", "/cost", "/clear", "/stop", "/exit"):
                assert f"  {name} " in shown
            terminal.expect(PROMPT)
            terminal.send("/hi\t")
            terminal.expect("/history")
            terminal.send(CTRL_C)
            terminal.expect(PROMPT)
            terminal.send(f"/exit{ENTER}")
            assert terminal.wait() == 0

    def test_an_unknown_one_gets_a_suggestion(self, here):
        with start(here) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"/histroy{ENTER}")
            terminal.expect("unknown command '/histroy'; did you mean '/history'?")
            assert leave(terminal) == 0

    def test_clear_clears_the_screen(self, here):
        with start(here) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"/clear{ENTER}")
            terminal.send(f"/cost{ENTER}")
            terminal.expect("0 tasks")
            assert leave(terminal) == 0
        assert "\x1b[2J" in terminal.raw

    def test_stop_frees_and_the_next_task_starts_again(self, here):
        with start(here, "print('one')") as terminal:  # a recording begins again, too
            terminal.expect(PROMPT)
            terminal.send(f"first{ENTER}")
            terminal.expect("done · ")
            terminal.expect(PROMPT)
            terminal.send(f"/stop{ENTER}")
            terminal.expect("stopped; the next task starts it again")
            terminal.expect(PROMPT)
            terminal.send(f"second{ENTER}")
            terminal.expect("one\n")
            terminal.expect("done · ")
            assert leave(terminal) == 0

    def test_conversations_are_made_listed_opened_and_forgotten(self, here):
        scripts = ("print('in a')", "print('in b')")
        with start(here, *scripts, flags=("--conversation", "a")) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"one{ENTER}")
            terminal.expect("done · ")
            terminal.expect(PROMPT)
            terminal.send(f"/new b{ENTER}")
            terminal.expect("conversation b\n")
            terminal.expect(PROMPT)
            terminal.send(f"two{ENTER}")
            terminal.expect("done · ")
            terminal.expect(PROMPT)
            terminal.send(f"/list{ENTER}")
            assert re.search(r"\* b .* 2 messages  two\n  a ", terminal.expect("2 messages  one"))
            terminal.expect(PROMPT)
            terminal.send(f"/open a{ENTER}")
            terminal.expect("conversation a, 2 messages")
            terminal.expect(PROMPT)
            terminal.send(f"/forget{ENTER}")
            terminal.expect("forgotten")
            terminal.expect(PROMPT)
            terminal.send(f"/history{ENTER}")
            terminal.expect("nothing was said yet")
            terminal.expect(PROMPT)
            terminal.send(f"/open z{ENTER}")
            terminal.expect("there is no conversation 'z'")
            assert leave(terminal) == 0
        listed = run_delf("chat", "--list", cwd=here, env=surroundings(here))
        assert re.fullmatch(r"b  .* 2 messages  two\n", listed.stdout), listed.stderr

    def test_cost_and_code(self, here):
        with start(here, "print('one')") as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"first{ENTER}")
            terminal.expect("done · ")
            terminal.expect(PROMPT)
            terminal.send(f"/cost{ENTER}")
            terminal.expect("1 task · $0.0100 · ")
            terminal.expect(PROMPT)
            terminal.send(f"/code{ENTER}")
            terminal.expect("script 1")
            terminal.expect("print('one')")
            assert leave(terminal) == 0


class TestPipes:
    def chat(self, here: Path, stdin: str, *scripts: str, flags: tuple[str, ...] = ()):
        llm = write_recording(here / "answers.jsonl", *scripts)
        command = ("chat", "--llm", llm, "--conversation", "p", *flags)
        return run_delf(*command, cwd=here, stdin=stdin, env=surroundings(here))

    def test_each_line_is_a_task(self, here):
        done = self.chat(here, "one\n\ntwo\n", "print('first')", "print('second')")
        assert (done.returncode, done.stdout) == (0, "first\nsecond\n"), done.stderr
        assert PROMPT not in done.stderr

    def test_it_goes_on_later_and_is_listed(self, here):
        self.chat(here, "one\n", "print('first')")
        last = run_delf(
            "chat",
            "--last",
            "--llm",
            write_recording(here / "more.jsonl", "print('second')"),
            cwd=here,
            stdin="two\n/history\n",
            env=surroundings(here),
        )
        assert "assistant: first\n" in last.stderr
        listed = run_delf("chat", "--list", "--json", cwd=here, env=surroundings(here))
        (record,) = json.loads(listed.stdout)
        assert (record["conversation"], record["messages"], record["title"]) == ("p", 4, "one")

    def test_a_task_that_fails_gives_status_1_and_the_next_is_done(self, here):
        flags = ("--set", "agent.retry_count=0")
        done = self.chat(here, "one\ntwo\n", "1 / 0", "print('second')", flags=flags)
        assert (done.returncode, done.stdout) == (1, "second\n")

    def test_nothing_is_listed_where_nothing_is(self, here):
        listed = run_delf("chat", "--list", cwd=here, env=surroundings(here))
        assert (listed.returncode, listed.stdout) == (0, "")
        assert "There is no conversation yet" in listed.stderr

    @pytest.mark.parametrize(
        ("flags", "says"),
        [
            (("--last", "--conversation", "x"), "exclude each other"),
            (("--json",), "--json goes with --list"),
        ],
    )
    def test_wrong_usage(self, here, flags, says):
        done = run_delf("chat", *flags, cwd=here, env=surroundings(here))
        assert done.returncode == 2
        assert says in done.stderr


PROGRAM = """
from delf import Agent, Chat
import tools

agent = Agent(tools=[tools.hold], llm={llm!r}, chat=Chat(), sandbox="local")
{before}
agent.run_chat({options})
print("messages:", len(agent.chat))
print(agent.run("afterwards").text)
agent.stop()
"""


class TestRunChat:
    @pytest.mark.parametrize("before", ["", "agent.run('before')"], ids=["new", "started"])
    def test_a_program_talks_and_goes_on(self, here, before):
        scripts = ["print('hello')", "await hold()", "print('after all')"]
        scripts = ["print('before')", *scripts] if before else scripts
        llm = write_recording(here / "answers.jsonl", *scripts)
        (here / "talk.py").write_text(
            PROGRAM.format(llm=llm, before=before, options="verbose=True")
        )
        command = [sys.executable, "talk.py"]
        with TerminalProcess(command, env=surroundings(here), cwd=here) as terminal:
            terminal.expect(PROMPT)
            terminal.send(f"hi{ENTER}")
            terminal.expect("hello")
            terminal.expect(PROMPT)
            terminal.send(f"wait{ENTER}")
            terminal.expect("→ 1 hold")
            terminal.send(CTRL_C)
            terminal.expect("stopped\n")
            terminal.expect(PROMPT)
            terminal.send(f"/exit{ENTER}")
            terminal.expect("messages: ")
            # One that was stopped begins its recording again.
            terminal.expect("after all" if before else "hello")
            assert terminal.wait() == 0
        assert "Traceback" not in terminal.text

    def test_inside_an_event_loop_it_says_what_to_call(self, here):
        (here / "talk.py").write_text(
            "import asyncio\nfrom delf import Agent\n"
            "async def main():\n    Agent(llm='x').run_chat()\n"
            "asyncio.run(main())\n"
        )
        with TerminalProcess(
            [sys.executable, "talk.py"], env=surroundings(here), cwd=here
        ) as terminal:
            assert terminal.wait() == 1
        assert (
            "await agent.arun_chat()" in terminal.text or "run_chat() was called" in terminal.text
        )

    def test_without_the_editor_the_package_is_named(self, here):
        (here / "prompt_toolkit.py").write_text("raise ImportError('not here')")
        (here / "talk.py").write_text(
            "from delf import Agent, OptionalDependencyError\n"
            "try:\n    Agent(llm='x').run_chat()\n"
            "except OptionalDependencyError as error:\n    print(error.code, error.package)\n"
        )
        with TerminalProcess(
            [sys.executable, "talk.py"], env=surroundings(here), cwd=here
        ) as terminal:
            assert terminal.wait() == 0
        assert "ERR-REQ-001 delf[chat]" in terminal.text
