"""Duties of every command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, ClassVar, Final, cast

import click
import pytest

from delf.machine.interpreter import own_python
from delf.plugins.host import PluginHost
from delf.specs import CommandSpec
from delf_devkit.testing.contracts.base import IN_A_COMMAND, Contract, fail_without, needs
from delf_devkit.testing.contracts.guard import started_programs, time_limit
from delf_devkit.testing.contracts.leaks import captured_logs, is_secret_name, secrets_of
from delf_devkit.testing.project import DelfProject, Outcome

# The processor time that an import may take, ten times what delf's own commands need.
_IMPORT_SECONDS: Final = 1.5
_SECONDS_BEFORE_INTERRUPT: Final = 0.3
_USAGE_STATUS: Final = 2
_TRACEBACK: Final = "Traceback (most recent call last)"
_MEASURE_IMPORT: Final = """
import json, sys, time
sys.path[:] = json.loads(sys.argv[1])
import click, delf
before = time.process_time()
__import__(sys.argv[2])
print(time.process_time() - before)
"""
# A program that runs ``delf`` and writes to a pipe when the command itself begins.
_PROGRAM_THAT_REPORTS_ITS_START: Final = """
import os, sys, click
from delf_cli.main import main
marks, invoke = int(sys.argv.pop(1)), click.Command.invoke
def marked(command, context):
    if type(command) is click.Command:
        os.write(marks, b"x")
    return invoke(command, context)
click.Command.invoke = marked
sys.argv[0] = "delf"
sys.exit(main())
"""


class CommandContract(Contract):
    """Tests for a command of ``delf``; set ``name`` to its name, as in its spec.

    The plugin must be installed. ``runs`` are lists of arguments with which the command succeeds,
    even repeatedly. ``failing_runs`` are lists with which the command fails, for example because a
    service refuses the work. ``waiting_run`` is a list with which the command works or waits for
    seconds, for the test of Ctrl-C. Override the fixture ``delf_project`` for a project with files,
    and set ``environ`` for environment variables of the runs. ``secrets`` are keys and passwords
    that must never be shown.
    """

    seconds: ClassVar[float] = 10.0
    name: ClassVar[str] = ""
    runs: ClassVar[Sequence[Sequence[str]]] = ()
    failing_runs: ClassVar[Sequence[Sequence[str]]] = ()
    waiting_run: ClassVar[Sequence[str]] = ()
    environ: ClassVar[dict[str, str]] = {}

    @pytest.fixture
    def command(self) -> click.Command:
        """The command under test, from its plugin."""
        return cast("click.Command", PluginHost.discover(environ={}).resolve(self._spec()))

    # -- its help -----------------------------------------------------------------------

    def test_help_describes_every_command_and_option(self, command: click.Command) -> None:
        for path, each in _commands(command, (self._name,)):
            assert (each.help or "").strip(), f"`delf {path}` has no help: give it a docstring"
            assert r"\b" not in (each.help or ""), (
                rf"the help of `delf {path}` shows \b and wraps its examples, as the docstring "
                "is raw: take the r before the quotes out"
            )
            for parameter in each.params:
                if isinstance(parameter, click.Option) and not parameter.hidden:
                    assert (parameter.help or "").strip(), (
                        f"{parameter.opts[0]} of `delf {path}` has no help=: nobody learns what it "
                        "does from `--help`"
                    )

    def test_help_is_shown(self, delf_project: DelfProject) -> None:
        outcome = self._run(delf_project, "--help").succeeded()
        assert "Usage:" in outcome.stdout, f"--help prints {outcome.stdout[:200]!r}"

    def test_import_is_quick(self, command: click.Command) -> None:
        # In a new process, because this one has imported the module already.
        function: Any = command.callback or type(command)
        result = subprocess.run(  # noqa: S603 - this interpreter, no shell
            [own_python(), "-c", _MEASURE_IMPORT, json.dumps(sys.path), function.__module__],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        *printed, seconds = result.stdout.splitlines()
        assert not printed, f"importing the command prints {printed[0]!r}"
        assert float(seconds) < _IMPORT_SECONDS, (
            f"importing the command takes {float(seconds):.1f} s of processor time, also for "
            "`--help`: import large packages in the function that needs them"
        )

    # -- its runs -----------------------------------------------------------------------

    def test_runs_succeed_without_input(self, delf_project: DelfProject) -> None:
        for arguments in self._runs():
            outcome = self._run(delf_project, *arguments).succeeded()
            assert _TRACEBACK not in outcome.stderr, outcome.stderr

    def test_unknown_option_is_refused(self, delf_project: DelfProject) -> None:
        for arguments in self._runs():
            outcome = self._run(delf_project, *arguments, "--no-such-option")
            assert outcome.exit_code == _USAGE_STATUS, (
                f"with a mistyped option it ends with the status {outcome.exit_code}: what the "
                "user meant is ignored; let click refuse it with the status 2"
            )

    @needs("failing_runs")
    def test_failure_has_a_message_and_a_status(self, delf_project: DelfProject) -> None:
        for arguments in self.failing_runs:
            outcome = self._run(delf_project, *arguments)
            assert outcome.exit_code != 0, (
                f"`{self._line(arguments)}` fails and ends with the status 0: a script that calls "
                "it goes on; raise a DelfError or click.ClickException"
            )
            assert _TRACEBACK not in outcome.stderr, (
                f"`{self._line(arguments)}` fails with a traceback: raise a DelfError that says "
                f"what to do\n{outcome.stderr}"
            )
            assert outcome.stderr.strip(), (
                f"`{self._line(arguments)}` fails and says nothing on the standard error: what is "
                "printed on the standard output is taken for its result"
            )

    def test_json_output_can_be_parsed(
        self, delf_project: DelfProject, command: click.Command
    ) -> None:
        if not any("--json" in each.opts for each in command.params):
            return
        for arguments in self._runs():
            text = self._run(delf_project, *arguments, "--json").succeeded().stdout
            has_json_lines = bool(text.strip()) and all(map(_is_json, text.splitlines()))
            assert _is_json(text) or has_json_lines, (
                f"--json prints {text[:100]!r}, which is not JSON: print notes with err=True"
            )

    @pytest.mark.skipif(os.name != "posix", reason="no signals")
    @needs("waiting_run")
    def test_interrupt_ends_the_command(self, delf_project: DelfProject) -> None:
        status = self._status_after_interrupt(delf_project)
        assert status != 0, (
            "after Ctrl-C it ends with the status 0: a script that calls it goes on; let "
            "KeyboardInterrupt pass"
        )

    # -- secrets and traces -------------------------------------------------------------

    def test_secrets_are_no_arguments_of_the_command_line(self, command: click.Command) -> None:
        for path, each in _commands(command, (self._name,)):
            for option in each.params:
                if not isinstance(option, click.Option) or option.is_flag or option.count:
                    continue  # without a text, the option takes no secret
                if not is_secret_name(str(option.name)):
                    continue
                assert option.envvar or option.prompt or option.hide_input, (
                    f"{option.opts[0]} of `delf {path}` takes a secret: {IN_A_COMMAND}, such as "
                    "envvar=…, or ask with prompt=True and hide_input=True"
                )

    def test_secrets_are_never_shown(self, delf_project: DelfProject) -> None:
        secrets = secrets_of(self, {})
        for arguments in (*self._runs(), *self.failing_runs, ("--help",)):
            with captured_logs() as lines, started_programs() as programs:
                outcome = self._run(delf_project, *arguments)
            for text in (outcome.stdout, outcome.stderr, *lines):
                secrets.check(text, f"`{self._line(arguments)}` shows a secret")
            for text in programs:
                secrets.check(text, IN_A_COMMAND)

    async def test_use_leaves_the_process_unchanged(
        self, delf_project: DelfProject, command: click.Command
    ) -> None:
        def run_all() -> None:
            for arguments in self._runs():
                self._run(delf_project, *arguments)

        async def use() -> None:
            await asyncio.to_thread(run_all)  # a command may run its own event loop

        await self.check_nothing_remains(command, use, may_print=True)

    def _status_after_interrupt(self, project: DelfProject) -> int:
        """Start ``waiting_run`` in a process, press Ctrl-C, and return the exit status."""
        arguments = [*self._name.split(), *self.waiting_run]
        read_end, write_end = os.pipe()
        with subprocess.Popen(  # noqa: S603 - this interpreter, no shell
            [own_python(), "-c", _PROGRAM_THAT_REPORTS_ITS_START, str(write_end), *arguments],
            cwd=project.root,
            env=project.environment(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_end,),
        ) as process:
            os.close(write_end)
            try:
                os.read(read_end, 1)  # wait until the command begins, or its process ends
                # The command has to wait, so a timeout is expected.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_SECONDS_BEFORE_INTERRUPT)
                    pytest.fail(f"waiting_run has ended at once, with the status {status}")
                process.send_signal(signal.SIGINT)
                return process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                pytest.fail(
                    f"it has not ended {self.seconds:g} s after Ctrl-C: let KeyboardInterrupt pass"
                )
            finally:
                os.close(read_end)
                process.kill()

    # -- what it is about ---------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self.name or fail_without(self, "`name`, that of the command")

    def _spec(self) -> CommandSpec:
        specs = PluginHost.discover(environ={}).specs(CommandSpec)
        own_spec = next((spec for spec in specs if spec.name == self._name), None)
        if own_spec is None:
            pytest.fail(f"no plugin has the command {self._name}: delf plugins install -e .")
        return own_spec

    def _runs(self) -> Sequence[Sequence[str]]:
        return self.runs or fail_without(self, "`runs`, at least one list of arguments")

    def _line(self, arguments: Sequence[str]) -> str:
        return " ".join(["delf", self._name, *arguments])

    def _run(self, project: DelfProject, *arguments: str) -> Outcome:
        __tracebackhide__ = True

        def fail(_frame: FrameType | None) -> None:
            pytest.fail(
                f"`{self._line(arguments)}` has not ended after {self.seconds:g} s without input: "
                "at the end of the input, and where nobody can answer, end with an error",
                pytrace=False,
            )

        with time_limit(self.seconds, fail):
            return project.run(*self._name.split(), *arguments, **self.environ)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all its subcommands, each with its full name as users type it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _commands(inner, (*path, name))
