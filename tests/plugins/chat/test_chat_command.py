"""``delf chat`` on a terminal of its own, and with pipes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, Chat, load_project
from support.program import DELF, environment, start, write_recording
from support.program import delf as run_delf
from support.terminal import TerminalProcess

pytestmark = pytest.mark.timeout(90)

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


def variables_of(here: Path) -> dict[str, str]:
    places = {"HOME": str(here), "XDG_DATA_HOME": str(here / "data")}
    return environment(**places, PROMPT_TOOLKIT_NO_CPR="1")


class Talk:
    """A terminal with the prompt of `delf chat`."""

    def __init__(self, terminal: TerminalProcess) -> None:
        self.terminal = terminal
        self.expect, self.send = terminal.expect, terminal.send
        terminal.expect(PROMPT)

    def say(self, text: str, *shown: str) -> str:
        """Type a line at the prompt, and wait for texts in order; return the output up to them."""
        self.send(f"{text}{ENTER}")
        return "".join([self.expect(wanted) for wanted in shown])

    def then(self, text: str, *shown: str) -> str:
        """Wait for the next prompt, then do the same as :meth:`say`."""
        self.expect(PROMPT)
        return self.say(text, *shown)

    def leave(self) -> int:
        """Press Ctrl-D at the next prompt; return the exit status."""
        self.expect(PROMPT)
        self.send(CTRL_D)
        return self.terminal.wait()

    @property
    def text(self) -> str:
        return self.terminal.text


@pytest.fixture
def talk(here: Path) -> Iterator[Callable[..., Talk]]:
    """Start `delf chat`, or another command, on a terminal, and wait for its prompt."""
    with contextlib.ExitStack() as stack:

        def start(
            *scripts: str, flags: tuple[str, ...] = (), command: Sequence[str | Path] = ()
        ) -> Talk:
            llm = write_recording(here / "answers.jsonl", *scripts, cost_usd=0.01)
            words = command or [DELF, "chat", "--tools", "tools.py", "--llm", llm, *flags]
            terminal = TerminalProcess(words, env=variables_of(here), cwd=here)
            return Talk(stack.enter_context(terminal))

        yield start


def typed(here: Path) -> list[str]:
    """Return the lines of the history file, without times."""
    text = (here / "data/delf/chat_history").read_text()
    return [line[1:] for line in text.splitlines() if line.startswith("+")]


class TestTasks:
    def test_chat_command_runs_tasks_in_one_conversation(self, talk: Any, here: Any):
        chat = talk("print('hello Ada')", "print('you are Ada')")
        assert "conversation 20" in " ".join(chat.text.split())
        assert "$0.0100 · 1 model call" in chat.say("I am Ada", "hello Ada", "0 tool calls")
        chat.then("who am I?", "you are Ada")
        assert chat.leave() == 0
        assert "2 tasks · $0.0200" in chat.text
        assert chat.text.count("warning:") <= 1  # each appears once a session
        assert typed(here) == ["I am Ada", "who am I?"]

    @pytest.mark.parametrize("word", ["exit", "Quit"])
    def test_exit_word_is_not_run_as_a_task(self, talk: Any, here: Any, word: Any):
        chat = talk("print('one')")
        chat.send(f"{word}{ENTER}")
        assert chat.terminal.wait() == 0
        assert "0 tasks" in chat.text

    def test_input_history_is_private_and_recalled_by_arrow_up(self, talk: Any, here: Any):
        chat = talk("print('one')")
        chat.say("say it", "done · ")
        assert chat.leave() == 0
        assert stat.S_IMODE((here / "data/delf/chat_history").stat().st_mode) == 0o600
        chat = talk("print('again')")
        chat.send("\x1b[A")
        chat.expect("say it")
        chat.say("", "again")
        assert chat.leave() == 0

    @pytest.mark.parametrize(
        "text",
        [f"first{ALT_ENTER}second", f"first\\{ENTER}second", "\x1b[200~first\nsecond\x1b[201~"],
        ids=["alt", "backslash", "pasted"],
    )
    def test_chat_command_takes_several_lines_as_one_task(self, talk: Any, here: Any, text: Any):
        chat = talk("print('done it')")
        chat.say(text, "done it")
        assert chat.leave() == 0
        assert typed(here) == ["first", "second"]
        assert chat.text.count("1 model call") == 1

    def test_failed_task_does_not_end_the_chat(self, talk: Any):
        chat = talk("1 / 0", "print('fine')", flags=("--set", "agent.retry_count=0"))
        assert "ZeroDivisionError" in chat.say("break", "failed · ")
        chat.then("mend", "fine")
        assert chat.leave() == 0


class TestInterrupts:
    def test_ctrl_c_stops_the_task_but_not_the_chat(self, talk: Any):
        chat = talk("print('half')\nawait hold()", "print('still here')", flags=("-v",))
        chat.say("wait", "→ 1 hold")
        chat.send(CTRL_C)
        assert "printed before it was stopped:\n  half\n" in chat.expect("stopped · ")
        chat.then("go on", "still here")
        shown = chat.then("/history", "still here")
        assert "user: wait\n" in shown
        assert "assistant: half\n" in shown
        assert "(This task was not completed: " in shown
        chat.then("/cost", "2 tasks · $0.0200")  # the one that was stopped, too
        assert chat.leave() == 0
        assert "Traceback" not in chat.text

    def test_ctrl_c_while_asked_for_approval_rejects(self, talk: Any, here: Any):
        chat = talk("await send('ada')", "print('another way')")
        chat.say("write", "? help\n> ")
        chat.send(CTRL_C)
        chat.expect("rejected\n")
        chat.expect("error: send was rejected: no reason was given")
        chat.then("then what?", "another way")
        assert chat.leave() == 0
        assert not (here / "sent.txt").exists()

    def test_ctrl_c_while_typing_drops_the_line(self, talk: Any, here: Any):
        chat = talk("print('hello')")
        chat.send("this is wro")
        chat.expect("wro")
        chat.send(CTRL_C)
        chat.then("hi", "hello")
        assert chat.leave() == 0
        assert typed(here) == ["hi"]

    @pytest.mark.parametrize("busy", [True, False], ids=["in a task", "at the prompt"])
    def test_sigterm_ends_the_chat_cleanly(self, talk: Any, busy: Any):
        chat = talk("await hold()", flags=("-v",))
        if busy:
            chat.say("wait", "→ 1 hold")
        os.kill(chat.terminal.process.pid, signal.SIGTERM)
        assert chat.terminal.wait() == 128 + signal.SIGTERM
        assert "Traceback" not in chat.text

    def test_killed_task_is_resumed_in_its_conversation(self, talk: Any, here: Any):
        chat = talk("print('hello Ada')", "await hold()", flags=("-v", "--conversation", "c"))
        chat.say("I am Ada", "hello Ada")
        chat.then("wait", "→ 1 hold")
        os.kill(chat.terminal.process.pid, signal.SIGKILL)
        chat.terminal.wait()
        (here / "tools.py").write_text(TOOLS.replace("sleep(600)", "sleep(0)"))
        env = variables_of(here)
        (task,) = json.loads(
            run_delf("runs", "list", "--state", "interrupted", "--json", cwd=here, env=env).stdout
        )
        done = run_delf("resume", task["task_id"], "--settle", "again", cwd=here, env=env)
        assert done.returncode == 0, done.stderr
        flags = ("--last", "--llm", f"recorded:{here / 'answers.jsonl'}")
        shown = run_delf("chat", *flags, cwd=here, stdin="/history\n", env=env).stderr
        assert [line for line in shown.splitlines() if line.startswith("user: ")] == [
            "user: I am Ada",
            "user: wait",
        ], done.stderr


class TestCommands:
    def test_slash_commands_show_costs_and_clear_the_screen(self, talk: Any):
        chat = talk("print('one')", flags=("--set", "budget_usd=0.5"))  # begins again, too
        chat.say("/histroy", "unknown command '/histroy'; did you mean '/history'?")
        chat.then("first", "done · ")
        chat.then("/cost", "1 task · $0.0100", "budget $0.5: $0.4900 left, $0.0100 spent")
        chat.then("/stop", "stopped; the next task starts it again")
        chat.then("second", "one\n", "done · ")
        chat.then("/clear")
        chat.say("/cost", "2 tasks")
        assert chat.leave() == 0
        assert "\x1b[2J" in chat.terminal.raw

    def test_help_command_lists_slash_commands_and_completion_works(self, talk: Any):
        chat = talk()
        shown = chat.say("/help", "Ctrl-D leaves.")
        for name in ("/new", "/history", "/cost", "/clear", "/stop", "/exit"):
            assert f"  {name} " in shown
        chat.expect(PROMPT)
        chat.send("/hi\t")
        chat.expect("/history")
        chat.send(CTRL_C)
        chat.then("/exit")
        assert chat.terminal.wait() == 0

    def test_conversations_can_be_created_listed_and_opened(self, talk: Any, here: Any):
        chat = talk("print('in a')", "print('in b')", flags=("--conversation", "a"))
        chat.say("one", "done · ")
        chat.then("/new b", "conversation b\n")
        chat.then("two", "done · ")
        shown = chat.then("/list", "2 messages  one")
        assert re.search(r"\* b .* 2 messages  two\na ", shown)
        chat.then("/open a", "conversation a, 2 messages")
        chat.then("/open z", "there is no conversation 'z'")
        assert chat.leave() == 0
        listed = run_delf("chat", "list", cwd=here, env=variables_of(here))
        assert re.search(r"\nb .* 2 messages  two\na ", listed.stdout), listed.stderr


class TestPipes:
    @pytest.fixture
    def chat(self, here: Any):
        """Run `delf chat` with lines on its standard input."""

        def run(stdin: Any, *scripts: Any, flags: Any = ("--conversation", "p"), env: Any = None):
            llm = write_recording(here / "answers.jsonl", *scripts)
            surrounding: dict[str, str] = {**variables_of(here), **(env or {})}
            return run_delf("chat", "--llm", llm, *flags, cwd=here, stdin=stdin, env=surrounding)

        return run

    @pytest.fixture
    def conversations(self, here: Any):
        """Run `delf chat list | delete | prune`."""

        def run(*arguments: Any):
            return run_delf("chat", *arguments, cwd=here, env=variables_of(here))

        return run

    def test_piped_chat_runs_each_line_as_a_task(self, chat: Any):
        lines = "\ufeffone\r\n\n/etc/hosts is what?"
        done = chat(lines, "print('first')", "print('second')")
        assert (done.returncode, done.stdout) == (0, "first\nsecond\n"), done.stderr
        assert PROMPT not in done.stderr
        assert "user: one\n" in chat("/history\n").stderr

    def test_failed_task_in_a_pipe_sets_status_1(self, chat: Any):
        flags = ("--set", "agent.retry_count=0")
        done = chat("one\ntwo\n", "1 / 0", "print('second')", flags=flags)
        assert (done.returncode, done.stdout) == (1, "second\n")

    def test_json_chat_writes_one_line_per_task(self, chat: Any):
        flags = ("--json", "--conversation", "p", "--set", "agent.retry_count=0")
        done = chat("one\n/new q\ntwo\n", "print('a\\nb')", "1 / 0", flags=flags)
        assert done.returncode == 1
        first, second = map(json.loads, done.stdout.splitlines())
        assert (first["conversation"], first["status"], first["text"]) == ("p", True, "a\nb")
        assert first["trace"]["task"] == "one"
        assert (second["conversation"], second["status"]) == ("q", False)
        assert "ZeroDivisionError" in second["error"]

    def test_chat_command_ends_when_its_output_is_closed(self, here: Any):
        llm = write_recording(here / "answers.jsonl", "print('first')", "print('second')")
        command = [DELF, "chat", "--llm", llm, "--json"]
        with start(
            command,
            cwd=here,
            env=variables_of(here),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == "first"
            process.stdout.close()
            process.stdin.write(b"two\n")
            process.stdin.flush()
            assert process.wait(60) == 141

    def test_conversations_can_be_deleted_by_id(self, chat: Any, conversations: Any):
        lines = "one\n/new a\ntwo\n/new\tb\nthree\n"
        chat(lines, *["print('done')"] * 3, flags=("--conversation", "c"))
        wrong = conversations("delete", "a", "z")
        assert wrong.returncode == 1
        assert "there is no conversation 'z'" in wrong.stderr
        done = conversations("delete", "a", "b", "a")
        assert (done.returncode, done.stdout) == (0, "2 conversations with 4 messages forgotten\n")
        (left,) = json.loads(conversations("list", "--json").stdout)
        assert left["conversation"] == "c"

    def test_old_conversations_can_be_pruned(self, chat: Any, conversations: Any):
        chat("one\n/new b\ntwo\n", *["print('done')"] * 2, flags=("--conversation", "a"))
        assert json.loads(conversations("prune", "--json").stdout) == {
            "dry_run": False,
            "conversations": [],
            "messages": 0,
        }
        message = conversations("prune", "--older-than", "0s", "--dry-run")
        assert message.stdout == "a\nb\n"
        assert message.stderr == "2 conversations with 4 messages would be forgotten\n"
        dry = json.loads(conversations("prune", "--keep", "1", "--dry-run", "--json").stdout)
        assert dry["dry_run"] is True
        assert [k["conversation"] for k in dry["conversations"]] == ["a"]
        done = conversations("prune", "--keep", "1")
        assert done.stdout == "1 conversation with 2 messages forgotten\n"
        (left,) = json.loads(conversations("list", "--json").stdout)
        assert left["conversation"] == "b"
        assert conversations("prune", "--older-than", "soon").returncode == 2

    def test_last_continues_only_a_conversation_of_the_project(
        self, here: Any, monkeypatch: pytest.MonkeyPatch
    ):
        env = {**variables_of(here), "DELF_TRUST": str(here)}
        llm = write_recording(here / "answers.jsonl", "print('done')")
        for name in ("one", "two"):
            (here / name).mkdir()
            (here / name / "delf.toml").write_text("[agent]\n")

        def chat(folder: str, *flags: str) -> str:
            """Run a task in a folder, then show the messages of its conversation."""
            command = ("chat", "--llm", llm, *flags)
            done = run_delf(*command, cwd=here / folder, stdin=f"in {folder}\n/history\n", env=env)
            assert done.returncode == 0, done.stderr
            return done.stderr

        chat("one", "--conversation", "a")
        other = chat("two", "--last")
        assert "this project has no conversation yet" in other
        assert "in one" not in other
        again = chat("one", "--last")  # although the newest conversation of all is another one
        assert again.count("user: in one") == 2
        assert "in two" not in again
        monkeypatch.setenv("XDG_DATA_HOME", env["XDG_DATA_HOME"])
        project = load_project(here / "one", environ=env, trust=True)
        with Agent.from_project(project, llm=llm, chat=Chat(persist=True)) as agent:
            agent.run("in one", conversation_id="ann|b")  # as delf serve stores one of Ann's
        assert chat("one", "--last").count("user: in one") == 3
        anywhere = chat(".", "--last")
        assert anywhere.count("user: in one") == 3

    @pytest.mark.parametrize("option", ["--set=agent.timeout=1", "--json", "--last"])
    def test_chat_options_are_refused_before_a_subcommand(self, here: Any, option: Any):
        done = run_delf("chat", option, "list", cwd=here)
        assert done.returncode == 2
        assert "delf chat list --help" in done.stderr

    def test_conversations_of_a_program_are_listed_by_namespace(
        self, here: Any, conversations: Any
    ):
        path = here / "data/delf/journal.db"
        with Chat(persist=True, path=path, namespace="shop", conversation_id="a") as chat:
            chat.append("user", "hello")
        assert conversations("list").stdout == ""
        ours = ("--namespace", "shop")
        (one,) = json.loads(conversations("list", *ours, "--json").stdout)
        assert one["conversation"] == "a"
        assert conversations("delete", "a").returncode == 1
        assert conversations("delete", "a", *ours).returncode == 0
        assert conversations("list", *ours).stdout == ""
        assert conversations("list", "--namespace", " ").returncode == 2

    def test_conversation_list_escapes_control_codes(self, chat: Any, conversations: Any):
        chat("on\x1b[31me\n", "print('first')", flags=("--conversation", "a\x1b[2J\nb"))
        listed = conversations("list").stdout
        assert "\na\\x1b[2J b " in listed
        assert listed.endswith("on\\x1b[31me\n")

    def test_conversation_without_a_journal_is_not_stored(self, chat: Any, conversations: Any):
        flags = ("--journal", "none")
        done = chat("one\n/history\n", "print('first')", flags=flags)
        assert done.returncode == 0
        assert "assistant: first\n" in done.stderr
        assert json.loads(conversations("list", "--json").stdout) == []

    def test_unwritable_journal_keeps_the_chat_in_memory(self, chat: Any, tmp_path: Path):
        (tmp_path / "file").touch()
        env = {"XDG_DATA_HOME": str(tmp_path / "file")}
        done = chat("one\n/history\n", "print('first')", flags=(), env=env)
        assert (done.returncode, done.stdout) == (0, "first\n")
        assert "nothing of this task is kept" in done.stderr
        assert "assistant: first\n" in done.stderr
        wanted = chat("one\n", "print('first')", env=env)
        last = chat("one\n", "print('first')", flags=("--last",), env=env)
        for done in (wanted, last):
            assert (done.returncode, done.stdout) == (2, "")
            assert "cannot be opened" in done.stderr

    def test_chat_command_ends_without_standard_input(self, here: Any):
        llm = write_recording(here / "answers.jsonl")
        command = f"exec {shlex.quote(str(DELF))} chat --llm {shlex.quote(llm)} <&-"
        done = subprocess.run(
            ["sh", "-c", command], cwd=here, env=variables_of(here), capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "Traceback" not in done.stderr


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
    def test_run_chat_resumes_the_interrupted_task(self, talk: Any, here: Any, before: Any):
        scripts = ["print('hello')", "await hold()", "print('after all')"]
        scripts = ["print('before')", *scripts] if before else scripts
        llm = f"recorded:{here / 'answers.jsonl'}"
        (here / "talk.py").write_text(
            PROGRAM.format(llm=llm, before=before, options="verbose=True")
        )
        chat = talk(*scripts, command=[sys.executable, "talk.py"])
        chat.say("hi", "hello")
        chat.then("/cost", "1 task · $0.0100")  # of this session
        chat.then("wait", "→ 1 hold")
        chat.send(CTRL_C)
        chat.expect("stopped · ")
        chat.then("/exit", "messages: ")
        # One that was stopped begins its recording again.
        chat.expect("after all" if before else "hello")
        assert chat.terminal.wait() == 0
        assert "Traceback" not in chat.text
