"""Each suggestion in a hint is typed where the standard bundle is installed, and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import sys
from contextlib import closing

import pytest

from delf.packages.official import packages
from delf_console.sources import packages_of_clone, sources
from support.openai_server import OpenAIServer
from support.program import environment, run
from support.typed_commands import commands_in, texts
from support.workspace import modules, place

STANDARD = (
    "approval-terminal", "chat", "console", "engine", "files", "journal-sql", "llm", "model-http",
    "sandbox-local", "strategy-codegen",
)  # fmt: skip
SAY = ("run", "Say hello, please.")
MINI = ("--llm", "gpt-4o-mini")
BUNDLE = f"""
import re, sys
from importlib import metadata
real = metadata.distributions
standard = {{"delf-core"}} | {{f"delf-plugin-{{name}}" for name in {STANDARD!r}}}
def kept(**how):
    for each in real(**how):
        name = each.metadata["Name"]
        if name in standard or not name.startswith(("delf-plugin-", "delf-google")):
            yield each
metadata.distributions = kept
from delf.plugins import discovery
discovery.metadata_readers = lambda: (each.read_text for each in kept())
from delf.cli.start import main
sys.argv[0] = "delf"
sys.exit(main())
"""


@pytest.fixture
def delf(tmp_path):
    """The program with the standard bundle alone, in a folder and with a home of its own."""
    env = {"HOME": str(tmp_path), "DELF_DATA_DIR": str(tmp_path / "data")}
    missing = dict.fromkeys(("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"), "")

    def delf(*words, stdin="", **more):
        done = run(
            [sys.executable, "-c", BUNDLE, *words], cwd=tmp_path,
            env=environment(**{**missing, **env, **more}), given=stdin.encode(),
        )  # fmt: skip
        return done.returncode, (done.stdout + done.stderr).decode()

    return delf


def hint_of(shown_text: str) -> str:
    """The first hint, in one line."""
    lines = shown_text.splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith("hint: ")][:1]
    return lines[start].removeprefix("hint: ")


def test_standard_bundle_is_the_only_thing_installed(delf):
    status, shown_text = delf("plugins", "--json")
    names = {row["name"] for row in json.loads(shown_text)}
    assert (status, names) == (0, set(STANDARD))


MISSING = {
    "sql": (*SAY, *MINI, "-c", "sql"),
    "gmail": (*SAY, *MINI, "-c", "gmail"),
    "sandbox-docker": (*SAY, *MINI, "--sandbox", "docker"),
    "memory-semantic": (*SAY, *MINI, "--memory", "semantic"),
    "strategy-stream": (*SAY, *MINI, "--strategy", "stream"),
    "otel": (*SAY, *MINI, "--observe", "otel"),
    "model-recorded": (*SAY, "--llm", "recorded:x.jsonl"),
    "model-litellm": (*SAY, "--llm", "groq/llama3"),
    "prefilter-semantic": (*SAY, *MINI, "--set", "prefilter_mode=semantic"),
    "runner-dbos": (*SAY, *MINI, "--detach"),
    "serve": ("serve",),
    "workers": ("init",),
    "demo": ("demo",),
    "routines": ("routines", "list"),
    "delf-google": ("google", "login"),
    "mcp": ("mcp", "serve"),
    "audit": ("audit", "show"),
}


@pytest.mark.parametrize(("package", "words"), MISSING.items(), ids=MISSING)
def test_missing_package_hint_installs_the_package(delf, package, words):
    status, shown_text = delf(*words)
    assert status in (1, 2), shown_text
    command = re.search(r"delf plugins install ([\w-]+)", hint_of(shown_text))
    assert command is not None, shown_text
    assert command[1] == package
    # The clone has it, and the package brings what was missing.
    (*_, item) = sources().items([command[1]])
    assert item.name in packages_of_clone()


def test_missing_key_hint_stores_the_key(delf):
    _, shown_text = delf(*SAY, *MINI)
    command = hint_of(shown_text).partition(",")[0]
    status, kept = delf(*shlex.split(command)[1:], stdin="sk-planted-0123456789")
    assert status == 0, kept
    with OpenAIServer(["```python\nprint('hello')\n```"]) as server:
        status, shown_text = delf(*SAY, *MINI, OPENAI_BASE_URL=server.base_url)
        assert status == 0, shown_text
        assert len(server.requests) == 1


def test_doctor_hint_stores_the_missing_key(delf):
    _, shown_text = delf("doctor")
    (command,) = re.findall(r"→ (delf keys set \w+)", shown_text)
    status, kept = delf(*shlex.split(command)[1:], stdin="sk-planted-0123456789")
    assert status == 0, kept
    assert "OPENAI_API_KEY" in delf("keys", "list")[1]


def test_options_hinted_for_an_unknown_model_work(delf):
    _, shown_text = delf(*SAY, "--llm", "llama3")
    (options,) = re.findall(r"(--llm \S+ --base-url \S+)", hint_of(shown_text))
    with OpenAIServer(["```python\nprint('hello')\n```"]) as server:
        typed = options.replace("http://localhost:11434/v1", server.base_url)
        status, shown_text = delf(*SAY, *shlex.split(typed))
    assert status == 0, shown_text
    assert "hello" in shown_text


@pytest.mark.parametrize("prefix", ["openai/", "anthropic/", "google/"])
def test_hinted_model_prefixes_are_known(delf, prefix):
    _, shown_text = delf(*SAY, "--llm", "nonsense")
    assert prefix in hint_of(shown_text)
    _, shown_text = delf(*SAY, "--llm", f"{prefix}nonsense")
    assert "needs a key" in shown_text, shown_text


def test_missing_model_hint_suggests_quickstart(delf):
    _, shown_text = delf(*SAY)
    assert hint_of(shown_text).startswith("delf quickstart asks")
    with OpenAIServer(["ok"]) as server:
        there = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-planted-0123456789"}
        answers = ("--llm", "gpt-4o-mini", "--connect", "none", "--folder", "shop")
        status, shown_text = delf("quickstart", *answers, **there)
    assert status == 0, shown_text


@pytest.mark.parametrize("setting", ["sandbox", "strategy", "journal"])
def test_names_listed_in_hints_are_accepted(delf, setting):
    def why(name):
        _, shown_text = delf(
            *SAY, *MINI, "--set", f"{setting}={name}", OPENAI_API_KEY="sk-planted-x"
        )
        return shown_text

    listed = hint_of(why("nonsense")).partition(": ")[2].split(", ")
    assert listed, "the hint lists what there is"
    for name in listed:
        shown_text = why(name)
        assert "is installed" not in shown_text, shown_text


def test_single_word_task_runs_as_hinted(delf):
    _, shown_text = delf("run", "hello", *MINI)
    command = hint_of(shown_text).partition(": ")[2].partition(" (")[0]
    _, shown_text = delf(*shlex.split(command)[1:], *MINI)
    assert "needs a key" in shown_text, shown_text


def test_connection_without_a_type_hints_at_the_setting(delf, tmp_path):
    (tmp_path / "delf.toml").write_text('[connections.shop]\nurl = "sqlite:///shop.db"\n')
    here = ("--trust", ".", *SAY, *MINI)
    _, shown_text = delf(*here)
    (line,) = re.findall(r"(type = \"\w+\")", hint_of(shown_text))
    (tmp_path / "delf.toml").write_text(f"[connections.shop]\n{line}\n")
    _, shown_text = delf(*here)
    assert "delf plugins install sql" in hint_of(shown_text), shown_text
    assert "sql" in packages("connection")


def test_quickstart_names_the_plugin_for_its_database(delf, tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE t (a)")
    there = {"OPENAI_API_KEY": "sk-planted-0123456789"}
    answers = ("--llm", "gpt-4o-mini", "--connect", "shop.db", "--folder", "q", "--no-call")
    status, shown_text = delf("quickstart", *answers, **there)
    assert (status, "  delf plugins install sql\n" in shown_text) == (0, True), shown_text


LOOKS = re.compile(
    "approvals( list| remembered)?|chat list|doctor|journal (check|size)|keys( list)?|inspect .*"
    "|plugins( available| list| check .*)?|runs( list| show.*| events.*| code.*)?|trust --(list|show)"
)
"""Commands that change nothing and ask nothing."""
FILLED_IN = {"runs": "last", "plugins": "console", "inspect": "files"}
MANY = f"""
import json, sys
{BUNDLE.partition("from delf.cli.start")[0]}
from delf_cli.main import cli
for words in json.loads(sys.argv[1]):
    print("typed:", words, flush=True)
    status = cli.main(words, standalone_mode=False)
    print("status:", status, flush=True)
"""


def looking_commands():
    """The commands in texts of the bundle that only look, with what the program puts in."""
    ours = ("core/", "libs/", *(f"plugins/{name}/" for name in STANDARD))
    found = {
        command.words
        for path in modules()
        if place(path).startswith(ours)
        for text, _ in texts(path)
        for command in commands_in(text)
        if LOOKS.fullmatch(" ".join(command.words))
    }
    for words in sorted(found):
        filled = FILLED_IN.get(words[0], "")
        yield [filled if word in ("…", "ID", "TYPE") else word for word in words]


def test_read_only_commands_that_messages_suggest_can_be_run(delf, tmp_path):
    with OpenAIServer(["```python\nprint('hello')\n```"]) as server:
        there = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-planted-0123456789"}
        assert delf(*SAY, *MINI, **there)[0] == 0
        typed = list(looking_commands())
        assert len(typed) > 12, typed
        there |= {"HOME": str(tmp_path), "DELF_DATA_DIR": str(tmp_path / "data")}
        command = [sys.executable, "-c", MANY, json.dumps(typed)]
        done = run(command, cwd=tmp_path, env=environment(**there, DELF_LLM=MINI[1]))
    outcomes = re.split(r"^typed: ", done.stdout.decode(), flags=re.MULTILINE)[1:]
    failed = [one for one in outcomes if not one.rstrip().endswith("status: 0")]
    assert (failed, len(outcomes)) == ([], len(typed)), done.stderr.decode()
