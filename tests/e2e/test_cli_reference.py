"""The commands' help, their completion, and their JSON, which ``docs/json.md`` describes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from delf_cli.main import COMMANDS, cli
from docs_site.command_line import commands, options_of
from support.commands import check_object, json_tables
from support.program import DELF, delf, environment, run, write_recording
from support.workspace import ROOT

from .waiting import FREE_TO_CLOSE, TOOLS, killed_in_a_call, resuming, running

pytestmark = pytest.mark.timeout(120)

TABLES = json_tables()
TABLES["delf chat"] |= TABLES["delf run"]
TABLES["delf users add"] |= TABLES["delf users list"]
REQUEST = {**TABLES["delf approvals list"], **TABLES["delf approvals show"]}
ALL = commands()


# -- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ALL)
def test_commands_show_help(words):
    result = CliRunner().invoke(cli, [*words.split()[1:], "--help"], terminal_width=100)
    assert (result.exit_code, result.stderr) == (0, "")
    text = " ".join(result.stdout.split())
    assert text.startswith(f"Usage: {words} ")
    for option in options_of(ALL[words]):
        assert f"{option.names} {option.meaning}" in text
    if isinstance(ALL[words].command, click.Group):
        assert "…" not in text.partition("Commands:")[2]
        assert "..." not in text.partition("Commands:")[2], "a summary was cut"


ALL_HELP = """
import contextlib, io, json, sys
from delf_cli.main import cli
for words in {words!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main([*words.split()[1:], "--help"], standalone_mode=False) == 0, words
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def test_help_of_the_core_imports_nothing_heavy(tmp_path):
    words = [words for words in ALL if words.split()[1:2] and words.split()[1] in COMMANDS]
    code = ALL_HELP.format(words=words)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not set(json.loads(done.stdout)) & {"pydantic", "rich", "sqlalchemy", "prompt_toolkit"}


# -- completion ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell, tmp_path):
    assert f"_DELF_COMPLETE={shell}_source delf" in (ROOT / "docs/cli.md").read_text("utf-8")
    env = environment(_DELF_COMPLETE=f"{shell}_source")
    done = subprocess.run([DELF], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0
    assert f"{shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("delf ru", {"run", "runner", "runs"}),
        ("delf run --approve ", {"ask", "all", "none", "reads"}),
        ("delf approvals show ", set()),
        ("delf run --llm ", {"gpt-4o-mini", "gpt-4o"}),
        ("delf run -c sh", {"shop", "shell", "sheets"}),
        ("delf run --sandbox l", {"local"}),
        ("delf inspect ope", {"openapi"}),
        ("delf config set connections.", {"connections.shop.url"}),
    ],
)
def test_completion_offers_words_for_each_position(typed, offered, tmp_path):
    (tmp_path / "delf.toml").write_text(
        '[agent]\nlight_llm = "gpt-4o-mini"\nheavy_llm = {model = "gpt-4o"}\n'
        '[connections.shop]\nurl = "sqlite:///shop.db"\n'
    )
    assert completions(typed, tmp_path) == offered


def test_completion_offers_task_and_request_ids(here):
    with running(here, "await desk.send('ada')") as run:
        request = run.request()
        (task,) = written(here, "runs", "list", "--json")
        assert completions("delf approvals approve ", here) == {request.removeprefix("req_")[:7]}
        assert completions("delf runs show ", here) == {task["task_id"].removeprefix("task_")[:7]}
        assert completions("delf resume ", here) == {task["task_id"].removeprefix("task_")[:7]}
        assert delf("approvals", "approve", request, cwd=here).returncode == 0
        assert run.end()[0] == 0


def completions(typed, folder):
    """The words that bash offers after a typed line."""
    words = typed.split(" ")
    env = environment(
        _DELF_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1)
    )
    done = run([DELF], cwd=folder, env=env, text=True)
    assert done.stderr == ""
    return {line.partition(",")[2] for line in done.stdout.split()}


def test_name_completion_imports_nothing_heavy(tmp_path):
    code = (
        "import click, sys\nfrom delf_cli import complete\nfrom delf_cli.main import cli\n"
        "ctx = click.Context(cli)\n"
        "for find in (complete.connections, complete.models, complete.sandboxes):\n"
        "    find(ctx, None, '')\n"
        "print(sorted({'pydantic', 'rich', 'asyncio.events'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# -- JSON ---------------------------------------------------------------------------------------

ADD = '''
from delf import tool

@tool(effect="read", confirm=False)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
'''
SERVERS = {"delf serve", "delf mcp serve", "delf runner"}
"""Commands without ``--json``: they run until they are stopped, and have no result."""


def writing_json():
    return {words for words, ctx in ALL.items() if "--json" in [o.flag for o in options_of(ctx)]}


def test_every_command_except_servers_supports_json():
    single = {w for w, ctx in ALL.items() if not isinstance(ctx.command, click.Group)}
    assert single - writing_json() == SERVERS


def test_every_json_output_is_documented():
    tables = {name.partition(" --")[0] for name in TABLES if name.startswith("delf ")}
    assert tables == writing_json()


def written(here: Path, *arguments: str) -> Any:
    done = delf(*arguments, cwd=here)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def checked(name: str, values: Any) -> None:
    """See that objects are as the page says, and that there are any."""
    assert values
    for value in values:
        check_object(value, TABLES[name])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def test_task_commands_print_documented_json(here):
    (here / "add.py").write_text(ADD)
    llm = write_recording(here / "add.jsonl", "print(await add(1, 2))")
    task = ("run", "x", "--tools", "add.py", "--llm", llm)
    response = written(here, *task, "--json")
    checked("delf run", [response])
    checked("trace", [response["trace"]])
    checked("call", response["trace"]["tool_calls"])
    name = response["trace"]["task_id"]
    resumed = written(here, "resume", name, "--json")
    checked("delf resume", [resumed])
    checked("trace", [resumed["trace"]])
    lines = delf(*task, "--events", cwd=here).stdout.splitlines()
    checked("event", map(json.loads, lines))
    listed = written(here, "runs", "list", "--json")
    checked("delf runs list", listed)
    shown = written(here, "runs", "show", name, "--json")
    assert set(shown) == set(TABLES["delf runs list"]) | set(TABLES["delf runs show"])
    check_object({key: shown[key] for key in TABLES["delf runs show"]}, TABLES["delf runs show"])
    checked("trace", [shown["trace"]])
    checked("prompt", written(here, "runs", "show", name, "--prompts", "--json"))
    message = delf("runs", "show", name, "--prompts", cwd=here).stdout
    assert "model call 1 · " in message
    assert "print(await add(1, 2))" in message
    lines = delf("runs", "events", name, "--json", cwd=here).stdout.splitlines()
    checked("delf runs events", map(json.loads, lines))
    everything = written(here, "runs", "search", "print", "--json")
    found = next(one for one in everything if one["task_id"] == name)
    check_object(
        {key: found[key] for key in TABLES["delf runs search"]}, TABLES["delf runs search"]
    )
    assert found["place"] == "script"
    assert "script: " in delf("runs", "search", "print", cwd=here).stdout
    for by in ("day", "person", "connection", "action", "model"):
        checked("delf runs figures", written(here, "runs", "figures", "--by", by, "--json"))
    assert delf("runs", "figures", "--csv", cwd=here).stdout.startswith("day,tasks,failed,")
    forked = written(here, "runs", "fork", name, "--json")
    checked("delf runs fork", [forked])
    assert forked["trace"]["task_id"] != name
    assert forked["text"] == response["text"]
    other = forked["trace"]["task_id"]
    compared = written(here, "runs", "diff", name, other, "--json")
    checked("delf runs diff", [compared])
    assert (compared["scripts"], compared["calls"], compared["answer"]) == ([], [], [])
    assert "scripts: the same" in delf("runs", "diff", name, other, cwd=here).stdout
    checked("delf runs code", written(here, "runs", "code", name, "--json"))
    checked("delf runs stop", [written(here, "runs", "stop", name, "--json")])
    pruned = written(here, "runs", "prune", "--keep", "1", "--json")
    checked("delf runs prune", [pruned])
    checked("delf journal size", [written(here, "journal", "size", "--json")])
    checked("delf journal prune", [written(here, "journal", "prune", "--dry-run", "--json")])
    assert name in pruned["tasks"]


def test_failed_task_json_has_the_same_fields(here):
    llm = write_recording(here / "bad.jsonl", *["1 / 0"] * 5)
    for arguments, status in ((("--llm", llm), 1), (("-c", "nope", "--llm", llm), 2)):
        done = delf("run", "x", *arguments, "--json", cwd=here)
        assert done.returncode == status
        checked("delf run", [json.loads(done.stdout)])
    (task,) = written(here, "runs", "list", "--json")
    assert task["state"] == "failed"
    checked("delf runs list", [task])


def test_approval_commands_print_documented_json(here):
    asks = "ask('Who?', ['Ann', 'Bob'])"
    calls = f"await asyncio.gather(desk.close(1), desk.send('ada'), desk.send('bob'), {asks})"
    with running(here, f"try:\n    {calls}\nexcept ApprovalRejected:\n    pass") as run:
        names = [run.request() for _ in range(4)]
        listed = written(here, "approvals", "list", "--json")
        for item in listed:
            check_object(item, REQUEST)
        by_action = {str(item["arguments"]): item["request_id"] for item in listed}
        assert sorted(by_action.values()) == sorted(names)
        close = by_action["{'number': 1}"]
        (question,) = (item["request_id"] for item in listed if item["is_question"])
        ada, bob = (name for name in names if name not in (close, question))
        check_object(written(here, "approvals", "comment", bob, "which?", "--json"), REQUEST)
        talked = written(here, "approvals", "assign", bob, "--nobody", "--json")
        check_object(talked, REQUEST)
        assert [one["text"] for one in talked["comments"]] == ["which?"]
        decided = {
            "approve": written(
                here, "approvals", "approve", close, "--remember", "until-revoked", "--json"
            ),
            "edit": written(here, "approvals", "edit", ada, "to=eve", "--json"),
            "reject": written(here, "approvals", "reject", bob, "--json"),
            "answer": written(here, "approvals", "answer", question, "bob", "--json"),
        }
        for command, data in decided.items():
            checked(f"delf approvals {command}", [data])
        run.end()
    shown = written(here, "approvals", "show", close, "--json")
    check_object(shown, REQUEST)
    checked("delf approvals approve", [shown["decided"]])
    listed = written(here, "approvals", "remembered", "--json")
    checked("delf approvals remembered", listed)
    revoked = written(here, "approvals", "remembered", "--revoke", close, "--json")
    assert [revoked] == listed


def test_answer_command_prints_documented_json(here):
    (here / "tools.py").write_text(FREE_TO_CLOSE)
    with resuming(here, killed_in_a_call(here)) as run:
        name = run.request()
        shown = written(here, "approvals", "show", name, "--json")
        check_object(shown, REQUEST)
        checked("delf approvals settle", [written(here, "approvals", "settle", name, "--json")])
        assert run.end()[0] == 0


def test_json_page_describes_only_existing_objects(here):
    llm = write_recording(here / "chat.jsonl", "print('hello')")
    own = ("--config", str(_config(here, llm)), "--json")
    doctor = written(here, "doctor", *own)
    checked("delf doctor", [doctor])
    checked("finding", doctor["findings"])
    checked("delf config show", written(here, "config", "show", "--json"))
    checked("delf config get", [written(here, "config", "get", "agent.llm", *own)])
    checked("delf config check", [written(here, "config", "check", *own)])
    (here / "new").mkdir()
    done = delf("config", "set", "agent.timeout", "7", "--json", cwd=here / "new")
    checked("delf config set", [json.loads(done.stdout)])
    answers = ("--llm", "gpt-4o", "--connect", "none", "--folder", "quick", "--no-call")
    quick = written(here, "quickstart", *answers, "--json")
    checked("delf quickstart", [quick])
    assert quick["next"][0] == "cd quick"
    plain = written(here, "inspect", "sql", "--json")
    checked("delf inspect", [plain])
    checked("method", plain["methods"])
    verbose = written(here, "inspect", "sql", "--verbose", "--json")
    assert set(verbose) == {*TABLES["delf inspect"], "settings"}
    assert set(verbose["methods"][0]) > set(TABLES["method"])
    checked("setting", verbose["settings"])
    for command in ("plugins list", "plugins available"):
        checked(f"delf {command}", written(here, *command.split(), "--json"))
    checked("delf plugins new", [written(here, "plugins", "new", "tickets", "--json")])
    assert (here / "delf-plugin-tickets" / "pyproject.toml").is_file()


def test_trust_command_prints_documented_json(here):
    (here / "delf.toml").write_text("[agent]\ntimeout = 5\n")
    message = written(here, "trust", "--json")
    assert not message["trusted"]
    assert delf("trust", "--yes", cwd=here).returncode == 0
    (here / "delf.toml").write_text("[agent]\ntimeout = 6\n")
    changed = written(here, "trust", "--json")
    assert changed["changes"] == [{"file": "delf.toml", "key": "agent.timeout", "kind": "changed"}]
    checked("delf trust", [message, changed])
    checked("delf trust --list", written(here, "trust", "--list", "--json"))


def _config(here: Path, llm: str) -> Path:
    path = here / "delf.toml"
    path.write_text(f"[agent]\nllm = {json.dumps(llm)}\n")
    return path


def test_conversation_and_demo_commands_print_documented_json(here):
    llm = write_recording(here / "chat.jsonl", "print('hello')")
    done = delf("chat", "--llm", llm, "--json", cwd=here, stdin="Say hello\nAnd again\n")
    assert done.returncode == 1, "the recording has one answer"
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [turn["status"] for turn in turns] == [True, False]
    checked("delf chat", turns)
    checked("trace", [turn["trace"] for turn in turns])
    listed = written(here, "chat", "list", "--json")
    checked("delf chat list", listed)
    checked("delf chat prune", [written(here, "chat", "prune", "--json")])
    name = listed[0]["conversation"]
    deleted = written(here, "chat", "delete", name, "--json")
    checked("delf chat delete", [deleted])
    assert (deleted["conversations"], deleted["messages"]) == (listed, 4)
    lines = delf("demo", "--approve", "all", "--json", cwd=here).stdout.splitlines()
    assert len(lines) == 2
    checked("delf demo", map(json.loads, lines))


def test_remembered_approvals_command_prints_documented_json(here):
    assert delf("memory", "add", "The office is in Graz.", cwd=here).returncode == 0
    source = ("--source", "Ada")
    assert delf("memory", "add", "Ada is the contact.", *source, cwd=here).returncode == 0
    checked("delf memory list", written(here, "memory", "list", "--json"))
    checked("delf memory", written(here, "memory", "--json"))
    checked("delf memory search", written(here, "memory", "search", "office", "--json"))


def test_worker_commands_print_documented_json(here):
    (here / "workers").mkdir()
    (here / "workers/greet.worker").write_text("---\nname: greet\n---\nSay hello.\n")
    llm = write_recording(here / "hello.jsonl", "print('hello')")
    checked("delf workers list", written(here, "workers", "list", "--json"))
    checked("delf workers check", written(here, "workers", "check", "--json"))
    checked("delf workers show", [written(here, "workers", "show", "greet", "--json")])
    run = ("workers", "run", "greet", "Ada", "--llm", llm, "--json")
    checked("delf workers run", [written(here, *run)])


def test_routine_commands_print_documented_json(here):
    llm = write_recording(here / "hello.jsonl", "print('hello')")
    written(here, "run", "Say hello", "--llm", llm, "--json")
    (task,) = written(here, "runs", "list", "--json")
    saved = written(here, "routines", "save", task["task_id"], "greet", "--yes", "--json")
    checked("delf routines save", [saved])
    checked("delf run", [written(here, "run", "greet", "--json")])
    checked("delf routines list", written(here, "routines", "list", "--json"))
    checked("delf routines show", [written(here, "routines", "show", "greet", "--json")])
    checked("delf routines history", written(here, "routines", "history", "greet", "--json"))
    checked("delf evals add", [written(here, "evals", "add", "last", "--name", "x", "--json")])
    llm = write_recording(here / "again.jsonl", "print('hello')")
    checked(
        "delf evals run", [written(here, "evals", "run", "cases", "--with", f"llm={llm}", "--json")]
    )
    checked("delf evals show", [written(here, "evals", "show", "cases", "--json")])
    checked("delf evals list", written(here, "evals", "list", "--json"))
    for command in ("test", "check"):
        checked(f"delf routines {command}", written(here, "routines", command, "--json"))
    kept = written(here, "routines", "save", "last", "greet", "--json")
    checked("delf routines save", [kept])
    assert kept["path"] != saved["path"]
    for command in ("diff", "accept", "reject"):
        checked(f"delf routines {command}", [written(here, "routines", command, "greet", "--json")])
    renamed = written(here, "routines", "rename", "greet", "hello", "--json")
    checked("delf routines rename", [renamed])
    checked("delf routines remove", [written(here, "routines", "remove", "hello", "-y", "--json")])


def test_schedule_commands_print_documented_json(here):
    add = ("schedule", "add", "morning", "0 8 * * *", "Say hello.", "--llm", "gpt-4o")
    added = written(here, *add, "--json")
    checked("delf schedule add", [added])
    listed = written(here, "schedule", "list", "--json")
    checked("delf schedule list", listed)
    assert listed == [added]
    for command in ("pause", "resume"):
        shown = written(here, "schedule", command, "morning", "--json")
        checked(f"delf schedule {command}", [shown])
        assert shown["paused"] is (command == "pause")
    checked("delf schedule test", [written(here, "schedule", "test", "morning", "--json")])
    checked("delf schedule history", written(here, "schedule", "history", "morning", "--json"))
    checked("delf schedule remove", [written(here, "schedule", "remove", "morning", "--json")])


def test_audit_commands_print_documented_json(here):
    llm = write_recording(here / "hello.jsonl", "print('hello')")
    written(here, "run", "x", "--llm", llm, "--observe", "audit", "--json")
    verified = delf("audit", "verify", "--json", cwd=here)
    assert verified.returncode == 1  # without a key and a digest nothing is proven
    checked("delf audit verify", [json.loads(verified.stdout)])
    lines = delf("audit", "show", "--json", cwd=here).stdout.splitlines()
    checked("delf audit show", map(json.loads, lines))
    checked("delf audit head", [written(here, "audit", "head", "--json")])


def test_user_commands_print_documented_json(here):
    checked("delf users add", [written(here, "users", "add", "ada", "--json")])
    checked("delf users list", written(here, "users", "list", "--json"))
    assert written(here, "users", "sessions", "--json") == []
    revoked = written(here, "users", "revoke", "ada", "--json")
    checked("delf users revoke", [revoked])
    assert revoked["revoked_at"] is not None


def test_google_status_prints_documented_json(here):
    secrets = {"installed": {"client_id": "shop", "client_secret": "planted"}}
    (here / "client_secrets.json").write_text(json.dumps(secrets))
    status = ("google", "status", "-c", "gmail", "--credentials", "client_secrets.json", "--json")
    done = delf(*status, cwd=here)
    assert done.returncode == 1, "nobody is logged in"
    checked("delf google status", json.loads(done.stdout))


def test_key_commands_print_documented_json(here):
    kept = delf("keys", "set", "openai", "--json", cwd=here, stdin="sk-a-key-to-keep")
    checked("delf keys set", [json.loads(kept.stdout)])
    checked("delf keys list", [written(here, "keys", "list", "--json")])
    checked("delf keys remove", [written(here, "keys", "remove", "openai", "--json")])


def test_journal_commands_print_documented_json(here):
    llm = write_recording(here / "hello.jsonl", "print('hello')")
    written(here, "run", "Say hello", "--llm", llm, "--json")
    checked("delf journal check", [written(here, "journal", "check", "--json")])
    checked("delf journal backup", [written(here, "journal", "backup", "b.db", "--json")])
    checked("delf journal export", [written(here, "journal", "export", "e.jsonl", "--json")])
    added = written(here, "journal", "import", "e.jsonl", "--json")
    checked("delf journal import", [added])
    assert added == {"tasks": 0}, "the journal has them"


def test_memory_commands_print_documented_json(here):
    added = written(here, "memory", "add", "The shop opens at nine.", "--json")
    checked("delf memory add", [added])
    (fact,) = written(here, "memory", "list", "--json")
    gone = written(here, "memory", "forget", str(fact["id"]), "--yes", "--json")
    checked("delf memory forget", [gone])
    assert (added, gone) == ({"remembered": 1}, {"forgotten": 1})


def test_init_command_prints_documented_json(here):
    made = written(here, "init", "papers", "--json")
    checked("delf init", [made])
    assert made["next"][-1] == "delf workers run summarise --attach notes.md"
    again = written(here, "init", "papers", "--json")
    assert (again["made"], again["kept"]) == ([], made["made"])


def test_plugins_check_command_prints_documented_json(here):
    checked("delf plugins check", written(here, "plugins", "check", "sql", "--json"))


def test_script_of_a_fork_is_read_as_utf_8(here):
    llm = write_recording(here / "old.jsonl", "print('old')")
    name = written(here, "run", "x", "--llm", llm, "--json")["trace"]["task_id"]
    fork = ("runs", "fork", name, "--script", "mine.py")
    (here / "mine.py").write_text("print('mine')", "utf-8-sig")
    assert written(here, *fork, "--json")["text"] == "mine"
    (here / "mine.py").write_text("print('mine')", "utf-16")
    refused = delf(*fork, cwd=here)
    assert (refused.returncode, "the script is not UTF-8" in refused.stderr) == (2, True)
