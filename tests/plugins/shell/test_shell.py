"""Commands, the approvals they need, and the display of their requests."""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf import Agent
from delf import events as ev
from delf.errors import ConnectionConfigurationError, DelfError
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf_shell import Shell
from delf_shell.parse import parse
from support.until import until


def verdict(shell: Shell, command: str, **arguments: str) -> Verdict:
    return shell.check(ProposedCall(action="run", arguments={"command": command, **arguments}))


async def test_command_runs_without_a_shell(shell: Shell) -> None:
    result = await shell.run("cat plan.md")
    assert result == {"status": 0, "stdout": "one\ntwo\n", "stderr": "", "truncated": False}
    assert (await shell.run("echo 'a  b' \"c d\" e\\ f"))["stdout"] == "a  b c d e f\n"
    assert (await shell.run("echo '$HOME' '*' '`x`'"))["stdout"] == "$HOME * `x`\n"


async def test_pipes_and_operators_are_supported(shell: Shell) -> None:
    assert (await shell.run("cat plan.md | grep two | wc -l"))["stdout"].strip() == "1"
    assert (await shell.run("false && echo a || echo b; echo c"))["stdout"] == "b\nc\n"
    assert (await shell.run("true || echo a && echo b"))["stdout"] == "b\n"
    result = await shell.run("cat nothing.md; false")
    assert result["status"] == 1
    assert "nothing.md" in result["stderr"]


async def test_reader_that_ends_early_ends_its_writer(shell: Shell) -> None:
    assert (await shell.run("yes | head -n 2", timeout=10))["stdout"] == "y\ny\n"


async def test_output_is_bounded(folder: Path) -> None:
    shell = Shell(folder=folder, max_output_bytes=1000, default={"approval_required": False})
    result = await shell.run("head -c 5000000 /dev/zero")
    assert len(result["stdout"]) == 1000
    assert result["truncated"]


@pytest.mark.slow
async def test_killed_command_ends_its_subprocesses(folder: Path) -> None:
    shell = Shell(folder=folder, default={"approval_required": False})
    program = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    with pytest.raises(DelfError, match=r"killed after 5 seconds; it had written: \d+") as error:
        await shell.run(f'python3 -c "{program}"', timeout=5)
    pid = int(error.value.message.split("had written: ")[1].split()[0])
    await until(lambda: not _alive(pid))


async def test_timeout_of_zero_leaves_no_time(folder: Path) -> None:
    shell = Shell(folder=folder, default={"approval_required": False})
    with pytest.raises(DelfError, match="killed after 0 seconds"):
        await shell.run("sleep 60", timeout=0)


async def test_killed_command_reports_nothing_after_its_end(folder: Path) -> None:
    shell = Shell(folder=folder, default={"approval_required": False})
    reports: list[str] = []
    context: Any = SimpleNamespace(say=reports.append)
    with pytest.raises(DelfError, match="killed after 1 seconds"):
        await shell.run("sh -c 'while :; do echo 1; sleep 0.01; done'", timeout=1, context=context)
    count = len(reports)
    end = time.monotonic()
    await until(lambda: time.monotonic() > end + 0.3)
    assert len(reports) == count > 0


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_cancelled_command_is_killed(folder: Path) -> None:
    shell = Shell(folder=folder, default={"approval_required": False})
    pidfile = folder / "pid"
    running = asyncio.ensure_future(
        shell.run(
            f"python3 -c \"import os, time; open('{pidfile}', 'w').write(str(os.getpid())); time.sleep(60)\""
        )
    )
    await until(lambda: pidfile.exists() and pidfile.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not _alive(int(pidfile.read_text()))


async def test_run_leaves_no_descriptor(shell: Shell) -> None:
    await shell.run("echo a | cat | cat")
    before = len(os.listdir("/proc/self/fd"))
    for command in ("echo a | cat", "echo a | nothing-here", "nothing-here | cat"):
        with contextlib.suppress(DelfError):
            await shell.run(command)
    # The loop closes the pipes of a process after its end.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_command_gets_only_named_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "k-123456")
    shell = Shell(folder=folder, default={}, environment=["PATH"])
    assert "k-123456" not in (await shell.run("env"))["stdout"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo $HOME", "variables and substitutions"),
        ("ls *.md", "wildcards"),
        ("echo a > b", "redirections"),
        ("echo a &", "in the background"),
        ("echo a&b", "in the background"),
        ("cd a", "belongs to a shell"),
        ("A=1 ls", "variables cannot be set"),
        ("echo 'a", "a quote is not closed"),
        ("echo a\\", "cannot end with a backslash"),
        ("echo a && ;", "a part of the command is empty"),
        ("echo a ||", "a part of the command is empty"),
        ("", "a part of the command is empty"),
    ],
)
def test_unsupported_syntax_is_refused(shell: Shell, command: str, shown: str) -> None:
    refused = verdict(shell, command)
    assert isinstance(refused, Refused)
    assert shown in refused.message


@pytest.mark.parametrize("operator", ["&&", "||", ";", "|"])
def test_operator_needs_no_spaces(shell: Shell, operator: str) -> None:
    assert parse(f"echo a{operator}date") == parse(f"echo a {operator} date")
    assert parse(f"echo 'a'{operator}date") == parse(f"echo a {operator} date")


def test_strictest_rule_of_all_parts_applies(folder: Path) -> None:
    rules = [{"pattern": "ls *", "approval_required": False}, "git commit **"]
    shell = Shell(rules=rules, folder=folder)
    assert isinstance(verdict(shell, "ls"), Allowed)
    assert isinstance(verdict(shell, "ls a && ls b"), Allowed)
    assert isinstance(verdict(shell, "ls && git commit -m 'a b'"), NeedsApproval)
    blocked = verdict(shell, "ls && rm -rf a")
    assert isinstance(blocked, Refused)
    assert blocked.message == (
        "blocked: 'rm -rf a' matches no rule. Rules: 'ls *', 'git commit **'"
    )


def test_approval_shows_each_part_quoted(folder: Path) -> None:
    shell = Shell(rules=["git commit **", "ls *"], folder=folder)
    asked = verdict(shell, "git commit -m \"x; rm -rf /\" && ls 'a b' | ls", cwd="a")
    assert isinstance(asked, NeedsApproval)
    assert asked.reason == "git, ls, ls: not pre-approved"
    assert asked.preview == "in a\n   git commit -m 'x; rm -rf /'\n&& ls 'a b'\n | ls"


def test_command_without_a_rule_gets_the_default_approval(folder: Path) -> None:
    rules = [{"pattern": "git push", "approval_required": True}]
    assert isinstance(verdict(Shell(rules=rules, folder=folder), "ls"), Refused)
    assert isinstance(
        verdict(Shell(rules=rules, folder=folder, default={}), "ls -la"), NeedsApproval
    )
    free = Shell(rules=rules, folder=folder, default={"approval_required": False})
    assert isinstance(verdict(free, "ls -la"), Allowed)
    assert isinstance(verdict(free, "git push"), NeedsApproval)


@pytest.mark.parametrize(
    ("pattern", "command", "fits"),
    [
        ("git log *", "git log", True),
        ("git log *", "git log main HEAD~3", True),
        ("git log *", "git log --output=x", False),
        ("git log **", "git log --output=x", True),
        ("git log -n*", "git log -n5", True),
        ("git log -n*", "git log -n5 --all", False),
        ("git log --oneline *", "git log --oneline main", True),
        ("cat *.md", "cat plan.md", True),
        ("cat *.md", "cat ../plan.md", False),
        ("cat docs/*", "cat docs/../../x", False),
        ("cat docs/*", "cat docs//etc", False),
        ("make test", "make test", True),
        ("make test", "make test all", False),
        ("make", "make test", False),
        ("echo [a]", "echo '[a]'", True),
        ("echo [a]", "echo a", False),
    ],
)
def test_rule_pattern_matches_commands(
    pattern: str, command: str, fits: bool, folder: Path
) -> None:
    shell = Shell(rules=[{"pattern": pattern, "approval_required": False}], folder=folder)
    assert isinstance(verdict(shell, command), Allowed) is fits


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"rules": ["* x"]}, "does not begin with the name of a program"),
        ({"rules": ["/bin/ls"]}, "does not begin with the name of a program"),
        ({"rules": ["ls 'x"]}, "No closing quotation"),
        ({"rules": [{"patern": "ls"}]}, "patern"),
    ],
)
def test_invalid_rules_are_refused(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConnectionConfigurationError, match=shown):
        Shell(**options)


@pytest.mark.parametrize(
    ("rule", "shown", "absent"),
    [
        ({"pattern": "git log *"}, "git log *; others are blocked. A * is no option", "**"),
        ({"pattern": "git log **"}, "git log **; others are blocked. A ** is any words", "A * "),
        ({"pattern": "git log", "match": "prefix"}, "git log **; others", "A * "),
        ({"pattern": "find", "match": "reading"}, "find **; others", "A * "),
        ({"pattern": "git status"}, "git status; others are blocked. No shell", "*"),
    ],
)
async def test_prompt_shows_the_patterns_and_their_meaning(
    folder: Path, rule: dict[str, Any], shown: str, absent: str
) -> None:
    text = await Shell(folder=str(folder), rules=[rule]).context("Show the log")
    assert text is not None
    assert shown in text
    assert absent not in text


async def test_command_runs_inside_its_folder(shell: Shell, folder: Path) -> None:
    (folder / "a" / "x").write_text("")
    assert (await shell.run("ls", cwd="a"))["stdout"] == "x\n"
    (folder / "up").symlink_to(folder.parent)
    for cwd in ("..", "/", "a/../..", "up", "plan.md", "nothing"):
        with pytest.raises(DelfError, match="not a folder under"):
            await shell.run("ls", cwd=cwd)


async def test_output_is_traced_while_the_command_runs(
    folder: Path, delf_host: Any, scripted_model: Any
) -> None:
    """The output arrives before the command has ended, with secrets redacted."""
    seen: list[str] = []

    def look(event: ev.Event) -> None:
        if isinstance(event, ev.CallPrinted):
            seen.append(event.text)
            (folder / "go").touch()

    program = "import os, time; print(1, flush=True)\nwhile not os.path.exists('go'): time.sleep(.01)\nprint(2)"
    (folder / "p.py").write_text(program)
    shell = Shell(folder=folder, default={"approval_required": False})
    scripted_model.writes("print((await shell.run('python3 p.py'))['stdout'])")
    async with Agent(tools=[shell], llm="scripted", host=delf_host, journal="none") as agent:
        response = await agent.arun("x", listeners=[look])
    assert response.text == "1\n2"
    assert seen == ["1\n", "2\n"]
    assert response.trace.tool_calls[0].output == "1\n2\n"
