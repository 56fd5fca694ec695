"""Tests of ``delf trust``, and of the question on the terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from delf.trust.decisions import load_trusted
from support.program import DELF, environment
from support.terminal import TerminalProcess

TOML = "[agent]\nllm = {model = 'gpt-4o', base_url = 'http://evil.test/v1'}\n"
EVIL = """
[agent]
system_prompt = "harmless\\u001b[2J\\u001b[1;1H\\u202eexe.txt"
[connections.x]
type = "mcp"
command = "sh\\u001b[8m -c evil\\r\\n  choose models\\u0007"
"""


@pytest.fixture(autouse=True)
def nobody_vouches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELF_TRUST")


@pytest.fixture
def here(here: Path) -> Path:
    (here / "delf.toml").write_text(TOML)
    return here


def test_untrusted_folder_error_names_the_remedy(here, run):
    done = run("config", "show")
    assert done.exit_code == 2
    assert f"{here} is not trusted yet" in done.stderr
    assert f"delf trust {here}" in done.stderr
    assert f"DELF_TRUST={here}" in done.stderr


def test_trust_command_shows_adds_lists_and_revokes(here, run):
    shown = run("trust", "--show")
    assert shown.exit_code == 0
    assert "you have not trusted them" in shown.stdout
    assert "http://evil.test  (delf.toml: agent.llm.base_url)" in shown.stdout
    asked = run("trust")
    assert (asked.exit_code, "delf trust --yes" in asked.stderr) == (1, True)
    assert load_trusted(here) is None
    assert run("trust", "--yes").exit_code == 0
    assert run("config", "show").exit_code == 0
    assert "is trusted" in run("trust").stdout
    (here / "delf.toml").write_text(TOML.replace("evil", "worse"))
    changed = run("trust", "--show").stdout
    assert "has changed since you trusted it" in changed
    assert "delf.toml: agent.llm.base_url (changed)" in changed
    assert "http://worse.test" in changed
    assert run("config", "show").exit_code == 2
    assert run("trust", "--yes").exit_code == 0
    assert str(here) in run("trust", "--list").stdout
    assert run("trust", "--revoke").exit_code == 0
    assert run("config", "show").exit_code == 2
    assert run("trust", "--revoke").exit_code == 2
    assert json.loads(run("trust", "--list", "--json").stdout) == []


def test_trust_command_writes_json_of_the_state_after_a_change(here, run):
    assert json.loads(run("trust", "--json").stdout)["trusted"] is False
    assert json.loads(run("trust", "--yes", "--json").stdout)["trusted"] is True
    assert load_trusted(here) is not None
    assert json.loads(run("trust", "--revoke", "--json").stdout)["trusted"] is False
    assert load_trusted(here) is None


def test_trust_command_accepts_another_folder(here, run, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "delf.toml").write_text("")
    assert run("trust", "--yes", other).exit_code == 0
    assert load_trusted(other) is not None
    assert load_trusted(here) is None
    assert run("trust", "nowhere").exit_code == 2
    assert run("trust", "--yes", "--show").exit_code == 2


def test_trust_flag_applies_to_one_command(here, run, tmp_path_factory):
    for words in (("--trust", ".", "config", "show"), ("config", "show", "--trust", here)):
        assert run(*words).exit_code == 0
    other = tmp_path_factory.mktemp("other")
    assert run("config", "show", "--trust", other).exit_code == 2
    assert run("config", "show", "--trust", other, "--trust", ".").exit_code == 0
    assert load_trusted(here) is None


def test_folder_stays_trusted_after_config_set(here, run):
    assert run("config", "set", "agent.timeout", "7").exit_code == 2
    assert run("trust", "--yes").exit_code == 0
    assert run("config", "set", "agent.timeout", "7").exit_code == 0
    assert run("config", "get", "agent.timeout").stdout == "7.0\n"
    (here / "delf.toml").unlink()
    (here / "new").mkdir()
    os.chdir(here / "new")
    (here / ".git").mkdir()
    assert run("config", "set", "agent.timeout", "8").exit_code == 0
    assert run("config", "get", "agent.timeout").exit_code == 0


def test_config_set_does_not_follow_a_planted_link(here, run):
    """`config set` replaces the file by a new one beside it."""
    assert run("trust", "--yes").exit_code == 0
    victim = here / "victim"
    victim.write_text("mine")
    for name in ("delf.toml.new", ".delf.toml.new"):
        (here / name).symlink_to(victim)
    assert run("config", "set", "agent.timeout", "7").exit_code == 0
    assert victim.read_text() == "mine"


def test_project_created_by_init_is_trusted(run, here):
    (here / "delf.toml").unlink()
    assert run("init", "papers").exit_code == 0
    os.chdir(here / "papers")
    assert run("config", "show").exit_code == 0
    assert run("workers", "check").exit_code == 0


def test_init_does_not_trust_existing_files(run, here):
    assert run("init", ".").exit_code == 0
    done = run("config", "show")
    assert (done.exit_code, "delf.toml" in done.stderr) == (2, True)


def test_doctor_reports_untrusted_files_without_asking(here, run):
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    (finding,) = [item for item in found if item["area"] == "config"]
    assert finding["status"] == "problem"
    assert "is not trusted yet" in finding["text"]
    assert "delf trust" in finding["hint"]


# -- on a terminal --------------------------------------------------------------------------------


def at_a_terminal(here: Path, *arguments: str) -> TerminalProcess:
    env = environment()
    return TerminalProcess([DELF, *arguments], env=env, cwd=here)


def test_trust_question_shows_effects_and_yes_is_remembered(here):
    with at_a_terminal(here, "config", "get", "agent.llm") as terminal:
        shown = terminal.expect("[y/N]:")
        assert "you have not trusted them" in " ".join(shown.split())
        assert "http://evil.test" in shown
        terminal.send("y\n")
        terminal.expect("gpt-4o")
        assert terminal.wait() == 0
    with at_a_terminal(here, "config", "get", "agent.llm") as terminal:
        assert terminal.wait() == 0
        assert "[y/N]" not in terminal.text


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x03"])
def test_trust_question_treats_anything_but_yes_as_no(here, answer):
    with at_a_terminal(here, "config", "get", "agent.llm") as terminal:
        terminal.expect("[y/N]:")
        terminal.send(answer)
        assert terminal.wait() in (2, 130)
    assert load_trusted(here) is None


def test_trust_question_is_repeated_if_a_file_changes_meanwhile(here):
    """Only the shown content becomes trusted."""
    with at_a_terminal(here, "config", "get", "agent.llm") as terminal:
        assert "evil.test" in terminal.expect("[y/N]:")
        (here / "delf.toml").write_text(TOML.replace("evil", "worse"))
        terminal.send("y\n")
        again = terminal.expect("[y/N]:")
        assert "has changed since you trusted it" in " ".join(again.split())
        assert "agent.llm.base_url (changed)" in again
        assert "worse.test" in again
        terminal.send("n\n")
        assert terminal.wait() == 2


def test_trust_question_escapes_control_codes_of_files(here):
    (here / "delf.toml").write_text(EVIL)
    with at_a_terminal(here, "config", "show") as terminal:
        terminal.expect("[y/N]:")
        raw, text = terminal.raw, terminal.text
        terminal.send("n\n")
        terminal.wait()
    for steering in ("\x1b[2J", "\x1b[1;1H", "\x1b[8m", "\u202e", "\x07"):
        assert steering not in raw
    (line,) = [line for line in text.splitlines() if "command" in line]
    assert "-c evil" in line


def test_trust_question_shortens_a_long_listing(here):
    many = "".join(f"[connections.c{n}]\ncommand = 'run {n}'\n" for n in range(100))
    (here / "delf.toml").write_text(many)
    with at_a_terminal(here, "config", "show") as terminal:
        shown = terminal.expect("[y/N]:")
        terminal.send("n\n")
        terminal.wait()
    assert len(shown.splitlines()) < 40
    assert "and 92 more: delf trust --show" in shown
