"""In CI a skip is a failure, unless no machine of CI's kind could run the test."""

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
MODULE = 'import pytest; pytest.skip("no Docker here", allow_module_level=True)'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'tests'}\n")
    (tmp_path / "test_a.py").write_text(TESTS)
    return tmp_path


def summary(suite: Path, ci: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--disable-plugin-autoload"]
    environment = {**os.environ, "CI": ci}
    result = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True)
    return result.stdout.splitlines()[-1]


def test_a_missing_service_fails_in_ci(suite: Path) -> None:
    assert summary(suite, "true").startswith("1 failed, 1 skipped, 1 xfailed")


def test_a_module_that_skips_itself_fails_in_ci(suite: Path) -> None:
    (suite / "test_b.py").write_text(MODULE)
    assert "1 error" in summary(suite, "true")


def test_elsewhere_a_skip_is_a_skip(suite: Path) -> None:
    (suite / "test_b.py").write_text(MODULE)
    assert summary(suite, "").startswith("3 skipped, 1 xfailed")
