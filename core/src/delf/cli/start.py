"""Start of the process ``delf``: Ctrl-C while modules are imported shows no traceback.

The program is the package ``delf-cli``, which every plugin with commands brings.
"""

from __future__ import annotations

import gc
import importlib
import signal

_OBJECTS = 50_000


def main() -> int:
    """The program's exit status."""
    # Hardly anything that a start makes is garbage: to look for some after each 700 objects, and
    # once more at the end, when the memory is given back anyway, is a quarter of a short run.
    gc.set_threshold(_OBJECTS)
    try:
        return _run()
    finally:
        gc.freeze()


def _run() -> int:
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not when it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        importlib.import_module("delf_cli")
        name = "delf_cli.main"
    except ModuleNotFoundError:
        name = "delf.cli.alone"
    program = importlib.import_module(name)
    signal.signal(signal.SIGINT, handler)
    try:
        return program.main()
    except KeyboardInterrupt:
        return 130
