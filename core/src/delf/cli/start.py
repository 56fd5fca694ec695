"""Where the process of ``delf`` starts: Ctrl-C while modules are imported shows no traceback."""

from __future__ import annotations

import signal


def main() -> int:
    """The program's exit status."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not when it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from delf.cli.main import main as program

    signal.signal(signal.SIGINT, handler)
    try:
        return program()
    except KeyboardInterrupt:
        return 130
