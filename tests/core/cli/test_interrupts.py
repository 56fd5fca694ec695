"""Tests of Ctrl-C while the program starts: it is never lost, and shows no traceback."""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, time, types, weakref

class Module:
    pass

def presses(*_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the signal is handled here, where Python drops exceptions
        pass

def main():
    module = Module()
    seen = weakref.ref(module, presses)
    del module
    time.sleep(60)
    print("it went on")
    return 0

program = types.ModuleType("delf_cli.main")
program.main = main
sys.modules |= {"delf_cli": types.ModuleType("delf_cli"), "delf_cli.main": program}
from delf.cli.start import main
sys.exit(main())
"""


def test_ctrl_c_whose_exception_python_drops_still_ends_the_program():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
