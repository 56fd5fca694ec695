"""The ``delf`` program, whose start imports click but not the engine."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Final

import click

from delf import __version__
from delf.errors import DelfError
from delf_cli import errors, streams
from delf_cli.lazy import LazyGroup
from delf_cli.state import State, add_global_flags

COMMANDS: Final = {
    "plugins": ("delf_cli.plugins:plugins", "List, install and check plugins."),
    "trust": ("delf_cli.trusting:trust", "Show what a folder's files would do, and trust them."),
}


class Program(LazyGroup):
    """The program, with the commands of plugins.

    An error is printed as one line, and determines the exit status.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the program's own flags, and handle ``--help`` and ``--version``."""
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            streams.ignore_broken_pipe()
            raise click.exceptions.Exit(errors.BROKEN_PIPE) from None

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; the exit status is 0 unless set by ``ctx.exit``."""
        try:
            try:
                super().invoke(ctx)
            finally:
                streams.real_stdout().flush()
        except BrokenPipeError:
            streams.ignore_broken_pipe()
            ctx.exit(errors.BROKEN_PIPE)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the program.

        Args:
            args: As for :meth:`click.Command.main`.
            standalone_mode: End the process with the status instead of returning it.
            extra: As for :meth:`click.Command.main`.
        """
        state = extra.setdefault("obj", State())
        extra["prog_name"] = "delf"
        try:
            status = super().main(*args, standalone_mode=False, **extra) or errors.OK
        except (DelfError, click.ClickException, click.Abort) as error:
            # Click may have failed before it parsed --json, so look at the raw arguments.
            program_args = args[0] if args else extra.get("args")
            if program_args is None:
                program_args = sys.argv[1:]
            if "--json" in program_args:
                errors.report_json(error, redact=state.redact)
            status = errors.report(error, debug=state.debug, redact=state.redact)
        except errors.InterruptedRunError as error:
            status = errors.report(error)
        except Exception as error:
            status = errors.report(error, debug=state.debug, redact=state.redact)
        if standalone_mode:
            sys.exit(status)
        return status


@click.group(
    cls=Program,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="delf %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Tasks in plain words become short scripts that call your tools.

    \b
    delf run "Which products sold best in March?" -c shop
    delf runs list
    delf plugins
    """  # noqa: D301 - click's mark for lines that stay as they are
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


add_global_flags(cli)


def main() -> int:
    """Run the program as the entry point of a process; return the exit status."""
    status = run_program()
    _exit_despite_stuck_threads(status)
    return status


def run_program() -> int:
    """Run the command line and return its exit status, without ending the process.

    Afterwards, ``sys.stdout`` is the same stream as before, so that a process that goes on, such as
    a test run, can write to the stream.
    """
    streams.prepare()
    streams.reserve_stdout()
    try:
        status: int = cli.main(standalone_mode=False)
    finally:
        streams.flush_or_drop()
        streams.restore_stdout()
    return status


def _exit_despite_stuck_threads(status: int) -> None:
    """Exit immediately if a thread of delf still runs, because Python would wait for its end."""
    blocking_threads = (thread for thread in threading.enumerate() if not thread.daemon)
    own_threads = [thread for thread in blocking_threads if thread.name.startswith("delf-")]
    for thread in own_threads:
        thread.join(0.1)
    if any(thread.is_alive() for thread in own_threads):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
