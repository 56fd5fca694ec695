"""Tests of ``delf.testing``, a name whose content another package provides."""

import subprocess
import sys

CODE = """
from delf.plugins import discovery
real = discovery.metadata_readers
discovery.metadata_readers = lambda: (
    each for each in real() if "\\nName: delf-plugin-devkit\\n" not in each("METADATA")
)
from delf import DelfError
try:
    from delf.testing import ConnectionContract
except DelfError as error:
    print(error.code, error.message, error.hint, sep="|")
"""


def test_missing_devkit_error_says_what_to_install() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert result.stdout.strip() == (
        "ERR-REQ-001|delf.testing is not installed|delf plugins install 'delf-core[testing]'"
    ), result.stderr
