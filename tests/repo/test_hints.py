"""Every command that a text of delf names exists, with its options: hints can be typed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from delf.errors import PluginError
from delf_cli.main import cli
from delf_cli.state import State
from support.workspace import ROOT, modules, nodes_of, place

_COMMAND = re.compile(r"(?:^|[\s`(\"'])delf ((?:[a-z][a-z-]*|--[a-z-]+)(?: [^\n`;()]*)?)")


def _texts(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Texts of a module that people may read: all but docstrings, with … for what is put in."""
    parts: set[int] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
            yield text, node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(id(node.value))
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value, node


@cache
def _context() -> click.Context:
    return click.Context(cli, obj=State())


def _faults(text: str) -> Iterator[str]:
    """What cannot be typed in the commands of a text."""
    for match in _COMMAND.finditer(text):
        words = match[1].rstrip(".,: ").split()
        command: click.Command = cli
        ctx = _context()
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            try:
                found = command.get_command(ctx, words[0].strip(".,:"))
            except (PluginError, click.UsageError):
                found = None
            if found is None:
                break
            command = found
            words.pop(0)
        if command is cli and words and not words[0].startswith("-"):
            if text[match.start()] == "`":  # else it is a sentence about the program
                yield f"there is no command delf {words[0]}"
            continue
        known = {o for p in (*command.params, *cli.params) for o in (*p.opts, *p.secondary_opts)}
        for word in words:
            if word in ("or", "and", "which", "with"):
                break  # the sentence goes on
            option = re.match(r"--?[a-z][a-z-]*", word)
            if option and option[0] not in known | {"--help", "-h", "--version"}:
                yield f"delf {match[1]!r}: {command.name} has no option {option[0]}"


def test_every_command_in_a_text_can_be_typed() -> None:
    wrong = [
        f"{place(path, node)}: {fault}"
        for path in modules()
        if "guest" not in path.parts
        for text, node in _texts(path)
        if "delf " in text
        for fault in _faults(text)
    ]
    assert wrong == [], "\n".join(wrong)


_CODE = re.compile(r"^```(?:sh|console|bash|)\n.*?^```$|`delf [^`]+`", re.MULTILINE | re.DOTALL)


def test_every_command_on_a_page_can_be_typed() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {fault}"
        for pattern in ("*.md", "docs/**/*.md", "plugins/*/*.md", "libs/*/*.md", "core/*.md")
        for page in ROOT.glob(pattern)
        for code in _CODE.findall(page.read_text(encoding="utf-8"))
        for line in code.splitlines()
        for fault in _faults(line.partition(" #")[0])
    ]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("delf runs show ID --events", 1),
        ("type `delf nonsense x`", 1),
        ("delf waits for you", 0),
        ('type: delf run "x" --llm gpt-4o-mini', 0),
        ("delf doctor says why; delf config chekc", 0),
        ("`delf trust --lisst`", 1),
    ],
)
def test_wrong_hints_are_recognised(text: str, faults: int) -> None:
    assert len(list(_faults(text))) == faults
