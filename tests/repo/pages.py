"""Documentation pages as programs: a page is followed from its top to its end, as a reader does.

- A block whose first line is ``# path/to/file`` is that file, in the present folder; with ``, at
  the end`` after it, the block is added to the file. Files under
  ``tests`` are run with pytest at the end; a package that has an entry point is installed.
- Any other ``python`` block is executed there, as a program of its own. One whose first line is
  ``# continues the block above`` has the names of the ``python`` block before it.
- In a ``console`` block each line that starts with ``$`` is run, in a ``sh`` block each line:
  ``cd`` and ``export`` count. Installing is checked, and nothing is installed but folders.
- A block after ``<!-- not run: WHY -->`` is not run.
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
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from delf.hookspecs import CONNECTIONS_GROUP, ENTRY_POINT_GROUP
from delf.testing import script
from delf_console.sources import sources
from delf_devkit.testing.hosts import install_plugin
from support.openai_server import OpenAIServer
from support.program import DELF, run, start
from support.workspace import ROOT

_FENCE: Final = re.compile(
    r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_ANSWER: Final = re.compile(r"^<!-- model (answers|says)\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"^# ([\w./-]+\.(?:py|toml|yaml))(, at the end)?$")
_CONTINUES: Final = "# continues the block above"
_ENTRY_POINTS: Final = re.compile(
    r'^\[project\.entry-points\.(delf|"delf\.connections")\]$', re.MULTILINE
)
_LEFT_OUT: Final = re.compile(r"^(?:\$ )?export (\w+)=…$", re.MULTILINE)
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
        is_run: Whether it can be run where pages are tested.
    """

    language: str
    code: str
    line: int
    shows: str | None = None
    is_run: bool = True

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        found = _FILE.match(self.code.partition("\n")[0])
        if found is None and self.language == "toml" and _ENTRY_POINTS.search(self.code):
            return "pyproject.toml"
        return found[1] if found else None


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page; what they print is a part of them."""
    found = list(_FENCE.finditer(text))
    for match, after in zip(found, [*found, None][1:], strict=True):
        if match[2] == "text":
            continue
        shows = None
        if (
            after is not None
            and after[2] == "text"
            and not text[match.end() : after.start()].strip()
        ):
            shows = after[3]
        line = text.count("\n", 0, match.start(2)) + 1
        yield Block(match[2], match[3], line, shows, is_run=match[1] is None)


def answers_of(text: str) -> list[str]:
    """The model's answers on a page."""
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
        left_out = {name: environ.pop(name) for name in _LEFT_OUT.findall(text)}
        # A program asks a model with a key of its reader's, whether the page exports one or not.
        python = stack.enter_context(closing(Python(environ | left_out)))
        reader = Reader(name, folder, environ, left_out, python)
        for block in blocks_of(text):
            if block.is_run:
                reader.follow(block)
        reader.run_tests()
        if len(server.requests) != len(answers):
            asked = f"the model was asked {len(server.requests)} times"
            raise PageError(f"{name}: {asked}, and the page has {len(answers)} answers")


def _environ(folder: Path, server: OpenAIServer) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DELF_", "OPENAI_"))}
    kept |= {"PYTHONPATH": str(_TESTS), "HOME": str(folder), "NO_COLOR": "1"}
    kept |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"}
    return kept | {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-of-the-docs"}


class Python:
    """The process that executes the Python of a page.

    Args:
        environ: Its variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._process: subprocess.Popen[str] | None = None

    def execute(self, block: Block, where: str, folder: Path) -> str:
        """Execute a block; what it printed.

        Raises:
            PageError: When it fails.
        """
        if self._process is None:
            pipe, command = subprocess.PIPE, [sys.executable, _RUNNER]
            options = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}
            self._process = start(command, cwd=folder, env=self._environ, **options)
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        continues = block.code.startswith(_CONTINUES)
        asked = {"code": block.code, "where": where, "folder": str(folder), "continues": continues}
        given.write(json.dumps(asked) + "\n")
        given.flush()
        if line := answers.readline():
            return str(json.loads(line))
        process, self._process = self._process, None
        raise PageError(f"{where} does not run:\n{process.communicate()[1]}")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate(timeout=SECONDS)


@dataclass
class Reader:
    """Somebody who does what a page says, block by block.

    Args:
        page: Its name.
        folder: Where the reader is.
        environ: The variables of the reader's shell.
        left_out: Those that are set only where the page does so, with a value that it leaves out.
        python: Runs programs.
        written_tests: The folder of tests that were written and not run since.
    """

    page: Path
    folder: Path
    environ: dict[str, str]
    left_out: Mapping[str, str]
    python: Python
    written_tests: Path | None = None

    def follow(self, block: Block) -> None:
        """Do what a block says.

        Raises:
            PageError: When that fails, or something else comes of it than the page says.
        """
        where = f"{self.page}:{block.line}"
        printed = ""
        if block.file is not None:
            self._write(block)
        elif block.language == "python":
            printed = self.python.execute(block, where, self.folder)
        elif block.language in ("console", "sh"):
            is_sh = block.language == "sh"
            lines = block.code.replace("\\\n", "").splitlines()
            for line in lines:
                if is_sh or line.startswith("$ "):
                    printed += self._type(line.removeprefix("$ "), where)
        else:
            return
        _compare(where, block, printed)

    def run_tests(self) -> None:
        """Run the tests that the page has written, unless it has run them."""
        if self.written_tests is not None:
            _run_tests(self.page, self.written_tests, self.environ, [])

    def _type(self, line: str, where: str) -> str:
        for name, value in self.left_out.items():
            if line == f"export {name}=…":
                line = f"export {name}={value}"
        words = shlex.split(line, comments=True)
        match words:
            case [] | [".", ".venv/bin/activate"]:
                return ""
            case ["cd", folder]:
                self.folder = (self.folder / folder).resolve()
                if not self.folder.is_dir():
                    raise PageError(f"{where}: there is no folder {folder!r}")
                return ""
            case ["export", *settings]:
                self.environ |= dict(setting.split("=", 1) for setting in settings)
                return ""
            case ["make", target]:
                if f"\n{target}:" not in (ROOT / "Makefile").read_text(encoding="utf-8"):
                    raise PageError(f"{where}: there is no target {target!r}")
                return ""
            case ["make", target, "&&", *more]:
                return self._type(f"make {target}", where) + self._type(shlex.join(more), where)
            case ["pytest", *options]:
                _run_tests(self.page, self.folder, self.environ, options)
                self.written_tests = None
                return ""
            case ["delf", "plugins", "install", "-e", name]:
                self._install(self.folder / name.partition("[")[0])
                return ""
            case ["delf", "plugins", "install", *names]:
                for item in sources().items(names):
                    if not item.origin.startswith(f"from {ROOT}"):
                        raise PageError(f"{where}: {item.name} comes {item.origin}")
                return ""
            case _:
                pass
        command = words if words[0] == "delf" else ["bash", "-c", line]
        result = _run(command, self.folder, self.environ)
        if result.returncode != 0:
            raise PageError(f"{where}: {line!r} fails:\n{result.stdout}{result.stderr}")
        return result.stdout

    def _write(self, block: Block) -> None:
        assert block.file is not None
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        is_more = block.code.partition("\n")[0].endswith(", at the end")
        with path.open("a" if is_more else "w", encoding="utf-8") as file:
            file.write("\n" * is_more + block.code)
        if path.parent.parent == self.folder / "src":
            self._find_modules(self.folder)
            (path.parent / "__init__.py").touch()
            (path.parent / "py.typed").touch()
        if path.parent.name == "tests":
            self.written_tests = self.folder
        if _ENTRY_POINTS.search(block.code):
            self._install(self.folder)

    def _find_modules(self, folder: Path) -> None:
        self.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), str(_TESTS)])

    def _install(self, folder: Path) -> None:
        """Install the package of a folder in place, as pip does."""
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        site = folder / "src"
        for old in site.glob("*.dist-info"):
            shutil.rmtree(old)
        points = project["entry-points"]
        named = {**points.get(ENTRY_POINT_GROUP, {}), **points.get(CONNECTIONS_GROUP, {})}
        for plugin, target in named.items():
            install_plugin(
                site,
                plugin,
                module=target,
                requires=project.get("dependencies"),
                keywords=project.get("keywords", ()),
                summary=project.get("description", "From a page."),
                exports=points.get("delf.exports"),
            )
        self._find_modules(folder)
        _check_built(self.page, folder)
        _check_plugins(self.page, folder, self.environ)


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


def _run_tests(page: Path, folder: Path, environ: dict[str, str], more: Sequence[str]) -> None:
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
        "-p",
        "support.quick_templates",
    ]
    options += ["--import-mode=importlib", "-W", "error", *more, "tests"]
    result = _run([*command, *plugins, *options], folder, environ)
    if result.returncode != 0:
        raise PageError(f"{page}: its tests fail:\n{result.stdout}{result.stderr}")


def _run(
    command: Sequence[str | Path], folder: Path, environ: dict[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    words = [DELF, *command[1:]] if command[0] == "delf" else command
    return run(words, cwd=folder, env=environ, given=given, timeout=SECONDS, text=True)


def _compare(where: str, block: Block, printed: str) -> None:
    if block.shows is None:
        return
    pattern = ".*?".join(re.escape(part) for part in block.shows.strip().split("…"))
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        raise PageError(f"{where} says that it prints\n{block.shows}\nand it prints\n{printed}")
