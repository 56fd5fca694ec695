"""Documentation pages as programs: every block of Python runs, what it shows is compared.

A page is a project. Its blocks are taken in order; all of Python's run where the first of them stands:

- A block whose first line is ``# path/to/file`` is that file. ``src`` is on ``sys.path``;
  files under ``tests`` are run with pytest at the end; one with
  ``[project.entry-points.delf]`` is installed.
- Any other ``python`` block is executed, in one namespace for the page.
- In a ``console`` block, lines that start with ``$ delf`` are run, in the page's folder or where
  ``$ cd`` went; ``$ export`` sets a variable, which is not set before.
- A ``text`` block right after one of these is what it printed; ``…`` stands for anything.

Where code asks a real model, it does: over HTTP, from a server on loopback that answers with
the page's own comments, in order, none left out and none asked for twice::

    <!-- model answers
    print(await stock("desk"))
    -->

An answer that is not a script stands after ``<!-- model says``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delf.testing import install_plugin, script
from support.openai_server import OpenAIServer
from support.program import DELF, run
from support.workspace import ROOT

_FENCE: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANSWER: Final = re.compile(r"^<!-- model (answers|says)\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"^# ([\w./-]+\.(?:py|toml))$")
_ENTRY_POINTS: Final = "[project.entry-points.delf]"
_LEFT_OUT: Final = re.compile(r"^\$ export (\w+)=…$", re.MULTILINE)
_TESTS: Final = Path(__file__).parents[1]
_RUNNER: Final = Path(__file__).with_name("page_runner.py")
SECONDS: Final = 150


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        language: What stands after the fence.
        code: Its text.
        line: The line of its fence.
        shows: What it prints, if the page says so.
    """

    language: str
    code: str
    line: int
    shows: str | None = None

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        found = _FILE.match(self.code.partition("\n")[0])
        if found is None and self.language == "toml" and _ENTRY_POINTS in self.code:
            return "pyproject.toml"
        return found[1] if found else None


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page; what they print is a part of them."""
    found = list(_FENCE.finditer(text))
    for match, after in zip(found, [*found, None][1:], strict=True):
        if match[1] == "text":
            continue
        shows = None
        if (
            after is not None
            and after[1] == "text"
            and not text[match.end() : after.start()].strip()
        ):
            shows = after[2]
        yield Block(match[1], match[2], text.count("\n", 0, match.start()) + 1, shows)


def answers_of(text: str) -> list[str]:
    """What the model answers on a page."""
    found = _ANSWER.finditer(text)
    return [script(m[2]) if m[1] == "answers" else m[2].strip() for m in found]


class PageError(AssertionError):
    """A page does not do what it says."""


def run_page(page: Path, folder: Path, *, more: Mapping[str, str] | None = None) -> None:
    """Run a page.

    Args:
        page: The Markdown file.
        folder: An empty folder to run it in.
        more: Further variables.

    Raises:
        PageError: With the line of the block.
    """
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT)
    folder.mkdir(exist_ok=True)
    answers = answers_of(text)
    with ExitStack() as stack:
        server = stack.enter_context(OpenAIServer(answers))
        environ = _environ(folder, server) | dict(more or {})
        blocks = list(blocks_of(text))
        for block in blocks:
            if block.file is not None:
                _write(block, folder)
        code = [b for b in blocks if b.language == "python" and b.file is None]
        if any(_ENTRY_POINTS in block.code for block in blocks):
            _check_built(name, folder)
            _check_plugins(name, folder, environ)
        shell = Shell(folder, environ, {name: environ[name] for name in _LEFT_OUT.findall(text)})
        shell.environ = {k: v for k, v in environ.items() if k not in shell.left_out}
        typed = [block for block in blocks if block.language == "console"]
        first = code[0].line if code else 0
        for block in typed:
            if block.line < first:
                _run_console(name, block, shell)
        _run_python(name, code, folder, environ)
        for block in typed:
            if block.line > first:
                _run_console(name, block, shell)
        if (folder / "tests").is_dir():
            _run_tests(name, folder, environ)
        if len(server.requests) != len(answers):
            asked = f"the model was asked {len(server.requests)} times"
            raise PageError(f"{name}: {asked}, and the page has {len(answers)} answers")


def _environ(folder: Path, server: OpenAIServer) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DELF_", "OPENAI_"))}
    path = os.pathsep.join(map(str, (folder / "src", _TESTS)))
    kept |= {"PYTHONPATH": path, "HOME": str(folder), "NO_COLOR": "1"}
    kept |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"}
    return kept | {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-of-the-docs"}


def _write(block: Block, folder: Path) -> None:
    assert block.file is not None
    path = folder / block.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code, encoding="utf-8")
    if path.parent.parent == folder / "src":
        (path.parent / "__init__.py").touch()
        (path.parent / "py.typed").touch()
    if _ENTRY_POINTS in block.code:
        project = tomllib.loads(block.code)["project"]
        for plugin, target in project["entry-points"]["delf"].items():
            install_plugin(
                folder / "src",
                plugin,
                module=target,
                requires=project.get("dependencies"),
                keywords=project.get("keywords", ()),
                summary=project.get("description", "From a page."),
            )


def _check_built(page: Path, folder: Path) -> None:
    """A package of a page can be installed: what builds it finds its files."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    if "build-system" not in project:
        return
    from hatchling.builders.wheel import WheelBuilder

    try:
        built = [
            item.distribution_path for item in WheelBuilder(str(folder)).recurse_included_files()
        ]
    except ValueError as error:
        raise PageError(f"{page}: its package cannot be built: {error}") from None
    packages = {path.parent.name for path in (folder / "src").glob("*/plugin.py")}
    missing = sorted(name for name in packages if f"{name}/plugin.py" not in built)
    if missing:
        raise PageError(f"{page}: its package is built without {missing}")


def _check_plugins(page: Path, folder: Path, environ: dict[str, str]) -> None:
    """The plugins of a page are installed; those whose code it has must load."""
    result = _run(["delf", "plugins", "--json"], folder, environ)
    written = {path.name for path in (folder / "src").glob("delf_*") if path.is_dir()}
    for row in json.loads(result.stdout):
        name = str(row["distribution"]).replace("-", "_").replace("delf_plugin_", "delf_")
        if name in written and row["state"] != "loaded":
            raise PageError(
                f"{page}: its plugin {row['name']!r} is {row['state']}: {row['reason']}"
            )


def _run_python(page: Path, blocks: list[Block], folder: Path, environ: dict[str, str]) -> None:
    if not blocks:
        return
    given = json.dumps([{"code": b.code, "where": f"{page}:{b.line}"} for b in blocks])
    result = _run([sys.executable, _RUNNER], folder, environ, given)
    if result.returncode != 0:
        raise PageError(f"{page} does not run:\n{result.stderr}")
    printed = json.loads(result.stdout)
    for block, output in zip(blocks, printed, strict=True):
        _compare(page, block, output)


@dataclass
class Shell:
    """Where the commands of a page are typed.

    Args:
        folder: The present one.
        environ: Its variables.
        left_out: Those that are set only where the page does so, with a value that it leaves out.
    """

    folder: Path
    environ: dict[str, str]
    left_out: dict[str, str]


def _run_console(page: Path, block: Block, shell: Shell) -> None:
    printed = ""
    for line in block.code.splitlines():
        command = line.removeprefix("$ ")
        if line.startswith("$ cd "):
            shell.folder /= command.removeprefix("cd ")
        elif line.startswith("$ export "):
            name, _, value = command.removeprefix("export ").partition("=")
            shell.environ[name] = shell.left_out.get(name, value)
        if not line.startswith("$ delf"):
            continue
        result = _run(shlex.split(command, comments=True), shell.folder, shell.environ)
        if result.returncode != 0:
            said = result.stdout + result.stderr
            raise PageError(f"{page}:{block.line}: {command!r} fails:\n{said}")
        printed += result.stdout
    _compare(page, block, printed)


def _run_tests(page: Path, folder: Path, environ: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--asyncio-mode=auto",
    ]
    options = ["-o", "asyncio_default_fixture_loop_scope=function"]
    plugins = [
        "--disable-plugin-autoload",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "delf_devkit.testing.pytest_plugin",
    ]
    options += ["--import-mode=importlib", "-W", "error", "tests"]
    result = _run([*command, *plugins, *options], folder, environ)
    if result.returncode != 0:
        raise PageError(f"{page}: its tests fail:\n{result.stdout}{result.stderr}")


def _run(
    command: Sequence[str | Path], folder: Path, environ: dict[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    words = [DELF, *command[1:]] if command[0] == "delf" else command
    return run(words, cwd=folder, env=environ, given=given, timeout=SECONDS, text=True)


def _compare(page: Path, block: Block, printed: str) -> None:
    if block.shows is None:
        return
    pattern = ".*?".join(re.escape(part) for part in block.shows.strip().split("…"))
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        raise PageError(
            f"{page}:{block.line} says that it prints\n{block.shows}\nand it prints\n{printed}"
        )
