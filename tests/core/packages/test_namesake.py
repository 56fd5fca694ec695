"""Tests of the warning about an unrelated package ``delf`` that is installed, too."""

import subprocess
import sys

import pytest

import delf
from delf.packages import namesake
from support.workspace import CORE


@pytest.fixture
def beside(tmp_path):
    """Return a function that imports delf in a new process beside such folders, for its stderr."""
    (tmp_path / "delf").symlink_to(CORE / "src/delf")

    def imported(*names: str) -> str:
        for name in names:
            (tmp_path / name).mkdir()
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport delf; print(delf.__file__)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == f"{tmp_path}/delf/__init__.py\n"
        return done.stderr

    return imported


def test_own_packages_cause_no_namesake_warning(beside):
    assert beside("delf_core-0.1.0.dist-info", "delf_plugin_sql-0.1.0.dist-info", "delf-x") == ""


@pytest.mark.parametrize("name", ["delf-0.1.4.dist-info", "delf-2.egg-info"])
def test_namesake_warning_shows_the_install_command(beside, name):
    message = beside(name)
    assert namesake.WARNING in message
    assert "pip uninstall delf" in message
    assert message.count("UserWarning") == 1


def test_namesake_check_ignores_unreadable_paths():
    assert namesake.is_installed_beside("/no/such/archive.zip/delf/__init__.py") is False
    assert namesake.is_installed_beside(delf.__file__) is False
