"""A project folder for running ``delf`` as on a command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delf.machine.interpreter import own_python
from delf_devkit.testing.hosts import forget_modules, install_plugin
from delf_devkit.testing.models import FILE_PREFIX, PROMPTS_SUFFIX, script


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command.

    Args:
        exit_code: The exit status.
        stdout: The standard output.
        stderr: The standard error.
    """

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The standard output, parsed as JSON."""
        return json.loads(self.stdout)

    def succeeded(self) -> Outcome:
        """Return this outcome if the command succeeded; else fail the test and show the output."""
        if self.exit_code != 0:
            pytest.fail(
                f"exit status {self.exit_code}\n{self.stdout}\n{self.stderr}", pytrace=False
            )
        return self


class DelfProject:
    """A project folder with files, plugins and a model of its own, for running ``delf``.

    The user's configuration and keys have no effect: ``DELF_*`` and ``*_API_KEY`` are removed from
    the environment. The data folder is inside the project, and the project is trusted.

    Args:
        root: The folder; made here.
        monkeypatch: Undoes what :meth:`run` changes in this process.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.site = root / ".site"
        self.site.mkdir()
        self.environ: dict[str, str] = {}
        self._monkeypatch = monkeypatch
        self._replies_path = root / ".replies.json"
        self._prompts_path = self._replies_path.with_suffix(PROMPTS_SUFFIX)

    # -- what is in it ------------------------------------------------------------------

    def write(self, name: str, text: str) -> Path:
        """Write a file with dedented content.

        Args:
            name: The path in the project, such as ``delf.toml``.
            text: The content.
        """
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def write_config(self, text: str) -> Path:
        """Write ``delf.toml``."""
        return self.write("delf.toml", text)

    def install_plugin(self, name: str, files: Mapping[str, str], **options: Any) -> Path:
        """Install a plugin for this project.

        Args:
            name: The name.
            files: The modules by path: ``{"delf_x/__init__.py": …, "delf_x/plugin.py": …}``.
            options: Arguments of :func:`delf_devkit.testing.hosts.install_plugin`.
        """
        for path, text in files.items():
            self.write(f".site/{path}", text)
        return install_plugin(self.site, name, **options)

    def install_model(self, *replies: str) -> str:
        """Install a model with scripted replies; return its name, for the option ``--llm``.

        A further call replaces the replies.

        Args:
            replies: The replies in order; a reply without a code block is taken as a script.
        """
        if not self._replies_path.exists():
            module = "delf_devkit.testing.file_model_plugin"
            install_plugin(self.site, "testing", module=module)
        texts = [text if "```" in text else script(text) for text in replies]
        self._replies_path.write_text(json.dumps(texts), encoding="utf-8")
        self._prompts_path.unlink(missing_ok=True)
        return f"{FILE_PREFIX}{self._replies_path}"

    @property
    def prompts(self) -> list[str]:
        """The prompts sent to the model."""
        if not self._prompts_path.exists():
            return []
        lines = self._prompts_path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    # -- running it ---------------------------------------------------------------------

    def run(self, *arguments: str, stdin: str = "", **environ: str) -> Outcome:
        """Run ``delf`` in this process, which is faster than a new process.

        Call this method only in synchronous tests.

        Args:
            arguments: The arguments.
            stdin: The standard input, which is not a terminal.
            environ: Variables for this run.
        """
        from delf_cli.main import run_program

        out = _Stream()
        err = _Stream()
        modules_before = set(sys.modules)
        environment = self.environment(environ)
        with self._monkeypatch.context() as patch:
            # The user's keys must not influence a test.
            for name in set(os.environ) - set(environment):
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.chdir(self.root)
            patch.setattr(sys, "path", [str(self.site), *sys.path])
            patch.setattr(sys, "argv", ["delf", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = _exit_code(run_program)
            finally:
                forget_modules(self.site, modules_before)
        return Outcome(code, out.text, err.text)

    def spawn(
        self, *arguments: str, stdin: str = "", timeout: float = 60.0, **environ: str
    ) -> Outcome:
        """Run ``delf`` in a separate process.

        Args:
            arguments: The arguments.
            stdin: The standard input, which is not a terminal.
            timeout: Seconds.
            environ: Variables for this run.
        """
        result = subprocess.run(  # noqa: S603 - this interpreter, no shell
            self.command(*arguments),
            cwd=self.root,
            env=self.environment(environ),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return Outcome(result.returncode, result.stdout, result.stderr)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that :meth:`spawn` runs, for tests that start the process."""
        code = "import sys; from delf_cli.main import main; sys.argv[0] = 'delf'; sys.exit(main())"
        return [own_python(), "-c", code, *arguments]

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the user's environment variables, overridden by the project's and by extra ones.

        The user's API keys and variables of delf are left out.
        """
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("DELF_") and not name.endswith("_API_KEY")
        }
        path = os.pathsep.join(filter(None, (str(self.site), variables.get("PYTHONPATH"))))
        python_variables = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
        data = {"XDG_DATA_HOME": str(self.root / ".data"), "DELF_TRUST": str(self.root.resolve())}
        return {**variables, **python_variables, **data, **self.environ, **extra}


class _Stream(io.TextIOWrapper):
    """A captured stream with the ``buffer`` that programs write bytes to."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        self.flush()
        content = self.buffer
        assert isinstance(content, io.BytesIO)
        return content.getvalue().decode("utf-8")


def _exit_code(main: Any) -> int:
    """Run a program's main function; return the exit status that a shell would see."""
    try:
        result = main()
    except SystemExit as stop:
        result = stop.code
    except KeyboardInterrupt:
        return 130
    if result is None:
        return 0
    if isinstance(result, int):
        return result
    sys.stderr.write(f"{result}\n")
    return 1
