"""Start of the process ``delf``: Ctrl-C while modules are imported shows no traceback.

The program is the package ``delf-cli``, which every plugin with commands brings.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
import threading

_GC_THRESHOLD = 200_000
_RESEND_SECONDS = 0.02


def main() -> int:
    """Run the ``delf`` program, and return its exit status."""
    # Starting the program makes hardly any garbage. The default collections, after every 700 new
    # objects and at the exit, would take a quarter of a short run.
    gc.set_threshold(_GC_THRESHOLD)
    try:
        return _run()
    finally:
        gc.freeze()  # the collection at the exit skips frozen objects


def _run() -> int:
    """Import and run the program.

    Ctrl-C raises ``KeyboardInterrupt`` in the program's ``main()``. At any other time, such as
    during the imports, Ctrl-C ends the process at once, without a traceback.
    """
    handler_in_main = signal.getsignal(signal.SIGINT)
    _end_process_at_interrupt()
    try:
        importlib.import_module("delf_cli")
    except ModuleNotFoundError:
        return _without_commands(sys.argv[1:])
    program = importlib.import_module("delf_cli.main")
    # If Ctrl-C arrives during a finalizer, Python passes the KeyboardInterrupt to this hook and
    # does not raise it in the program.
    sys.unraisablehook = _interrupt_again
    try:
        signal.signal(signal.SIGINT, handler_in_main)
        return program.main()
    except KeyboardInterrupt:
        return 130
    finally:
        _end_process_at_interrupt()


def _end_process_at_interrupt() -> None:
    """Make Ctrl-C end the process, unless Ctrl-C is ignored, as in a shell's background job."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt_again(failure: sys.UnraisableHookArgs) -> None:
    """Send Ctrl-C again if Python drops a ``KeyboardInterrupt`` in a finalizer or weak reference.

    The import system uses weak references, so an early Ctrl-C was sometimes lost.
    """
    if not issubclass(failure.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(failure)
        return
    # A signal to another thread would not wake up the main thread.
    main_thread = threading.main_thread().ident or 0
    timer = threading.Timer(_RESEND_SECONDS, signal.pthread_kill, (main_thread, signal.SIGINT))
    timer.daemon = True
    timer.start()


def _without_commands(words: list[str]) -> int:
    """Print the version, or a hint to install commands, because no command is installed.

    Args:
        words: The arguments of the command line.

    Returns:
        The exit status.
    """
    from delf import __version__
    from delf.packages.official import how_to_install, package_of

    if not {"--version", "-V"}.isdisjoint(words):
        sys.stdout.write(f"delf {__version__}\n")
        return 0
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None:
        reason = "no command is installed"
        package = None
    else:
        reason = f"no command {command!r} is installed"
        package = package_of("command", command)
    hint = how_to_install(package or "delf-core[standard]")
    sys.stderr.write(f"error: {reason}\nhint: {hint}\n")
    return 2
