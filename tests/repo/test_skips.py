"""The two tiers of tests; and in CI a skip is a failure, unless no machine of its kind could run it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.workspace import ROOT

TESTS = """
import pytest

def test_service(): pytest.skip("no PostgreSQL here")

@pytest.mark.skipif(True, reason="needs macOS")
def test_elsewhere(): pass

@pytest.mark.xfail(reason="known", strict=True)
def test_known(): assert False
"""
SERVICES = """
import pytest

@pytest.fixture
def postgres_server(): return "up"

def test_by_its_fixture(postgres_server): pass

@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_by_a_parameter(kind): pass

def test_when_it_runs(request): request.getfixturevalue("postgres_server")
"""
MODULE = 'import pytest; pytest.skip("no Docker here", allow_module_level=True)'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\n")
    (tmp_path / "test_a.py").write_text(TESTS)
    return tmp_path


def summary(suite: Path, ci: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--disable-plugin-autoload"]
    command += arguments
    environment = {**os.environ, "CI": ci}
    result = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True)
    return result.stdout.splitlines()[-1]


def test_missing_service_fails_in_ci(suite: Path) -> None:
    assert summary(suite, "true").startswith("1 failed, 1 skipped, 1 xfailed")


def test_self_skipping_module_fails_in_ci(suite: Path) -> None:
    (suite / "test_b.py").write_text(MODULE)
    assert "1 error" in summary(suite, "true")


def test_skipped_test_passes_outside_ci(suite: Path) -> None:
    (suite / "test_b.py").write_text(MODULE)
    assert summary(suite, "").startswith("3 skipped, 1 xfailed")


def test_quick_run_excludes_service_tests(suite: Path) -> None:
    (suite / "test_a.py").write_text(SERVICES)
    quick = summary(suite, "true", "-m", "not services")
    assert quick.startswith("1 failed, 1 passed, 2 deselected")
    assert summary(suite, "true", "-m", "services").startswith("2 passed, 2 deselected")
    unmarked = SERVICES.replace("def test_when", "@pytest.mark.services\ndef test_when")
    (suite / "test_a.py").write_text(unmarked)
    assert summary(suite, "true", "-m", "services").startswith("3 passed, 1 deselected")


def test_ci_and_contributing_use_the_same_commands() -> None:
    for name in (".ci/run", "CONTRIBUTING.md"):
        assert "make test-all" in (ROOT / name).read_text()
    readme = (ROOT / "README.md").read_text()
    assert "make test " in readme
    assert "make test-all" in readme
