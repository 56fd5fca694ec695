"""A test asserts something, itself or by a helper whose source is among the tests."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

TESTS: Final = Path(__file__).parents[1]
ASSERTING: Final = frozenset(
    {
        *("raises", "warns", "fail"),  # pytest
        *("assert_outcomes", "fnmatch_lines"),  # pytester
        "expect",  # playwright
        *("call_and_validate", "test_values_round_trip"),  # schemathesis, a suite's own test
    }
)
"""Calls that fail a test, and whose source is not among the tests."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def functions(path: Path) -> dict[str, Function]:
    """Functions and methods of a module, by name."""
    return {node.name: node for node in ast.walk(module(path)) if isinstance(node, Function)}


@functools.cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@functools.cache
def imported(path: Path) -> dict[str, Path]:
    """Modules of the tests from which a module takes names."""
    found: dict[str, Path] = {}
    for node in ast.walk(module(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            beside = path.parent / f"{node.module.lstrip('.')}.py"
            shared = TESTS / f"{node.module.replace('.', '/')}.py"
            source = next((file for file in (shared, beside) if file.is_file()), None)
            if source:
                found |= {alias.asname or alias.name: source for alias in node.names}
    return found


def called(node: ast.AST) -> Iterator[str]:
    """Names that a function uses: a helper can be called, or handed on to be called."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def checked(node: ast.AST) -> bool:
    """A call with ``check=True``, as of a program that must succeed."""
    return (
        isinstance(node, ast.keyword) and node.arg == "check" and ast.unparse(node.value) == "True"
    )


@functools.cache
def asserts(path: Path, name: str) -> bool:
    return _asserts(path, name, set())


def _asserts(path: Path, name: str, seen: set[tuple[Path, str]]) -> bool:
    if (path, name) in seen:
        return False
    seen.add((path, name))
    if name not in functions(path):
        return name in imported(path) and _asserts(imported(path)[name], name, seen)
    asserts_itself, names = looked_at(path, name)
    return asserts_itself or any(_asserts(path, n, seen) for n in names)


@functools.cache
def looked_at(path: Path, name: str) -> tuple[bool, list[str]]:
    """Return whether a function asserts something itself, and the names that it uses, if not."""
    function = functions(path)[name]
    names = {*called(function)}
    if names & ASSERTING or any(
        isinstance(part, ast.Assert | ast.Raise) or checked(part) for part in ast.walk(function)
    ):
        return True, []
    return False, [each for each in names if each in functions(path) or each in imported(path)]


def silent(path: Path) -> list[str]:
    return [
        name for name in functions(path) if name.startswith("test_") and not asserts(path, name)
    ]


def test_every_test_asserts_something():
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("test_*.py")
        for name in silent(path)
    ]
    assert not found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a(): run()\ndef run(): pass", ["test_a"]),
        ("def test_a(): assert run()", []),
        ("def test_a(): run()\ndef run(): check()\ndef check(): assert 1", []),
        ("def test_a():\n    with pytest.raises(ValueError): run()", []),
        ("def test_a(): loop()\ndef loop(): loop()", ["test_a"]),
    ],
)
def test_asserting_helpers_are_followed(source, found, tmp_path):
    (tmp_path / "test_it.py").write_text(source)
    assert silent(tmp_path / "test_it.py") == found


SLEEPS: Final = 47
"""Calls of sleep for a time, in the tests and their helpers: `support.until` waits for what happens."""
APART: Final = ("escapes", "broken")
"""Scripts that try to escape, and plugins that break a rule each."""


def nodes() -> Iterator[ast.AST]:
    for path in TESTS.rglob("*.py"):
        if not set(APART) & set(path.parts):
            yield from ast.walk(module(path))


def sleeps(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="asyncio" | "time"), attr="sleep"), args=[seconds]
        ):
            return not (isinstance(seconds, ast.Constant) and seconds.value == 0)
        case _:
            return False


def hurries(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="asyncio"), attr="timeout" | "wait_for"),
            args=[*_, ast.Constant(value=int() | float() as seconds)],
        ):
            return 2 < seconds < 30
        case _:
            return False


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def reaches_inside(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(names=names):
            return any(is_private(alias.name) for alias in names)
        case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=[what, *rest]):
            message = what if isinstance(what, ast.Constant) else rest[0] if rest else what
            return isinstance(message, ast.Constant) and is_private(
                str(message.value).rpartition(".")[2]
            )
        case _:
            return False


def test_tests_wait_for_conditions_and_do_not_sleep():
    assert sum(map(sleeps, nodes())) <= SLEEPS, "wait with support.until"


def test_tests_have_no_limits_that_a_loaded_machine_exceeds():
    found = [ast.unparse(node) for node in nodes() if hurries(node)]
    assert not found, "the time of a test is the limit of its waits"


def test_tests_use_only_public_names():
    """Their other uses of private names are refused by ruff's SLF001."""
    found = [ast.unparse(node) for node in nodes() if reaches_inside(node)]
    assert not found, "show it by what users can see"
