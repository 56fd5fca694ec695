"""The words of a task's state are written once, in ``delf.types``; all else uses ``TaskState``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from delf.types import TaskState

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = frozenset(TaskState)
_STATES_OF: Final = frozenset({"state", "became", "status_of"})
"""Names whose value is the state of a task. Plugins have a state too, with words of their own."""
_OTHER_IDEAS: Final = "core/src/delf/plugins/"
"""The folder where a state is that of a plugin."""
_STORED_FORMAT: Final = "plugins/journal-sql/src/delf_journal_sql/schema.py"
"""Migrations that have run: their text never changes."""
_SQL: Final = re.compile(rf"state\s*(?:=|<>|IN)\s*\(?'({'|'.join(WORDS)})'")
_JS: Final = re.compile(
    rf"""state\s*[!=]?==?\s*["'`]({"|".join(WORDS)})["'`]|\b(?:{"|".join(WORDS)}):\s*\["""
)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Find texts that stand for a task's state: compared, given, collected or in SQL."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(_name(side) in _STATES_OF for side in sides):
                    yield from (found for side in sides for found in _words(side))
            case ast.keyword(arg="state", value=value):
                yield from _words(value)
            case ast.Assign(targets=[target], value=value) if _name(target) == "state":
                yield from _words(value)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                found = [*_words(node)]
                if len(found) > 2 or any(word in ("queued", "interrupted") for _, word in found):
                    yield from found if len(found) > 1 else ()
            case ast.Constant(value=str(text)) if found := _SQL.search(text):
                yield node.lineno, found[1]
            case _:
                pass


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _words(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The words of states among a value: itself, its items or its keys."""
    parts: list[ast.expr | None] = []
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            parts = [*items]
        case ast.Dict(keys=keys):
            parts = [*keys]
        case ast.IfExp(body=body, orelse=other):
            parts = [body, other]
        case ast.expr():
            parts = [node]
        case _:
            pass
    for part in parts:
        if isinstance(part, ast.Constant) and part.value in WORDS:
            yield part.lineno, str(part.value)


def _files(ending: str) -> list[Path]:
    found = [path for top in ("core", "libs", "plugins") for path in (ROOT / top).rglob(ending)]
    return [path for path in found if "/src/" in path.as_posix()]


def test_state_words_come_from_one_table() -> None:
    wrong = list[str]()
    for path in _files("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith((_OTHER_IDEAS, _STORED_FORMAT)):
            continue
        source = path.read_text()
        if any(f'"{word}"' in source or f"'{word}'" in source for word in WORDS):
            wrong += [f"{name}:{line}: {word}" for line, word in literals(source)]
    for path in _files("*.js"):
        lines = enumerate(path.read_text().splitlines(), 1)
        wrong += [f"{path.name}:{n}: {line.strip()[:80]}" for n, line in lines if _JS.search(line)]
    assert not wrong, "use TaskState of delf.types, or states.js:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        'record.state == "failed"',
        'if state not in ("done", "failed"): pass',
        'find(state="interrupted")',
        'state = "running" if here else other',
        'OVER = frozenset({"done", "failed", "stopped"})',
        'STATES: Final = ("queued", "running")',
        'State = Literal["queued", "running", "waiting"]',
        """run("SELECT 1 FROM t WHERE t.state = 'running'")""",
        """run(f"SELECT {x} FROM t WHERE t.state <> 'running'")""",
        'COLOURS = {"queued": "blue", "running": "cyan"}',
    ],
)
def test_hard_coded_state_name_is_detected(source: str) -> None:
    assert [*literals(source)]


@pytest.mark.parametrize(
    "source",
    [
        'ScriptStatus = Literal["done", "failed", "rerun"]',
        'event.status == "failed"',
        'call.status = "running"',
        "record.state is TaskState.DONE",
    ],
)
def test_script_and_call_statuses_are_not_task_states(source: str) -> None:
    assert not [*literals(source)]


@pytest.mark.parametrize(
    "line",
    ['if (told.state === "failed") x();', 'this.state = "running";', 'queued: ["○", "queued"],'],
)
def test_state_name_written_as_a_string_in_page_code_is_detected(line: str) -> None:
    assert _JS.search(line)
