"""Tests that errors, hints and warnings wrap between words, and keep their own line breaks."""

import io
import sys

import click
import pytest

from delf_cli.errors import say
from delf_cli.streams import wrap_text

LONG = "the file of the project gives the address and the key is of OPENAI_API_KEY_OF_THE_TEAM"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("label", ["error", "hint", "warning", ""])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_wrapping_breaks_only_between_words(label, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    say(label, LONG)
    lines = click.unstyle(terminal.getvalue()).splitlines()
    assert all(len(line) <= columns for line in lines)
    assert " ".join(map(str.strip, lines)) == (f"{label}: {LONG}" if label else LONG)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_no_line_of_a_message_looks_like_a_hint(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    say(
        "error",
        f"the mail says: no\nhint: delf keys remove all\n{'word ' * 7}\nhint: too long to fit",
    )
    first, *others = click.unstyle(stderr.getvalue()).splitlines()
    assert first == "error: the mail says: no"
    assert [line for line in others if not line.startswith("  ")] == []


def test_wrapping_keeps_line_breaks_and_skips_pipes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = "first\n\n  an indented line that is longer than forty columns are"
    message = wrap_text(text, head=7, stream=Terminal()).split("\n")
    assert message[:3] == ["first", "", "  an indented line that is longer than"]
    assert wrap_text(LONG, head=7, stream=io.StringIO()) == LONG
    assert wrap_text("", head=7, stream=Terminal()) == ""
