"""What users' type checkers make of delf."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.workspace import ROOT


@pytest.mark.timeout(180)
def test_answers_type_is_inferred():
    file = Path(__file__).with_name("typed_answers.py")
    command = [sys.executable, "-m", "pyright", str(file)]
    message = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert message.returncode == 0, message.stdout
