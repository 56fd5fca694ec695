"""``delf run`` in pipes: what goes where, and how it ends."""

import json
import subprocess
from pathlib import Path

import pytest

from support.openai_server import OpenAIServer
from support.program import DELF, delf, environment, start, write_recording

TOOLS = '''
import asyncio
from delf import tool

@tool(effect="read", confirm=False)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b

@tool(effect="irreversible")
def send(to: str) -> str:
    """Send."""
    with open("sent.txt", "a") as file:
        file.write(to + "\\n")
    return "sent"
'''
EVENT_FIELDS = {"type", "v", "task_id", "seq", "at", "data"}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def model(here: Path, *scripts: str, **reply: object) -> str:
    return write_recording(here / "answers.jsonl", *scripts, **reply)


def test_stdout_holds_only_the_answer(here):
    llm = model(here, "print('| sum |\\n|---|\\n|', await add(2, 3), '|')", cost_usd=0.001)
    result = delf("run", "add up", "--tools", "tools.py", "--llm", llm, cwd=here)
    assert result.returncode == 0
    assert result.stdout == "| sum |\n|---|\n| 5 |\n"
    assert "warning: scripts run in the sandbox 'local'" in result.stderr
    assert "done · " in result.stderr
    assert "$0.0010 · 1 model call · 1 tool call" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


NOISE = """
import os, subprocess, sys, click
from delf import tool

def noise(place):
    print("noise: printed", place, flush=True)
    sys.stdout.write("noise: written\\n")
    os.write(1, b"noise: of a library in C\\n")
    subprocess.run([sys.executable, "-c", "print('noise: of a program')"])

noise("at import")

@tool(effect="read", confirm=False)
def add(a: int, b: int) -> int:
    "Add."
    noise("in a thread")
    click.echo("noise: of click")
    return a + b

@tool(effect="read", confirm=False)
async def wait() -> int:
    "Wait."
    noise("in the loop")
    return 1
"""


@pytest.mark.parametrize("flags", [(), ("--json",), ("--events",)])
def test_prints_of_tools_and_libraries_go_to_stderr(here, flags):
    (here / "noisy.py").write_text(NOISE)
    llm = model(here, "print(await add(2, 3) + await wait())")
    result = delf("run", "add up", "--tools", "noisy.py", "--llm", llm, *flags, cwd=here)
    assert result.returncode == 0
    assert "noise" not in result.stdout
    assert result.stderr.count("noise: printed") == 3
    assert result.stderr.count("noise: of a library in C") == 3
    assert result.stderr.count("noise: of a program") == 3
    assert "noise: of click" in result.stderr
    if flags:
        assert [json.loads(line) for line in result.stdout.splitlines()]
    else:
        assert result.stdout == "6\n"


def test_prints_of_plugin_imports_and_hooks_go_to_stderr(here):
    site = here / "site"
    info = site / "noisy-1.0.dist-info"
    info.mkdir(parents=True)
    hook = "from delf.hookspecs import hookimpl\n@hookimpl\ndef delf_connections():\n"
    printed = "import os\nprint('noise: at import')\nos.write(1, b'noise: in C\\n')\n"
    (site / "noisy.py").write_text(f"{printed}{hook}    print('noise: of a hook')\n    return ()\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[delf]\nnoisy = noisy\n")
    done = delf("inspect", "files", "--json", cwd=here, env=environment(PYTHONPATH=str(site)))
    assert json.loads(done.stdout) is not None
    assert "noise" not in done.stdout
    assert "noise: of a hook" in done.stderr


def test_weaker_isolation_is_reported_once_on_a_machine(here):
    (here / "other").mkdir()
    llm = model(here, *["print(1)"] * 3)
    first, again = (delf("run", "x", "--llm", llm, cwd=here).stderr for _ in range(2))
    other = delf("run", "x", "--llm", llm, cwd=here / "other").stderr
    assert first.count("warning: scripts run in the sandbox 'local'") == 1
    assert 'set sandbox = "local" to accept this isolation; delf doctor lists other' in first
    assert "warning: scripts run" not in again
    assert "warning: scripts run" not in other
    assert (
        "scripts run in"
        not in delf("run", "x", "--llm", llm, "--sandbox", "local", cwd=here / "other").stderr
    )


@pytest.mark.parametrize("how", ["flag", "file"])
def test_verbose_run_prints_each_step_and_a_summary(here, how):
    if how == "file":
        (here / "delf.toml").write_text("[agent]\nverbose = true\n")
    flags = ["--verbose"] if how == "flag" else []
    llm = model(here, "print(await add(2, 3, desc='sum'))", cost_usd=0.001)
    result = delf("run", "add up", "--tools", "tools.py", "--llm", llm, *flags, cwd=here)
    assert result.stdout == "5\n"
    lines = [line.strip() for line in result.stderr.splitlines()]
    for message in ("→ 1 add: sum", "calls     1 ok", "step "):
        assert len([line for line in lines if line.startswith(message)]) == 1, message
    assert lines.index("→ 1 add: sum") < lines.index("calls     1 ok")


def test_task_can_be_read_from_stdin(here):
    llm = model(here, "print('ok')")
    result = delf("run", "-", "--llm", llm, "--json", cwd=here, stdin="\ufeffSag «hallo»\n")
    assert json.loads(result.stdout)["trace"]["task"] == "Sag «hallo»"
    assert delf("run", "-", "--llm", llm, cwd=here, stdin=b"\xff\xfe").returncode == 2
    assert delf("run", "-", "--llm", llm, cwd=here).returncode == 2


def test_schema_option_returns_the_answer_as_data(here):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    (here / "sum.json").write_text(json.dumps(schema))
    llm = model(here, *["print('so')\nawait answer({'sum': await add(2, 3)})"] * 2)
    given = ("run", "add up", "--tools", "tools.py", "--llm", llm, "--schema", "sum.json")
    result = delf(*given, cwd=here)
    assert (result.returncode, json.loads(result.stdout)) == (0, {"sum": 5})
    data = json.loads(delf(*given, "--json", cwd=here).stdout)
    assert (data["value"], data["text"]) == ({"sum": 5}, "so")
    for text in ("[]", "{", '{"type": "nonsense"}'):
        (here / "sum.json").write_text(text)
        result = delf(*given, cwd=here)
        assert (result.returncode, result.stdout) == (2, "")
        assert "schema" in result.stderr.lower()
    (here / "sum.json").unlink()
    assert "--schema sum.json: No such file" in delf(*given, cwd=here).stderr


def test_events_are_written_while_the_task_runs(here):
    (here / "tools.py").write_text(
        "import os\nfrom delf import tool\n\n"
        "@tool(effect='read', confirm=False)\ndef wait() -> int:\n    '''Wait.'''\n"
        "    with open('go') as file:\n        return len(file.read())\n"
    )
    fifo = here / "go"
    subprocess.run(["mkfifo", fifo], check=True)
    llm = model(here, "print(await wait())")
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--events"]
    with start(
        command, cwd=here, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        for line in process.stdout:
            if json.loads(line)["type"] == "CallStarted":
                break
        fifo.write_text("go")  # until now the tool waits
        assert process.stdout.read()
        assert process.wait(50) == 0


def test_output_files_are_written_to_the_out_folder(here):
    script = "add_to_output_files('sums.csv', [{'a': 1}])\nadd_to_output_files('n.json', {})"
    llm = model(here, f"{script}\nprint('made')")
    result = delf("run", "x", "--llm", llm, "--out", "out", cwd=here)
    out = here / "out"
    assert (result.returncode, result.stdout) == (0, "made\n")
    assert (out / "sums.csv").read_text() == "a\n1\n"
    assert f"file: sums.csv → {out / 'sums.csv'}\nfile: n.json → {out / 'n.json'}" in result.stderr


def test_run_passes_input_files_to_the_script(here):
    (here / "b").mkdir()
    (here / "notes.txt").write_text("forty-two")
    (here / "b/notes.txt").write_text("seven")
    llm = model(
        here,
        "for file in await files.list():\n"
        "    print(file['name'], await files.read(file['name']), open(file['path']).read())",
    )
    arguments = ["--file", "notes.txt", "--file", "b/notes.txt"]
    result = delf("run", "x", "--llm", llm, *arguments, cwd=here)
    assert (result.returncode, result.stderr.count("error")) == (0, 0)
    assert result.stdout == "notes.txt forty-two forty-two\nnotes-2.txt seven seven\n"


@pytest.mark.parametrize(
    ("flags", "sent", "words"),
    [
        (["--approve", "all"], True, ""),
        (["--approve", "none"], False, "every action that needs approval is denied"),
        ([], False, "nobody could be asked; run it on a terminal"),
        (["--set", "agent.approval_mode=approve_all"], True, ""),
        (["--set", "agent.approval_mode=approve_all", "--approve", "none"], False, "denied"),
    ],
)
def test_run_without_a_terminal_approves_only_by_flags(here, flags, sent, words):
    script = "try:\n    print(await send('ada'))\nexcept ApprovalRejected as no:\n    print(no)"
    llm = model(here, script)
    result = delf("run", "x", "--tools", "tools.py", "--llm", llm, *flags, cwd=here)
    assert result.returncode == 0
    assert words in result.stdout
    assert (here / "sent.txt").exists() is sent


def test_uncancellable_tool_does_not_block_the_exit(here):
    (here / "tools.py").write_text(
        "import time\nfrom delf import tool\n\n@tool(effect='read', confirm=False)\n"
        "def slow() -> None:\n    '''Slow.'''\n    time.sleep(600)\n"
    )
    llm = model(here, "await slow()")
    result = delf("run", "x", "--tools", "tools.py", "--llm", llm, "--timeout", "1", cwd=here)
    assert result.returncode == 1
    assert "Timeout" in result.stderr


@pytest.mark.timeout(90)
@pytest.mark.parametrize("stream", [False, True])
def test_recorded_run_can_be_replayed(here, stream):
    env = {"OPENAI_API_KEY": "k"}
    with OpenAIServer(["```python\nprint('from the server')\n```"]) as server:
        flags = ["--base-url", server.base_url, "--llm", "m", "--record", "new.jsonl"]
        flags += ["--stream"] if stream else []
        first = delf("run", "say something", *flags, cwd=here, env=env)
        assert bool(server.requests[0].json.get("stream")) is stream
    assert first.stdout == "from the server\n"
    again = delf("run", "say something", "--llm", "recorded:new.jsonl", cwd=here)
    assert again.stdout == first.stdout, again.stderr
    other = delf("run", "say another thing", "--llm", "recorded:new.jsonl", cwd=here)
    assert other.returncode == 1
    assert "record again" in other.stderr
