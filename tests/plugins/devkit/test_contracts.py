"""Every suite both ways: what keeps a contract passes it, and what breaks it is caught.

``broken/KIND.py`` has, beside a ``TestGood…``, classes that break one thing each. ``breaks`` names
the tests that have to notice, as a decorator of what is tested or as an attribute of a suite;
``passes`` those of a second ``TestGood…`` that could fail for it. Where a plugin of delf is what is
broken, its own tests have the suite that it passes.
Every test of a suite has to fail for one of them.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import delf.testing
from support.program import run
from support.workspace import ROOT

BROKEN = Path(__file__).parent / "broken"
TESTS = ROOT / "tests"
SUITES = {
    path.stem: getattr(delf.testing, f"{path.stem.title().replace('_', '')}Contract")
    for path in sorted(BROKEN.glob("*.py"))
    if path.stem != "planting"
}
INI = """
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
python_files = *.py
filterwarnings = error
"""
LINE = re.compile(
    r"^(FAILED|ERROR|PASSED) \S+?(\w+)\.py::(\w+)::(\w+)(?:\[.*?\])?(?: - (.*))?$", re.MULTILINE
)
SLOW = ("connection", "sandbox", "strategy")
GROUPS = {"quick": [kind for kind in SUITES if kind not in SLOW], **{kind: [kind] for kind in SLOW}}
"""Suites that run together: a process of its own for each would cost more than its tests."""


class Outcomes(NamedTuple):
    """The passed and failed tests of a file's classes, with the reasons."""

    passed: dict[str, set[str]]
    failed: dict[str, set[str]]
    message: dict[str, str]


def run_suites(
    expected: dict[str, dict[str, set[str]]], tmp_path: Path, *more: str
) -> tuple[dict[str, Outcomes], str]:
    """Run the tests of classes: the tests that must fail or pass, or else all."""
    chosen = [
        f"{BROKEN / kind}.py::{owner}::{test}" if test else f"{BROKEN / kind}.py::{owner}"
        for kind, owners in expected.items()
        for owner, tests in owners.items()
        for test in sorted(tests) or planted(kind, "passes")[owner] or [""]
    ]
    (tmp_path / "pytest.ini").write_text(INI)
    options = ["-c", tmp_path / "pytest.ini", "--rootdir", ROOT, "-rA", "-q"]
    options += more or ["--tb=no"]
    options += ["--disable-plugin-autoload", "-p", "no:cacheprovider"]
    options += ["-p", "pytest_asyncio.plugin", "-p", "delf_devkit.testing.pytest_plugin"]
    environ = {**os.environ, "PYTHONPATH": str(TESTS), "COLUMNS": "1000"}
    command = ["-m", "pytest", *options, *chosen]
    result = run(command, cwd=tmp_path, env=environ, text=True, timeout=200)
    assert result.returncode in (0, 1), result.stdout + result.stderr
    found = {kind: Outcomes({}, {}, {}) for kind in expected}
    for status, kind, owner, test, why in LINE.findall(result.stdout):
        outcomes = found[kind]
        target = outcomes.passed if status == "PASSED" else outcomes.failed
        target.setdefault(owner, set()).add(test)
        outcomes.message[owner] = outcomes.message.get(owner, "") + why
    return found, result.stdout + result.stderr


def planted(kind: str, attribute: str) -> dict[str, Any]:
    """Return an attribute of each class in a file, read without running it; None if missing."""
    tree = ast.parse((BROKEN / f"{kind}.py").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not node.name.startswith("Test"):
            continue
        message = {
            ast.unparse(part.targets[0]): part.value
            for part in node.body
            if isinstance(part, ast.Assign)
        }
        for call in node.decorator_list:
            assert isinstance(call, ast.Call)
            message["breaks"] = ast.Tuple(call.args, ast.Load())
            message |= {str(keyword.arg): keyword.value for keyword in call.keywords}
        found[node.name] = ast.literal_eval(message[attribute]) if attribute in message else None
    return found


def breaks_of(kind: str) -> dict[str, set[str]]:
    """Return the tests that must fail for each class; a class may name them by a pattern."""
    names = dir(SUITES[kind])
    return {
        owner: {name for test in tests or () for name in fnmatch.filter(names, test) or [test]}
        for owner, tests in planted(kind, "breaks").items()
    }


def test_contract_leak_report_hides_the_secret(tmp_path: Path) -> None:
    leaks = {o: t for o, t in breaks_of("connection").items() if o.startswith("TestLeaks")}
    assert len(leaks) == 7
    _, output = run_suites({"connection": leaks}, tmp_path, "--tb=long", "--showlocals")
    assert output.count("[redacted]") >= len(leaks)
    assert "tok-secret" not in output
    assert "pass-secret" not in output


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("group", GROUPS)
def test_contract_suite_fails_for_a_broken_plugin(group: str, tmp_path: Path) -> None:
    found, _ = run_suites({kind: breaks_of(kind) for kind in GROUPS[group]}, tmp_path)
    for kind, outcomes in found.items():
        check_suite(kind, outcomes)


def check_suite(kind: str, outcomes: Outcomes) -> None:
    """Check that each class failed its tests, and that each test failed for some class."""
    expected, says = breaks_of(kind), planted(kind, "says")
    for owner, tests in expected.items():
        failed = outcomes.failed.get(owner, set())
        if owner.startswith("TestGood"):
            assert outcomes.passed.get(owner)
            assert not failed, f"{owner} keeps the contract"
        else:
            assert tests, f"{owner} says in `breaks` what has to notice"
            assert tests <= failed, f"{owner} was not caught by {tests - failed}"
            assert (says[owner] or "") in outcomes.message[owner], owner
    bases = [suite for suite in SUITES.values() if suite in SUITES[kind].__mro__[1:]]
    inherited = {name for suite in bases for name in dir(suite)}
    all_tests = {name for name in dir(SUITES[kind]) if name.startswith("test_")} - inherited
    blind = all_tests - set().union(*expected.values())
    assert not blind, f"nothing shows that these can fail: {sorted(blind)}"
