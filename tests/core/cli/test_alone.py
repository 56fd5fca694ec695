"""Tests of the program without any package that adds commands."""

import subprocess
import sys

import pytest

import delf
from support.program import environment

PROGRAM = """
import sys
sys.modules["delf_cli"] = None  # as where it is not installed
sys.argv[0] = "delf"
from delf.cli.start import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--version"], 0, f"delf {delf.__version__}"),
        ([], 2, "pip install --find-links dist 'delf-core[standard]'"),
        (["run", "x"], 2, "pip install --find-links dist delf-plugin-console"),
        (["rnu"], 2, "error: no command 'rnu' is installed"),
    ],
)
def test_core_without_plugins_shows_version_and_install_hint(tmp_path, words, status, message):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, message in done.stdout + done.stderr) == (status, True)
