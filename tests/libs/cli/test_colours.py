"""Tests that `--color`, NO_COLOR and TERM=dumb apply to all output."""

import pytest

from delf_cli import colours
from support.program import DELF, delf, environment, write_recording
from support.terminal import TerminalProcess


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, None),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, None),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_environment_variables_choose_the_default_colours(environ, wanted, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert colours.explicit_choice() is wanted


def test_colour_flag_overrides_the_environment(tmp_path):
    coloured = delf("--color", "always", "plugins", cwd=tmp_path, env={"NO_COLOR": "1"})
    assert "\x1b[1m" in coloured.stdout
    assert "\x1b[" not in delf("plugins", cwd=tmp_path).stdout
    never = delf("plugins", "--color=never", cwd=tmp_path, env={"FORCE_COLOR": "1"})
    assert "\x1b[" not in never.stdout


@pytest.mark.parametrize(("when", "is_coloured"), [("always", True), ("never", False)])
def test_piped_output_follows_the_colour_setting(tmp_path, when, is_coloured):
    model = write_recording(tmp_path / "r.jsonl", "print(1)")
    command = ["--color", when, "run", "Count.", "--llm", model, "-v"]
    done = delf(*command, "--sandbox", "local", cwd=tmp_path)
    assert ("\x1b[2mdone" in done.stderr, "\x1b[" in done.stderr) == (is_coloured, is_coloured)
    assert done.stdout == "1\n"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}])
def test_task_at_a_terminal_is_coloured_by_the_environment(tmp_path, environ):
    model = write_recording(tmp_path / "r.jsonl", "print('| a | b |\\n|---|---|\\n| 1 | 2 |')")
    command = [DELF, "run", "x", "--llm", model, "--sandbox", "local"]
    with TerminalProcess(command, env=environment(**environ), cwd=tmp_path) as terminal:
        assert terminal.wait() == 0
        raw = terminal.raw
    styles = [part for part in raw.split("\x1b[")[1:] if part.partition("m")[0].isdigit()]
    assert bool(styles) == ("FORCE_COLOR" in environ), raw


@pytest.mark.parametrize("command", ["nonsense", "run a b -c nope"])
@pytest.mark.parametrize(
    ("environ", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_error_messages_follow_the_colour_setting(run, monkeypatch, command, environ, has_colours):
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    done = run(*command.split(), env=environ, color=True)
    assert "error:" in done.stderr
    assert ("\x1b[" in done.stderr) == has_colours
